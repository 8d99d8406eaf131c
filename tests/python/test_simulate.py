"""`plimsoll simulate`: what it prints, what it refuses, and how near it comes to a real server."""

import asyncio
import json
import os
import random
import re
import time
from pathlib import Path

import numpy as np
import pytest

import nets
import v2
from server import Server, run, toml

ONE = {"x": np.array([1], np.float32)}
ROW = {"x": np.ones((1, 4), np.float32)}


@pytest.fixture
def here(tmp_path):
    """An empty folder to run in, with a repository `models` in it that holds `double`."""
    nets.times(tmp_path / "models/double.onnx", 2)
    return tmp_path


def simulated(folder, *arguments, timeout=120):
    done = run("simulate", "--device", "cpu", "--json", *arguments, cwd=folder, timeout=timeout)
    assert done.returncode == 0, (done.stdout, done.stderr)
    return json.loads(done.stdout)


def test_what_was_said_of_runs_decides_latency_and_lanes(here):
    (here / "plimsoll.toml").write_text(toml({"lanes": {"steady": 2}, "memory": {"reserve": "0%"}}))
    every = ["--rate", "double=100", "--arrivals", "even", "--seconds", "10", "--overhead", "1ms"]
    document = simulated(here, *every, "--service", "double=1:10")
    (model,) = document["models"]
    assert (model["requests"], model["answered"], model["expired"]) == (1000, 1000, 0)
    assert model["latency_ms"] == {key: 11 for key in ("p50", "p90", "p99", "max", "mean")}
    lanes = document["lanes"]
    assert (lanes["steady"], lanes["burst"], lanes["busy_peak"]) == (2, 0, 1)
    # One request at a time on two lanes.
    assert lanes["steady_busy"] == pytest.approx(0.5, abs=0.01) and document["first_refusal_ms"] is None
    # Three times what two lanes can do: a third is answered, the rest refused at once.
    document = simulated(here, "--rate", "double=600", "--seconds", "10", "--service", "double=1:10", "--timeout", "50ms")
    (model,) = document["models"]
    assert model["goodput_per_second"] == pytest.approx(200, rel=0.03) and model["expired"] == 0
    assert model["answered"] + sum(model["refused"].values()) == model["requests"]
    assert model["latency_ms"]["max"] <= 51 and document["first_refusal_ms"] < 1000


def test_the_same_seed_gives_the_same_document(here):
    drawn = ["--rate", "double=50", "--wave", "3:2s", "--seconds", "5", "--service", "double=1:10"]
    one, same, other = (simulated(here, *drawn, "--seed", seed) for seed in (1, 1, 2))
    # The lanes are a few bytes larger or smaller as the process is.
    assert one["models"] == same["models"] != other["models"]


def test_memory_is_that_of_check(here):
    memory = simulated(here, "--rate", "double=50", "--seconds", "1", "--ceiling", "1GiB", "--measure", "0.01")["memory"]
    checked = json.loads(run("check", "--ceiling", "1GiB", "--device", "cpu", "--json", cwd=here).stdout)
    assert memory["ceiling_bytes"] == checked["ceiling_bytes"]
    # What the process holds before the slab is a few pages more or less.
    for region in ("lanes", "reserve", "weights"):
        assert memory[f"{region}_bytes"] == pytest.approx(checked[region]["bytes"], rel=0.02), region


def test_batches_that_no_lane_is_large_enough_for_are_not_run(here):
    nets.times(here / "models/wide.onnx", 2, ("batch", 65536))
    trace = "at_ms,model,rows\n" + "".join(f"0,wide,{rows}\n" for rows in (1, 1, 1, 1, 1, 16))
    (here / "arrivals.csv").write_text(trace)
    # What is computed in place takes 256 KiB a row.
    for workspace, most, unfit in [("2MiB", 8, 1), ("64MiB", 16, 0)]:
        config = {"lanes": {"steady": 1, "workspace": workspace}, "memory": {"reserve": "0%"}, "batching": {"max_batch": 16}}
        (here / "plimsoll.toml").write_text(toml(config))
        document = simulated(here, "--trace", "arrivals.csv", "--service", "wide=1:10")
        (model,) = document["models"]
        assert (model["answered"], model["refused"]["too_large"]) == (6 - unfit, unfit), model
        assert max(bucket["rows"] for bucket in model["workspaces"]) == most
        assert all(bucket["bytes"] <= document["lanes"]["steady_bytes"][0] for bucket in model["workspaces"])


