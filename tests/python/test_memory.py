"""The load line: what the slab holds, who leaves for whom, and the process under its ceiling all the while."""

import pathlib
import re
import subprocess
import time

import nets
import numpy as np
import pytest
import v2
from server import run, until
from watch import MIB, Watch

HERE = pathlib.Path(__file__).parent
ROW = {"x": np.ones((1, 1024), np.float32)}


def ceiling(size, **more):
    return {"memory": {"ceiling": size, "headroom": "48MiB"}, "server": {"body_budget": "4MiB", "max_body": "1MiB"}, **more}


@pytest.fixture
def models(tmp_path):
    nets.times(tmp_path / "models/double.onnx", 2)
    return tmp_path / "models"


@pytest.fixture
def four(models):
    """Four models of 32 MiB."""
    names = [f"large-{at}" for at in range(4)]
    for at, name in enumerate(names):
        nets.large(models / f"{name}.onnx", 32, seed=at)
    return names


def test_models_on_demand_leave_for_each_other_and_the_process_stays_under_its_ceiling(serve, models, four):
    server = serve(models, ceiling("200MiB", models={"load": "on_demand", "watch": False}))
    wanted = {}
    with Watch(server) as watch:
        for _ in range(3):
            for name in four:
                answer = v2.infer(server, name, ROW)["y"]
                assert (answer == wanted.setdefault(name, answer)).all(), "a model that came back answers as before"
    assert not watch.wrong and watch.samples > 5, watch.wrong[:3]
    events = server.memory()["events"]
    assert {event["what"] for event in events} >= {"load", "evict"}
    assert [event["sequence"] for event in events] == sorted(event["sequence"] for event in events)
    loaded = [name for name in four if any(extent["owner"] == f"{name}:1" for extent in server.memory()["extents"])]
    assert four[-1] in loaded and four[0] not in loaded, "the least recently used is the one that left"


def test_a_pinned_model_stays(serve, models, four):
    pinned = models / "pinned"
    pinned.mkdir()
    (models / f"{four[0]}.onnx").rename(pinned / "model.onnx")
    (pinned / "model.toml").write_text("pin = true\n")
    server = serve(models, ceiling("200MiB", models={"load": "on_demand", "watch": False}))
    v2.infer(server, "pinned", ROW)
    for name in four[1:] * 2:
        v2.infer(server, name, ROW)
    memory = server.memory()
    assert any(extent["owner"] == "pinned:1" and extent["pinned"] for extent in memory["extents"] if extent["kind"] == "weights")
    assert not any(event["what"] == "evict" and event["owner"] == "pinned:1" for event in memory["events"])


def test_without_on_demand_nobody_leaves_and_the_refusal_says_who_could(serve, models, four):
    server = serve(models, ceiling("200MiB", models={"load": [four[0], four[1]], "watch": False}))
    v2.infer(server, four[0], ROW)
    answer = server.load(four[2])
    assert answer.status == 507, answer
    assert re.search(r"`large-2:1` needs 32 MiB, [\d.]+ [KM]iB free under the ceiling of 200 MiB", answer.error), answer.error
    for remedy in (r"`large-0:1` \(32 MiB, idle \d+ s\)", r"`large-1:1` \(32 MiB\)"):
        assert re.search("after unloading " + remedy, answer.error), "how long it has been idle, where it was asked at all"
    assert server.unload(four[0]).status == 200
    assert server.load(four[2]).status == 200


def test_a_model_holds_no_more_than_its_limit(serve, models, four):
    folder = models / "limited"
    folder.mkdir()
    (models / f"{four[0]}.onnx").rename(folder / "model.onnx")

    def limit(size, **more):
        lines = [f'memory_limit = "{size}"', *(f"{key} = {value}" for key, value in more.items())]
        (folder / "model.toml").write_text("\n".join(lines) + "\n")

    limit("20MiB")
    server = serve(models, ceiling("200MiB", models={"load": ["double"], "watch": False}))
    free = server.memory()["free_bytes"]
    answer = server.load("limited")
    assert answer.status == 507, answer
    expected = r"`limited:1` needs 32 MiB, 20 MiB free under its memory_limit of 20 MiB; fits with memory_limit of at least 3[23] MiB"
    assert re.fullmatch(expected, answer.error), answer.error
    assert server.memory()["free_bytes"] == free and not any(extent["owner"] == "limited:1" for extent in server.memory()["extents"])
    limit("40MiB")
    assert server.load("limited").status == 200
    # A change takes over from what serves, which does not count against it.
    limit("40MiB", priority=6)
    assert server.load("limited").status == 200
    v2.infer(server, "limited", ROW)
    limit("20MiB", priority=6)
    assert server.load("limited").status == 507
    v2.infer(server, "limited", ROW)


