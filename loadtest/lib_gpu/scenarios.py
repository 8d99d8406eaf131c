"""What hurts people with other servers, as far as it can be told from outside of this one?

Each function is one claim, and returns what was seen; an AssertionError says how it was otherwise.
"""

import json
import re
import statistics
import subprocess
import sys
import time

import numpy as np

from . import nets, processes, wire
from .device import resident_bytes
from .first import scenario_13_first_requests_are_as_fast_as_the_next  # noqa: F401
from .report import mib
from .server import Server, bench, checked, command, write
from .watch import Watch

MIB = 1 << 20
ROW = {"x": wire.numbers("FP32", [1, 1024])}
PICTURE = {"image": wire.numbers("FP32", [1, 3, 224, 224])}
SMALL = {"max_body": "8MiB", "body_budget": "16MiB"}
LEDGER = ("extents", "held_bytes", "host_bytes", "free_bytes", "largest_free_bytes")


class Place:
    """Where a scenario works: a folder of its own, and a server with so many MiB of slab in it."""

    def __init__(self, arguments, meter, folder):
        self.device, self.meter, self.folder, self.shelf = arguments.device, meter, folder, arguments.models
        self.models = folder / "models"
        self.models.mkdir(parents=True)

    def server(self, slab, name="server", **config):
        config.setdefault("server", SMALL)
        config.setdefault("memory", {})
        config.setdefault("lanes", {"steady": 1, "workspace": "8MiB"})
        config["memory"] = {"headroom": "64MiB", "reserve": "8MiB", "ceiling": 2048 * MIB} | config["memory"]
        if self.device == "cpu":
            config["memory"]["ceiling"] = 512 * MIB
        lazy = config | {"models": {"load": []}}
        memory = checked(self.folder / "check", self.models, lazy, self.device)
        lines = sum(memory[line] for line in ("driver_bytes", "process_bytes", "bodies_bytes", "headroom_bytes"))
        config["memory"]["ceiling"] = lines + slab * MIB
        return Server(self.folder / name, self.models, config, self.device, self.meter)


def ask(server, model, arrays):
    connection = wire.Connection(server.port)
    try:
        return connection.arrays(wire.infer(model, arrays))
    finally:
        connection.close()


def scenario_1_the_process_stays_under_its_ceiling_while_models_leave_for_each_other(place):
    names = [f"large-{at}" for at in range(4)]
    for seed, name in enumerate(names):
        nets.large(place.models / f"{name}.onnx", 24, seed)
    first = {}
    with place.server(16 + 56, models={"load": "on_demand"}) as server:
        with Watch(server) as watch:
            for name in names * 6:
                answer = ask(server, name, ROW)["y"]
                assert (answer == first.setdefault(name, answer)).all(), f"{name} answers otherwise once it has come back"
        assert not watch.wrong, watch.wrong[:3]
        assert watch.happened("evict") >= 8, watch.events
    return f"{len(watch.device)} samples, {mib(max(watch.device))} at most, ceiling {mib(watch.ceiling)}"


def scenario_2_memory_returns_when_a_model_is_loaded_asked_and_unloaded(place):
    nets.large(place.models / "large.onnx", 16)
    nets.picture(place.models / "small.onnx")
    with place.server(16 + 64, models={"load": ["small"]}) as server:
        held = lambda: {key: value for key, value in server.memory().items() if key in LEDGER}
        start, device, resident = held(), [], []
        for _ in range(100):
            assert server.load("large")[0] == 200
            for _ in range(4):
                ask(server, "large", ROW)
            assert server.unload("large")[0] == 200
            end = time.monotonic() + 2  # a worker may hold the program for a moment after its last answer is out
            while held() != start:
                assert time.monotonic() < end, "the ledger does not return to the start"
                time.sleep(0.01)
            device.append(server.device_bytes())
            resident.append(resident_bytes(server.process.pid))
    for name, seen in (("on the device", device), ("resident", resident)):
        first, last = statistics.median(seen[:5]), statistics.median(seen[-5:])
        assert last - first <= min(16 * MIB, first / 100), f"{name}: {mib(first)} at first, {mib(last)} in the end"
    return f"on the device {mib(device[0])} and {mib(device[-1])}, resident {mib(resident[0])} and {mib(resident[-1])}"