PLAYED = ("--rate", "double=100", "--seconds", "2", "--measure", "0.05", "--device", "cpu")


def test_a_text_report_names_everything(here):
    done = run("simulate", *PLAYED, cwd=here)
    assert done.returncode == 0, done.stderr
    for word in ("double", "p99 ms", "good/s", "steady lanes", "burst lanes", "first refusal", "reserve", "overhead"):
        assert word in done.stdout, done.stdout
    measured = re.search(r"measuring double: (\d+) times 50\.\d+ms; --measure", done.stderr)
    assert measured, "what takes its time is told before it is done"
    more = int(re.search(r"and (\d+) more that were measured: --verbose", done.stdout)[1])
    assert done.stdout.count("\nrun  ") == 1 and more == 2 * int(measured[1]) - 1, done.stdout
    all_of_it = run("simulate", *PLAYED, "--verbose", cwd=here).stdout
    assert all_of_it.count("\nrun  ") == 2 * int(measured[1]) and "more that were" not in all_of_it, all_of_it


def test_bad_usage_is_refused_with_what_was_expected(here):
    (here / "broken.csv").write_text("at_ms,model\n1,double\n0.5,double\n")
    (here / "other.csv").write_text("at_ms,model\n1,double\n2,other\n")
    for arguments, told in [
        ([], "--trace"),
        (["--trace", "broken.csv"], "broken.csv:3:1: expected a time that is not before the 1.000 above it, got `0.5`"),
        (["--trace", "other.csv"], "no model `other`"),
        (["--trace", "none.csv"], "none.csv"),
        (["--trace", "other.csv", "--rate", "double=1"], "cannot be used with"),
        (["--rate", "double=0"], "such as detector=20"),
        (["--rate", "double=1", "--service", "single=1:2"], "no request comes for model `single`"),
        (["--rate", "double=1000000", "--seconds", "86400"], "at most are drawn"),
    ]:
        done = run("simulate", *arguments, "--device", "cpu", cwd=here)
        assert done.returncode == (1 if "none.csv" in arguments else 2), (arguments, done)
        assert told in done.stderr, (arguments, done.stderr)


def test_arrivals_are_recorded_and_written_within_a_second(serve, here):
    server = serve(here / "models", {"log": {"arrivals": "arrivals.csv"}, "batching": {"max_batch": 8}})
    file = server.folder / "arrivals.csv"
    v2.infer(server, "double", {"x": np.ones((3, 4), np.float32)}, {"timeout": 2_000_000})
    v2.infer(server, "double", ROW)
    assert server.post("/v2/models/double/infer", b"{").status == 400
    time.sleep(1.5)
    header, *lines = file.read_text().splitlines()
    assert header == "at_ms,model,rows,timeout_ms"
    rows = [line.split(",") for line in lines]
    assert [row[1:3] for row in rows] == [["double", "3"], ["double", "1"]]
    assert 1500 < float(rows[0][3]) <= 2000 and 29_000 < float(rows[1][3]) <= 30_000
    v2.infer(server, "double", ROW)
    server.stop()
    assert len(file.read_text().splitlines()) == 4, "written at the end too"
    assert simulated(server.folder, "--trace", "arrivals.csv", "--measure", "0.05")["models"][0]["answered"] == 3


def test_a_file_for_arrivals_that_cannot_be_written_is_refused_at_the_start(here):
    done = run("serve", "--device", "cpu", cwd=here, env={"PLIMSOLL_LOG__ARRIVALS": "nowhere/a.csv"})
    assert done.returncode == 1 and "nowhere/a.csv (log.arrivals)" in done.stderr, done.stderr


