"""What hurts people with other servers does not happen here."""

import random
import re
import signal
import statistics
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import nets
import v2
from load import Load
from server import BIN, MODELS, Server, run, until
from wire import Raw

MIB = 1 << 20
ONE = {"x": np.array([1], np.float32)}
ROW = {"x": np.ones((1, 4), np.float32)}
# What of the ledger says who holds what now; the rest of it is history.
LEDGER = ("extents", "held_bytes", "host_bytes", "free_bytes", "largest_free_bytes")


@pytest.fixture
def models(tmp_path):
    nets.times(tmp_path / "models/double.onnx", 2)
    return tmp_path / "models"


def malformed(whole):
    """Files that begin like a model, and others."""
    source = random.Random(5)
    for at in range(20):
        yield whole[: 1 + at * len(whole) // 20]
    for _ in range(25):
        broken = bytearray(whole)
        for _ in range(source.randrange(1, 30)):
            broken[source.randrange(len(broken))] = source.randrange(256)
        yield bytes(broken[: -source.randrange(1, 400)])
    yield from (b"", b"\0", b"not a model", bytes(4096), source.randbytes(4096))


def test_a_malformed_file_loaded_50_times_is_an_error_each_time_and_nothing_is_held(serve, models):
    server = serve(models, {"models": {"watch": False}})
    whole = (MODELS / "digits/model.onnx").read_bytes()
    files = list(malformed(whole))
    assert len(files) == 50
    resident = []
    for round in range(2):
        before = server.memory()["extents"]
        for at, data in enumerate(files):
            (models / "broken.onnx").write_bytes(data)
            answer = server.load("broken")
            assert answer.status == 400, (at, answer)
            assert answer.error
        assert server.memory()["extents"] == before
        assert (v2.infer(server, "double", ROW)["y"] == 2).all()
        resident.append(server.resident_bytes())
    assert resident[1] - resident[0] <= 4 * MIB, resident
    states = {line["name"]: line for line in server.post("/v2/repository/index").json()}
    assert states["broken"]["state"] == "UNAVAILABLE" and states["broken"]["reason"]


def test_a_model_unloaded_while_it_is_asked_answers_each_request_or_refuses_it_clearly(serve, models):
    server = serve(models, {"models": {"watch": False}})
    with Load(server, "double", ROW) as load:
        for _ in range(10):
            load.wait_for(100)
            assert server.unload("double").status == 200
            load.wait_for(20)
            assert server.load("double").status == 200
        load.wait_for(100)
    seen = load.statuses()
    assert set(seen) == {200, 503}, seen
    for answer in load.answers:
        if answer.status == 200:
            assert (v2.decode(answer)["y"] == 2).all()
        else:
            assert "double" in answer.error and answer.headers["Retry-After"]


def test_what_runs_when_its_model_is_unloaded_finishes(serve, models):
    nets.slow(models / "slow.onnx", 200)
    server = serve(models)
    with Load(server, "slow", ONE, threads=2) as load:
        # Both requests are in: the budget counts each as 1 KiB.
        until(lambda: server.metric("plimsoll_bodies_bytes") >= 2 * 1024)
        assert server.unload("slow").status == 200
        load.wait_for(4)
    assert load.statuses()[200] >= 2 and set(load.statuses()) == {200, 503}


def test_memory_returns_when_models_are_loaded_asked_and_unloaded(serve, models):
    nets.large(models / "large.onnx", 16)
    server = serve(models, {"models": {"load": ["double"], "watch": False}})
    held = lambda: {key: value for key, value in server.memory().items() if key in LEDGER}
    start, resident = held(), []
    for _ in range(100):
        assert server.load("large").status == 200
        for _ in range(8):
            v2.infer(server, "large", {"x": np.ones((1, 1024), np.float32)})
        assert server.unload("large").status == 200
        # A worker may hold the program for a moment after its last answer is out.
        until(lambda: held() == start, 1)
        resident.append(server.resident_bytes() / MIB)
    first, last = statistics.median(resident[:5]), statistics.median(resident[-5:])
    assert last - first <= min(16, first / 100), f"MiB resident after each unload: {[round(r) for r in resident]}"


def test_the_ledger_counts_what_a_loaded_model_takes(serve, models):
    nets.large(models / "large.onnx", 128)
    server = serve(models, {"models": {"load": ["double"], "watch": False}})
    held, resident = server.memory()["held_bytes"], server.resident_bytes()
    assert server.load("large").status == 200
    v2.infer(server, "large", {"x": np.ones((1, 1024), np.float32)})
    counted, taken = server.memory()["held_bytes"] - held, server.resident_bytes() - resident
    assert taken <= counted + 24 * MIB, f"{taken / MIB:.0f} MiB taken, {counted / MIB:.0f} MiB in the ledger"


def test_without_a_gpu_auto_serves_with_a_warning(serve, models):
    server = serve(models, {"device": {"kind": "auto"}})
    assert re.search(r"WARN.*(CUDA|GPU)", server.log()), server.log()
    assert (v2.infer(server, "double", ROW)["y"] == 2).all()


def test_without_a_gpu_cuda_exits_1_with_the_reason(models, tmp_path):
    done = run("serve", "--device", "cuda", "--models", models, "--listen", "127.0.0.1:0", cwd=tmp_path)
    assert done.returncode == 1 and "cuda" in done.stderr.lower() and "panicked" not in done.stderr, done.stderr


def test_a_precision_that_the_cpu_does_not_know_is_computed_in_fp32_with_a_warning(serve, models):
    nets.times(models / "half/model.onnx", 3)
    (models / "half/model.toml").write_text('precision = "fp16"\n')
    server = serve(models, {"device": {"kind": "cpu"}})
    # 0.1 has no f16 that is as near.
    assert (v2.infer(server, "half", {"x": np.full((1, 4), 0.1, np.float32)})["y"] == np.float32(0.1) * 3).all()
    assert re.search(r"WARN.*precision.*model=\"half\" asked=\"fp16\" used=\"fp32\"", server.log()), server.log()


def socket_buffers():
    """The most bytes that both ends' kernel buffers hold on their way over loopback."""
    largest = [Path(f"/proc/sys/net/ipv4/tcp_{way}mem").read_text().split()[2] for way in "rw"]
    return sum(map(int, largest))


def test_resident_memory_is_flat_however_much_is_sent_over_the_limit(serve, models):
    server = serve(models, {"server": {"max_body": "1MiB", "body_budget": "4MiB"}})
    before, piece = server.resident_bytes(), bytes(256 << 10)
    # 24 MiB are read after the answer for clients that look for one late, and each side's kernel holds a buffer.
    most = 32 * MIB + socket_buffers()
    for chunked in [True, False] * 10:
        with Raw(server) as raw:
            framing = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {1 << 30}"
            raw.head("/v2/models/double/infer", framing)
            sent = 0
            try:
                while sent < 2 * most:
                    raw.chunk(piece) if chunked else raw.send(piece)
                    sent += len(piece)
            except (BrokenPipeError, ConnectionResetError):
                pass
            # What lies in the kernel's buffers counts as sent; a server that reads on would take it all.
            assert sent < most, f"{sent / MIB} MiB taken of a body of at most 1 MiB"
    assert server.resident_bytes() - before <= 16 * MIB
    assert (v2.infer(server, "double", ROW)["y"] == 2).all()


@pytest.mark.parametrize("keep_alive", [True, False])
def test_a_stop_under_load_loses_no_request_and_turns_readiness_off_first(serve, models, keep_alive):
    nets.slow(models / "slow.onnx", 60)
    server = serve(models, {"server": {"shutdown_grace": "10s"}, "batching": {"queue_limit": 64}})
    with Load(server, "slow", ONE, keep_alive=keep_alive) as load:
        load.wait_for(4)
        server.process.send_signal(signal.SIGTERM)
        begun = time.monotonic()
        ready = until(lambda: (answer := server.get("/v2/health/ready")).status == 503 and answer, 2)
        assert "stopping" in ready.error and ready.headers["Retry-After"]
        assert server.get("/v2/health/live").status == 200
        assert server.process.wait(10) == 0
        assert time.monotonic() - begun < 10
        until(lambda: load.not_accepted == 8)
    assert set(load.statuses()) == {200}, load.statuses()


def test_a_second_signal_ends_it_at_once(serve, models):
    nets.slow(models / "slow.onnx", 1500)
    server = serve(models, {"server": {"shutdown_grace": "20s"}})
    asking = threading.Thread(target=lambda: pytest.raises(Exception, v2.infer, server, "slow", ONE), daemon=True)
    asking.start()
    until(lambda: server.metric("plimsoll_bodies_bytes") > 0)
    server.process.send_signal(signal.SIGTERM)
    until(lambda: server.get("/v2/health/ready").status == 503)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(2) == 1


def test_a_client_that_hangs_up_frees_its_place_in_the_queue(serve, models):
    nets.slow(models / "slow.onnx", 300)
    lanes = {"lanes": {"steady": 1}, "memory": {"reserve": "0%"}}
    server = serve(models, {**lanes, "batching": {"queue_limit": 2}})
    body, headers = v2.encode(ONE)
    lines = [f"{name}: {value}" for name, value in headers.items()] + [f"Content-Length: {len(body)}"]
    queued = lambda: server.metric("plimsoll_queued_requests")
    with Raw(server) as runs, Raw(server) as stays:
        runs.head("/v2/models/slow/infer", *lines).send(body)
        until(lambda: server.metric("plimsoll_bodies_bytes") > 0 and queued() == 0)
        with Raw(server) as leaves:
            leaves.head("/v2/models/slow/infer", *lines).send(body)
            stays.head("/v2/models/slow/infer", *lines).send(body)
            until(lambda: queued() == 2)
            assert v2.try_infer(server, "slow", ONE).status == 429
        until(lambda: queued() == 1, 0.5)
        assert runs.answer().status == stays.answer().status == 200
    assert server.statistics("slow")["execution_count"] == 2, "what nobody waits for is not run"


def test_after_a_kill_at_any_moment_the_next_start_is_clean(models, tmp_path):
    nets.large(models / "large.onnx", 16)
    server = Server(tmp_path / "killed", models)
    for delay in (0, 0.02, 0.1, 0.3):
        time.sleep(delay)
        server.kill()
        server = Server(tmp_path / "killed", models)
    server.start()
    with Load(server, "double", ROW, threads=4) as load:
        load.wait_for(50)
        server.kill()
    with Server(tmp_path / "killed", models) as server:
        assert (v2.infer(server, "double", ROW)["y"] == 2).all()
        assert "ERROR" not in server.log() and "WARN" not in server.log(), server.log()
    assert sorted(file.name for file in models.iterdir()) == ["double.onnx", "large.onnx"], BIN