def scenario_5_no_device_memory_is_allocated_after_ready(place):
    nets.picture(place.models / "small.onnx")
    for seed in range(3):
        nets.large(place.models / f"large-{seed}.onnx", 24, seed)
    lanes = {"steady": 1, "workspace": "4MiB"}
    with place.server(8 + 4 + 52, lanes=lanes, models={"load": "on_demand"}) as server:
        start, connection, statuses = server.memory(), wire.Connection(server.port), set()
        for round in range(3):
            for seed in range(3):
                ask(server, f"large-{seed}", {"x": wire.numbers("FP32", [1 + round, 1024])})
            for rows, size in ((1, 224), (3, 160), (1, 352), (9, 224), (2, 64)):
                picture = {"image": wire.numbers("FP32", [rows, 3, size, size])}
                statuses.add(connection.ask(wire.infer("small", picture))[0])
        memory = server.memory()
        seen = memory["device_allocations"], memory["device_allocations_after_ready"]
        assert (start["device_allocations"], *seen) == (1, 1, 0), seen
        assert server.metric("plimsoll_device_allocations_after_ready_total") == 0
        events = {event["what"] for event in memory["events"]}
        assert {"load", "evict"} <= events and 200 in statuses and statuses <= {200, 413, 422, 429, 503}, (events, statuses)
    return f"statuses {sorted(statuses)}, events {sorted(events)}, 1 allocation"


def scenario_9_less_workspace_gives_the_same_answer_or_a_refusal(place):
    path = nets.picture(place.models / "small.onnx", channels=128)
    asked = ["--shape", "image=1x3x224x224", "--seconds", "0.05"]
    needed = bench(place.folder / "bench", path.resolve(), place.device, "fp32", *asked)["memory"]["workspace_bytes"]
    # On a GPU the first of a lane's words are its own where memory is not pinned.
    lanes, answers = {"too small": needed - 65536, "just enough": needed + 1024, "roomy": 64 * MIB}, {}
    for name, size in lanes.items():
        config = {"lanes": {"steady": 1, "workspace": size}, "memory": {"reserve": 0}, "models": {"load": "on_demand"}}
        with place.server(160, name.replace(" ", "-"), **config) as server:
            status, body = wire.Connection(server.port).ask(wire.infer("small", PICTURE))
            if name == "too small" and status != 200:
                assert status == 422 and "workspace" in json.loads(bytes(body))["error"], bytes(body[:300])
                continue
            answers[name] = ask(server, "small", PICTURE)["scores"]
    for name, answer in answers.items():
        off = np.abs(answer - answers["roomy"]).max() / np.abs(answers["roomy"]).max()
        assert off <= 1e-4, f"{name}: another answer, by {off:.1e} of the largest"
    return f"{mib(needed)} needed; the same answer where the lane is {' and '.join(answers)}"


def scenario_10_recordings_are_made_before_ready(place):
    nets.picture(place.models / "small/model.onnx")
    shapes = [[1, 3, 224, 224], [2, 3, 160, 160], [4, 3, 96, 320]]
    tables = ", ".join(f"{{ image = {shape} }}" for shape in shapes)
    (place.models / "small/model.toml").write_text(f"prepare = [{tables}]\n")
    with place.server(48 + 32, lanes={"steady": 1, "workspace": "32MiB"}) as server:
        time.sleep(0.3)
        before = server.device_bytes()
        for _ in range(100):
            for shape in shapes:
                ask(server, "small", {"image": wire.numbers("FP32", shape)})
        after, memory = server.device_bytes(), server.memory()
        more = after - before
        # Resident memory has other reasons to grow by a little.
        assert more <= (4 * MIB if place.device == "cpu" else 0), f"{more} bytes more after 300 requests of prepared shapes"
        assert after <= memory["ceiling_bytes"] and memory["device_allocations_after_ready"] == 0
    return f"{mib(before)} when ready, {mib(after)} after 300 requests of prepared shapes"