class Open:
    """An open loop: requests go out when they are due, whatever has become of those before."""

    def __init__(self, server, model, inputs):
        body, headers = v2.encode(inputs)
        lines = [f"POST /v2/models/{model}/infer HTTP/1.1", "Host: plimsoll", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.request, self.port = "\r\n".join([*lines, "", ""]).encode() + body, server.port
        self.idle, self.latencies, self.statuses = [], [], {}

    def play(self, times):
        """Sends a request at each of these seconds; the latencies of those answered with 200, sorted."""
        asyncio.run(self._play(times))
        return sorted(self.latencies)

    async def _play(self, times):
        self.idle = [await asyncio.open_connection("127.0.0.1", self.port) for _ in range(8)]
        begun, asked = time.perf_counter(), []
        for due in times:
            await asyncio.sleep(due - (time.perf_counter() - begun))
            asked.append(asyncio.create_task(self._ask()))
        await asyncio.gather(*asked)
        for _, writer in self.idle:
            writer.close()

    async def _ask(self):
        reader, writer = self.idle.pop() if self.idle else await asyncio.open_connection("127.0.0.1", self.port)
        begun = time.perf_counter()
        writer.write(self.request)
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.lower().rpartition(b"\r\ncontent-length: ")[2].partition(b"\r\n")[0]))
        status = int(head.split(b" ", 2)[1])
        self.statuses[status] = self.statuses.get(status, 0) + 1
        if status == 200:
            self.latencies.append((time.perf_counter() - begun) * 1e3)
        self.idle.append((reader, writer))


def waves(rate, seconds, seed):
    """Seconds at which requests come: a Poisson process, half as fast again in each second quarter of five seconds."""
    source, at = random.Random(seed), 0.0
    while True:
        fast = 1.25 <= at % 5 < 2.5
        at += source.expovariate(rate * (1.5 if fast else 1))
        if at > seconds:
            return
        yield at


def service(document, busy):
    """What runs that follow one another take with so many lanes busy, in ms."""
    services = document["models"][0]["services"]
    return next(each["p50_ms"] for each in services if (each["lanes_busy"], each["lane_woken"]) == (busy, False))


def used_seconds(server):
    """Processor time so far: of everyone on this machine, and of server and client."""
    ticks = os.sysconf("SC_CLK_TCK")
    user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    own = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    all_together = (user + nice + system + irq + softirq + steal) / ticks
    return np.array([all_together, sum(map(int, own)) / ticks + sum(os.times()[:2])])


def quantile(times, part):
    return times[round((len(times) - 1) * part)]


@pytest.mark.parametrize("lanes", [1, 2])
def test_the_simulation_is_near_a_real_run(tmp_path, lanes):
    """Within 15 % is the aim. A run counts for it if nobody else was at work: they used little of the processors, and
    services took the same before and after. Whoever was at work, a median that is three times the other is a fault.

    Of two cores, one lane leaves the other to the connections and the client. Two lanes share theirs with both, which
    the simulation does not know of: there the aim is missed."""
    nets.slow(tmp_path / "models/slow.onnx", 4)
    config = {
        "lanes": {"steady": lanes},
        "memory": {"reserve": "0%"},
        "log": {"arrivals": "arrivals.csv"},
    }
    told, quiet = [], []
    for attempt in range(3):
        with Server(tmp_path / f"server{attempt}", tmp_path / "models", config) as server:
            before = service(simulated(server.folder, "--rate", "slow=50", "--seconds", "1", "--measure", "2"), lanes)
            real, used, begun = Open(server, "slow", ONE), used_seconds(server), time.monotonic()
            latencies = real.play(list(waves(0.6 * lanes * 1000 / before, 15, attempt)))
            everyone, ours = used_seconds(server) - used
            others = (everyone - ours) / (time.monotonic() - begun)
        document = simulated(server.folder, "--trace", "arrivals.csv", "--measure", "4")
        (model,) = document["models"]
        figures = {
            "services": (before, service(document, lanes)),
            "cores of others": round(others, 2),
            "answered": (real.statuses, model["answered"]),
            "p50": (quantile(latencies, 0.5), model["latency_ms"]["p50"]),
            "p99": (quantile(latencies, 0.99), model["latency_ms"]["p99"]),
        }
        print(figures)
        told.append(figures)
        if others <= 0.1 and abs(figures["services"][0] / figures["services"][1] - 1) <= 0.1:
            quiet.append(figures)
            if all(abs(imagined / real - 1) <= 0.15 for real, imagined in (figures["p50"], figures["p99"])):
                return
    ratios = [figures["p50"][1] / figures["p50"][0] for figures in told]
    assert any(1 / 3 <= ratio <= 3 for ratio in ratios), told
    if not quiet:
        pytest.skip(f"others were at work on this machine: {told}")
    pytest.xfail(f"15 % are missed so far: SPECIFICATION.md, a simulation against a real run; {quiet}")
