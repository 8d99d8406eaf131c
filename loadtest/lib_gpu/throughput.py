"""What of a model's speed is left over HTTP? Requests a second of many clients, beside `plimsoll bench` in turns."""

import collections
import statistics

from . import one
from .clients import Clients, quantile_ms
from .server import Server

MIB = 1 << 20


def run(arguments, report, scratch, meter):
    inside, alone, over, p50, p99 = (collections.defaultdict(list) for _ in range(5))
    rows = sorted({1, *arguments.batches})
    lane = one.workspace(scratch, arguments, rows[-1])
    for round in range(arguments.rounds):
        for lanes in (1, 2):
            for batch in rows:
                figures = one.benched(scratch, arguments, batch, min(arguments.seconds, 2), lanes)
                inside[lanes, batch].append(figures["runs_per_second"] * batch)
                alone[lanes, batch].append(figures["latency_ms"]["p50"])
        for most in arguments.batches:
            place = scratch / f"{round}-{most}"
            models = one.repository(place / "models", arguments, most, [1])
            with Server(place / "server", models, configuration(arguments, scratch, lane), arguments.device, meter) as server:
                ask(arguments, server, arguments.concurrency[-1], 1)  # what is prepared beside the traffic is ready after that
                for count in arguments.concurrency:
                    tally, took = ask(arguments, server, count, arguments.seconds)
                    over[most, count].append(tally.statuses[200] / took)
                    p50[most, count].append(quantile_ms(tally.took, 0.5))
                    p99[most, count].append(quantile_ms(tally.took, 0.99))
                    report.wrong += tally.wrong
                    report.expect(set(tally.statuses) == {200}, f"max_batch {most}, {count} clients: {dict(tally.statuses)}")
    tell(arguments, report, inside, alone, over, p50, p99)


def configuration(arguments, scratch, lane):
    return {
        "memory": {"ceiling": 4096 * MIB if arguments.device == "cuda" else 768 * MIB, "reserve": 0},
        "server": {"max_body": "16MiB", "body_budget": "128MiB"},
        "lanes": {"steady": 2, "workspace": lane},
        "batching": {"queue_limit": 1024},
        "cache": {"dir": str(scratch / "cache")},
    }


def ask(arguments, server, count, seconds):
    return Clients(server.port, [one.question(arguments, 1)], count, seconds).end()


def tell(arguments, report, inside, alone, over, p50, p99):
    middle, rows = statistics.median, []
    for (lanes, batch), rates in inside.items():
        rate, short = middle(rates), middle(alone[lanes, batch])
        report.row("bench", f"{lanes} lanes, batch {batch:3}: {rate:9.1f} images/s, p50 {short:.3f} ms")
        rows.append({"lanes": lanes, "batch": batch, "images_per_second": rate, "p50_ms": short})
    report.figures["bench"] = rows
    best, rows = max(middle(rates) for rates in inside.values()), []
    for (most, count), rates in over.items():
        rate, short, long = middle(rates), middle(p50[most, count]), middle(p99[most, count])
        report.row("http", f"max_batch {most:3}, {count:3} clients: {rate:9.1f} requests/s, p50 {short:.3f} ms, "
                   f"p99 {long:.3f} ms, {rate / best:.2f} of the best bench")  # fmt: skip
        rows.append({"max_batch": most, "clients": count, "requests_per_second": rate,
                     "p50_ms": short, "p99_ms": long, "ratio": rate / best})  # fmt: skip
    report.figures["http"] = rows
    last = arguments.concurrency[-1]
    ratio = max(row["ratio"] for row in rows if row["clients"] == last)
    report.row("ratio", f"{ratio:.3f} of {best:.1f} images/s, {last} clients, the best max_batch",
               ratio=ratio, best_images_per_second=best)  # fmt: skip
    if single := [row["p50_ms"] for row in rows if row["clients"] == 1]:
        added = min(single) - middle(alone[1, 1])
        report.row("added", f"{added * 1e3:.0f} µs to a run of one row, one client, medians", added_us=added * 1e3)
    report.expect(ratio >= arguments.least, f"{ratio:.3f} of what the model does without HTTP, not {arguments.least}")