def refused(place, ceiling):
    write(place.folder, place.models, {"memory": {"ceiling": ceiling, "reserve": 0}}, place.device)
    begun = time.monotonic()
    done = command("serve", cwd=place.folder, seconds=60)
    told = done.stdout + done.stderr
    assert done.returncode == 1 and "panicked" not in told, f"exit code {done.returncode}: {told[-500:]}"
    assert re.search(r"\d[\d.]* [KMGT]iB", told) and "memory.ceiling" in told, f"no figures: {told[-500:]}"
    return f"exit code 1 after {time.monotonic() - begun:.1f} s: {told.strip().splitlines()[-1][:200]}"


def scenario_11_a_slab_that_the_device_has_not_is_refused_with_the_figures(place):
    return refused(place, "900GiB")


def scenario_11_a_slab_that_others_hold_is_refused_with_the_figures(place):
    if place.device == "cpu":
        return None
    holder = processes.popen(
        [sys.executable, processes.SELF, "hold", 1536], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        free = json.loads(holder.stdout.readline() or "{}").get("free_bytes")
        assert free is not None, "the GPU's memory could not be taken: see above"
        return f"{mib(free)} left free; {refused(place, '4GiB')}"
    finally:
        holder.kill()
        holder.wait(20)


def hidden(place):
    """Environments in which no driver is found: by its own switch, and by a library that is none."""
    for name in ("libcuda.so", "libcuda.so.1"):
        (place.folder / name).write_bytes(b"")
    return {"no device": {"CUDA_VISIBLE_DEVICES": ""}, "no library": {"LD_LIBRARY_PATH": str(place.folder)}}


def scenario_12_without_a_driver_auto_serves_on_the_processor_with_a_warning(place):
    nets.picture(place.models / "small.onnx")
    for at, (how, environment) in enumerate(hidden(place).items()):
        config = {"memory": {"ceiling": "512MiB"}, "lanes": {"steady": 1, "workspace": "8MiB"}}
        with Server(place.folder / f"server{at}", place.models, config, "auto", env=environment) as server:
            assert np.isfinite(ask(server, "small", PICTURE)["scores"]).all()
            warned = re.search(r"WARN.*(CUDA|GPU|driver|cuda).*", server.log())
            assert warned, f"{how}: no warning: {server.log()[-500:]}"
    return warned[0][:200]


def scenario_12_without_a_driver_cuda_ends_with_the_reason(place):
    for how, environment in hidden(place).items():
        write(place.folder, place.models, {}, "cuda")
        done = command("serve", cwd=place.folder, seconds=60, env=environment)
        told = done.stdout + done.stderr
        assert done.returncode == 1 and "cuda" in told and "panicked" not in told, f"{how}: {done.returncode}: {told[-500:]}"
    return told.strip().splitlines()[-1][:200]


def run(arguments, report, scratch, meter):
    claims = [value for name, value in globals().items() if name.startswith("scenario_")]
    claims.sort(key=lambda claim: int(claim.__name__.split("_")[1]))
    results = {}
    for at, claim in enumerate(claims):
        name = claim.__name__.replace("_", " ").removeprefix("scenario ")
        if arguments.only and arguments.only not in name:
            continue
        begun = time.monotonic()
        try:
            seen = claim(Place(arguments, meter, scratch / str(at)))
            verdict, told = ("SKIP", "needs a GPU") if seen is None else ("PASS", seen)
        except Exception as error:
            verdict, told = "FAIL", f"{type(error).__name__}: {error}"
            report.missed(f"{name}: {told}")
        results[name] = {"verdict": verdict, "told": told}
        print(f"{verdict} {name} ({time.monotonic() - begun:.1f} s)\n     {told}", flush=True)
    report.figures["scenarios"] = results
