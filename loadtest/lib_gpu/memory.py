"""What does a model take on the device, and is it the same after many requests?"""

import time

from . import driver, one
from .clients import Clients
from .device import resident_bytes
from .report import mib
from .server import Server

MIB = 1 << 20
FIRST = 1_000


def run(arguments, report, scratch, meter):
    rows = one.buckets(arguments.max_batch)
    models = one.repository(scratch / "models", arguments, arguments.max_batch, rows)
    server = tight(arguments, scratch, models, meter)
    try:
        measure(arguments, report, server)
        report.wrong += server.stop()
    finally:
        server.process.kill()


def tight(arguments, scratch, models, meter):
    """A server whose slab is the model's weights and one lane, as nearly as it can be had."""
    lane = one.workspace(scratch, arguments, arguments.max_batch)
    config = {
        "memory": {"ceiling": 3072 * MIB if arguments.device == "cuda" else 1024 * MIB, "headroom": "64MiB", "reserve": 0},
        "server": {"max_body": "16MiB", "body_budget": "64MiB"},
        "lanes": {"steady": 1, "workspace": lane},
        "batching": {"queue_limit": 1024},
        "cache": {"dir": str(scratch / "cache")},
    }
    with Server(scratch / "roomy", models, config, arguments.device, meter) as server:
        memory = server.memory()
    lines = sum(memory[line] for line in ("driver_bytes", "process_bytes", "bodies_bytes", "headroom_bytes"))
    for slack in (1, 4, 12):
        config["memory"]["ceiling"] = lines + memory["weights"]["peak_bytes"] + lane + slack * MIB
        server = Server(scratch / f"slack{slack}", models, config, arguments.device, meter)
        try:
            server.start()
            if server.get(f"/v2/models/{one.NAME}/ready")[0] == 200:
                return server
            server.stop()
        except RuntimeError:
            server.process.kill()
    raise RuntimeError(f"the model does not load into {mib(memory['weights']['peak_bytes'])} and 12 MiB:\n{server.log()[-2000:]}")


def measure(arguments, report, server):
    questions = [one.question(arguments, rows) for rows in range(1, arguments.max_batch + 1)]
    seen, asked = [], 0
    first = min(FIRST, arguments.requests // 2)
    for requests in (first, arguments.requests - first):
        tally, took = Clients(server.port, questions, arguments.clients, arguments.limit, requests).end()
        asked += sum(tally.statuses.values())
        report.wrong += tally.wrong
        report.expect(set(tally.statuses) == {200}, f"statuses {dict(tally.statuses)}")
        time.sleep(1.5)  # what is freed and folded a moment later
        held, resident = server.device_bytes(), resident_bytes(server.process.pid)
        seen.append((held, resident))
        rate = sum(tally.statuses.values()) / took
        report.row(f"after {asked}", f"{mib(held)} on the device, {mib(resident)} resident, {rate:.0f} requests a second")
    (early, resident_early), (late, resident_late) = seen
    memory = server.memory()
    weights, lanes = memory["weights"]["used_bytes"], memory["lanes"]["bytes"]
    report.row("measured by", server.meter.source, source=server.meter.source)
    report.row("model", f"weights {mib(weights)}, lane {mib(lanes)}, slab {mib(memory['slab_bytes'])}",
               weights_bytes=weights, lanes_bytes=lanes, slab_bytes=memory["slab_bytes"])  # fmt: skip
    report.row("ceiling", f"{mib(memory['ceiling_bytes'])}, {memory['device_allocations']} allocations",
               ceiling_bytes=memory["ceiling_bytes"], requests=asked)  # fmt: skip
    report.figures |= {"device_bytes": [early, late], "resident_bytes": [resident_early, resident_late]}
    report.expect(asked >= arguments.requests - 2 * arguments.clients, f"only {asked} requests within {arguments.limit} s")
    report.expect(resident_late - resident_early <= MIB, f"{mib(resident_late - resident_early)} more resident")
    allocations = memory["device_allocations"], memory["device_allocations_after_ready"]
    report.expect(allocations == (1, 0), "more than the slab was allocated")
    report.expect(late <= memory["ceiling_bytes"], f"{mib(late)} on the device, ceiling {mib(memory['ceiling_bytes'])}")
    if arguments.device == "cpu":
        return
    report.expect(early == late, f"{late - early} bytes more on the device")
    bare = driver.bare_context()[0]
    context = bare["process_bytes"] if server.meter.by_process else bare["more_bytes"]
    context = context or memory["driver_bytes"]  # where NVML does not tell of a process that short
    over, bound = late - context, weights + lanes + 16 * MIB
    report.row("bare context", f"{mib(context)}; the server says driver {mib(memory['driver_bytes'])}",
               context_bytes=context, driver_bytes=memory["driver_bytes"])  # fmt: skip
    report.row("over it", f"{mib(over)}, weights and lane and 16 MiB are {mib(bound)}; over what the server calls driver "
               f"{mib(late - memory['driver_bytes'])}", over_context_bytes=over, bound_bytes=bound)  # fmt: skip
    report.expect(over <= bound, f"{mib(over)} over a bare context, at most {mib(bound)} are promised")
    report.expect(resident_late <= 250 * MIB, f"{mib(resident_late)} resident, at most 250 MiB are promised")