def test_the_process_stays_under_its_ceiling_while_a_large_model_is_loaded(serve, models):
    nets.large(models / "large.onnx", 64)
    server = serve(models, ceiling("200MiB", models={"load": ["double"], "watch": False}))
    with Watch(server, every=0.01) as watch:
        for _ in range(5):
            assert server.load("large").status == 200
            answer = v2.infer(server, "large", ROW)["y"]
            assert server.unload("large").status == 200
    assert not watch.wrong, (watch.wrong[:3], f"{watch.peak / MIB:.1f} MiB at most")
    # Packed part by part, since it is larger than what may lie unpacked beside the slab.
    weights = np.random.default_rng(1).standard_normal((1024, 64 * MIB // 4 // 1024), np.float32)
    np.testing.assert_allclose(answer, ROW["x"] @ weights, rtol=1e-4, atol=1e-3)


def test_a_request_that_needs_more_than_a_steady_lane_runs_on_the_reserve(serve, models):
    server = serve(models, {"lanes": {"steady": 1, "workspace": "16KiB"}, "models": {"load": ["double"]}})
    assert server.memory()["reserve"]["peak_bytes"] == 0, "what is run before the first request leaves it alone"
    rows = np.ones((4096, 4), np.float32)
    assert (v2.infer(server, "double", {"x": rows})["y"] == 2 * rows).all()
    v2.infer(server, "double", {"x": rows})
    memory = server.memory()
    assert memory["reserve"]["peak_bytes"] > 0 and memory["reserve"]["used_bytes"] == 0
    bursts = [event for event in memory["events"] if event["what"] == "burst"]
    assert [(event["owner"], event["times"]) for event in bursts] == [("double:1", 1)], "told when it begins"
    assert bursts[0]["bytes"] >= rows.nbytes and abs(bursts[0]["at_ms"] / 1000 - time.time()) < 60


def test_after_the_start_no_device_memory_is_allocated_whatever_is_asked(serve, models, four):
    lines = {"lanes": {"steady": 1, "workspace": "16KiB"}, "models": {"load": "on_demand", "watch": False}}
    server = serve(models, ceiling("200MiB", **lines))
    start = server.memory()
    assert (start["device_allocations"], start["device_allocations_after_ready"]) == (1, 0), "the slab"
    for name in four * 2:
        v2.infer(server, name, ROW)
    for rows in (1, 2, 3, 4096):
        v2.infer(server, "double", {"x": np.ones((rows, 4), np.float32)})
    assert v2.try_infer(server, "double", {"x": np.ones((1 << 17, 4), np.float32)}).status in (413, 422)
    memory = server.memory()
    assert {event["what"] for event in memory["events"]} >= {"load", "evict"}
    assert memory["reserve"]["peak_bytes"] > 0, "the burst lanes were used too"
    assert (memory["device_allocations"], memory["device_allocations_after_ready"]) == (1, 0)
    assert server.metric("plimsoll_device_allocations_total") == 1
    assert server.metric("plimsoll_device_allocations_after_ready_total") == 0


def test_over_its_ceiling_the_server_is_not_ready_until_it_is_under_it_again(serve, models, tmp_path):
    # Everything of its own is in the ledger; so what takes it over the ceiling is none of its own.
    library, hog = tmp_path / "hog.so", tmp_path / "hog"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, HERE / "hog.c", "-lpthread"], check=True)
    env = {"LD_PRELOAD": str(library), "HOG": str(hog), "HOG_BYTES": str(160 * MIB)}
    server = serve(models, ceiling("160MiB"), env=env)
    memory = server.memory()
    assert memory["ceiling_breaches"] == 0 and server.metric("plimsoll_ceiling_breaches_total") == 0
    assert memory["process_resident_bytes"] <= memory["process_resident_peak_bytes"] <= memory["ceiling_bytes"]
    hog.touch()
    answer = until(lambda: (ready := server.get("/v2/health/ready")).status == 503 and ready, 30)
    assert re.search(r"holds \d+ MiB of resident memory, more than the ceiling of 160 MiB", answer.error), answer
    assert server.get("/v2/health/live").status == 200, "it lives, and answers"
    assert (v2.infer(server, "double", {"x": np.ones((1, 4), np.float32)})["y"] == 2).all()
    hog.unlink()
    until(lambda: server.get("/v2/health/ready").status == 200, 30)
    memory = server.memory()
    assert memory["ceiling_breaches"] >= 1 and memory["process_resident_peak_bytes"] > memory["ceiling_bytes"]
    assert server.metric("plimsoll_ceiling_breaches_total") == memory["ceiling_breaches"]
    assert server.metric("plimsoll_resident_peak_bytes") == memory["process_resident_peak_bytes"]
    told = [line for line in server.log().splitlines() if "more than its ceiling" in line]
    assert len(told) == memory["ceiling_breaches"] and "ERROR" in told[0], server.log()
    assert re.search(r"resident=\S+ \S+ peak=.* ceiling=160 MiB counted=", told[0]), told


def test_a_slab_that_the_system_does_not_have_is_refused_at_the_start(models, tmp_path):
    begun = time.monotonic()
    done = run("serve", "--models", models, "--ceiling", "900GiB", "--listen", "127.0.0.1:0", cwd=tmp_path)
    assert done.returncode == 1 and time.monotonic() - begun < 10
    assert "available" in done.stderr and "memory.ceiling" in done.stderr, done.stderr


def test_the_memory_map_can_be_read_as_a_table(serve, models, tmp_path):
    server = serve(models, {"models": {"load": ["double"]}})
    done = run("memory", "--url", server.url, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = {line.split()[0]: line for line in done.stdout.splitlines() if line.strip()}
    assert rows.keys() >= {"ceiling", "slab", "weights", "lanes", "reserve", "double:1"}
    refused = run("memory", "--url", "http://127.0.0.1:1", cwd=tmp_path)
    assert refused.returncode == 1 and "127.0.0.1:1" in refused.stderr
