"""Where the server says no so that it stays well: bodies, workspace, queues, deadlines and the ceiling."""

import concurrent.futures
import contextlib
import gzip
import re
import socket
import time
import zlib

import numpy as np
import pytest

import nets
import v2
from server import until
from wire import Raw

ONE = {"x": np.array([1], np.float32)}
ROW = {"x": np.ones((1, 4), np.float32)}
DOUBLE = "/v2/models/double/infer"
KIB, MIB = 1 << 10, 1 << 20


@pytest.fixture
def models(tmp_path):
    nets.times(tmp_path / "models/double.onnx", 2)
    return tmp_path / "models"


@pytest.fixture
def narrow(serve, models):
    """A server that takes bodies of 256 KiB, and twice as much of all bodies together."""
    return serve(models, {"server": {"max_body": "256KiB", "body_budget": "512KiB"}})


def retry_after(answer):
    seconds = int(answer.headers["Retry-After"])
    assert seconds >= 1
    return seconds


@pytest.mark.parametrize("path", [DOUBLE, "/v2/repository/index", "/v2/repository/models/double/load"])
def test_a_body_over_the_limit_is_413_before_it_is_read(narrow, path):
    for length in (256 * KIB + 1, 10**12):
        with Raw(narrow) as raw:
            answer = raw.head(path, f"Content-Length: {length}").answer()
            assert answer.status == 413 and "256" in answer.error and "max_body" in answer.error, answer
            assert raw.end() == b"", "nothing more can be said on a connection whose body was not read"


def test_a_client_that_waits_for_leave_to_send_is_told_413_instead(narrow):
    with Raw(narrow) as raw:
        answer = raw.head(DOUBLE, f"Content-Length: {300 * KIB}", "Expect: 100-continue").answer()
        assert answer.status == 413


def test_a_chunked_body_is_cut_at_the_limit(narrow):
    with Raw(narrow) as raw:
        raw.head(DOUBLE, "Transfer-Encoding: chunked")
        for _ in range(4):
            raw.chunk(bytes(64 * KIB))
        assert raw.chunk(b"1").answer().status == 413


def test_a_small_body_that_unpacks_to_a_large_one_is_413(narrow):
    before = narrow.resident_bytes()
    for encoding, body in (("gzip", gzip.compress(bytes(64 * MIB))), ("deflate", zlib.compress(bytes(64 * MIB)))):
        assert len(body) < 256 * KIB
        assert narrow.post(DOUBLE, body, {"Content-Encoding": encoding}).status == 413
    assert narrow.resident_bytes() - before < 32 * MIB


def test_a_body_at_the_limit_is_taken(narrow):
    body, headers = v2.encode(ROW)
    room = 256 * KIB - len(body)
    body = b" " * room + body
    headers = {"Inference-Header-Content-Length": str(int(headers["Inference-Header-Content-Length"]) + room)}
    assert narrow.post(DOUBLE, body, headers).status == 200
    assert narrow.post(DOUBLE, b" " + body, headers).status == 413


def test_bodies_over_their_budget_together_are_429_until_one_is_gone(narrow):
    with Raw(narrow) as one, Raw(narrow) as other:
        # Announced bytes take nothing: the budget counts what has come.
        for raw in (one, other):
            raw.head(DOUBLE, f"Content-Length: {200 * KIB + 1}").send(bytes(200 * KIB))
        until(lambda: narrow.metric("plimsoll_bodies_bytes") >= 400 * KIB)
        body, headers = v2.encode({"x": np.ones((5000, 4), np.float32)})
        answer = narrow.post(DOUBLE, body, headers)
        assert answer.status == 429 and "body_budget" in answer.error, answer
        retry_after(answer)
        assert v2.try_infer(narrow, "double", ROW).status == 200, "a small one still has room"
    until(lambda: narrow.metric("plimsoll_bodies_bytes") == 0)
    assert narrow.post(DOUBLE, body, headers).status == 200


def test_bytes_that_are_only_announced_keep_nobody_out(narrow):
    with Raw(narrow) as raw:
        raw.head(DOUBLE, f"Content-Length: {200 * KIB}").send(bytes(KIB))
        body, headers = v2.encode({"x": np.ones((5000, 4), np.float32)})
        assert narrow.post(DOUBLE, body, headers).status == 200


def test_a_shape_that_needs_more_workspace_than_a_lane_has_is_422_with_the_figures(serve, models):
    server = serve(models, {"lanes": {"workspace": "16KiB"}, "memory": {"reserve": "0%"}})
    assert v2.try_infer(server, "double", ROW).status == 200
    before = server.memory()["held_bytes"]
    answer = v2.try_infer(server, "double", {"x": np.ones((4096, 4), np.float32)})
    assert answer.status == 422 and "[4096, 4]" in answer.error and "workspace" in answer.error, answer
    needed, lane = re.findall(r"need ([\d.]+) KiB of workspace, the largest lane has ([\d.]+) KiB; send", answer.error)[0]
    assert float(needed) > float(lane) == 16
    assert server.memory()["held_bytes"] == before


def test_a_load_that_prepares_more_than_a_lane_has_says_what_the_operator_can_do(serve, models):
    (models / "double").mkdir()
    (models / "double.onnx").rename(models / "double/model.onnx")
    (models / "double/model.toml").write_text("prepare = [{ x = [4096, 4] }]\n")
    server = serve(models, {"lanes": {"workspace": "16KiB"}, "memory": {"reserve": "0%"}, "models": {"load": []}})
    answer = server.load("double")
    assert answer.status == 422 and "send" not in answer.error, answer
    told = r"made ready for shapes x=\[4096, 4\], which need [\d.]+ KiB of workspace, the largest lane has 16.0 KiB; raise"
    assert re.search(told, answer.error) and "`prepare` of its model.toml" in answer.error, answer


def test_a_model_that_is_not_loaded_is_503_with_retry_after(serve, models):
    server = serve(models, {"models": {"load": []}})
    for answer in (
        v2.try_infer(server, "double", ROW),
        server.get("/v2/models/double"),
        server.get("/v2/models/double/ready"),
        server.get("/v2/models/double/versions/1/config"),
    ):
        assert answer.status == 503 and "`double`" in answer.error and "not loaded" in answer.error, answer
        retry_after(answer)


def test_a_model_that_does_not_fit_under_the_ceiling_is_507_with_the_figures_and_a_remedy(serve, models):
    nets.large(models / "large.onnx", 128)
    memory = {"ceiling": "160MiB", "headroom": "16MiB"}
    server = serve(models, {"memory": memory, "models": {"load": ["double"]}})
    before = server.memory()
    for _ in range(3):
        answer = server.load("large")
        assert answer.status == 507, answer
        figures = r"`large:1` needs \d+ MiB, \d+ MiB free under the ceiling of 160 MiB"
        assert re.search(figures, answer.error), answer.error
        assert "ceiling" in answer.error.rsplit(";", 1)[1]
        after = server.memory()
        assert after["extents"] == before["extents"] and after["free_bytes"] == before["free_bytes"]
    reasons = {line["name"]: line["reason"] for line in server.post("/v2/repository/index").json()}
    assert "needs" in reasons["large"]
    assert (v2.infer(server, "double", ROW)["y"] == 2).all()
    assert server.resident_bytes() < 160 * MIB


@pytest.fixture
def busy(serve, models):
    """One lane and no reserve, one place in the queue, and a model that takes more than a second."""
    nets.slow(models / "slow.onnx", 500)
    lanes = {"lanes": {"steady": 1}, "memory": {"reserve": "0%"}}
    return serve(models, {**lanes, "batching": {"queue_limit": 1}})


@pytest.fixture
def background():
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        yield pool


def ask(server, parameters=None):
    begun = time.monotonic()
    answer = v2.try_infer(server, "slow", ONE, parameters)
    return answer, time.monotonic() - begun


def running(server):
    """Whether a request holds its body, and none waits for the lane."""
    return server.metric("plimsoll_bodies_bytes") > 0 and server.metric("plimsoll_queued_requests") == 0


def test_a_full_queue_is_429_at_once_with_retry_after(busy, background):
    first = background.submit(ask, busy)
    until(lambda: running(busy))
    second = background.submit(ask, busy)
    until(lambda: busy.metric("plimsoll_queued_requests") == 1)
    for _ in range(5):
        answer, took = ask(busy)
        assert answer.status == 429 and "queue" in answer.error and "1 request" in answer.error, answer
        retry_after(answer)
        assert took < 0.5
    assert v2.try_infer(busy, "double", ROW).status == 200, "another model's queue is its own"
    assert first.result()[0].status == second.result()[0].status == 200
    assert busy.statistics("slow")["execution_count"] == 2


def test_a_deadline_that_cannot_be_met_is_429_at_once(busy, background):
    assert ask(busy)[0].status == 200  # from now on it is known how long a run takes
    first = background.submit(ask, busy)
    until(lambda: running(busy))
    answer, took = ask(busy, {"timeout": 50_000})
    assert answer.status == 429 and "deadline" in answer.error, answer
    retry_after(answer)
    assert took < 0.5
    assert first.result()[0].status == 200


def test_a_deadline_that_passes_in_the_queue_is_504_and_the_work_is_not_run(busy, background):
    first = background.submit(ask, busy)
    until(lambda: running(busy))
    answer, took = ask(busy, {"timeout": 100_000})
    assert answer.status == 504 and "not run" in answer.error, answer
    assert 0.1 <= took < 0.6
    assert busy.metric("plimsoll_queued_requests") == 0, "its place is free again"
    assert first.result()[0].status == 200
    stats = busy.statistics("slow")
    assert (stats["execution_count"], stats["inference_stats"]["fail"]["count"]) == (1, 1)


def test_a_deadline_that_passes_during_the_run_is_504_when_it_passes(busy):
    answer, took = ask(busy, {"timeout": 100_000})
    assert answer.status == 504 and "ran" in answer.error, answer
    assert 0.1 <= took < 0.6


@pytest.mark.parametrize("where", ["the server's", "the model's"])
def test_a_configured_time_limit_is_a_deadline_too(serve, models, where):
    nets.slow(models / "slow/model.onnx", 500)
    if where == "the model's":
        (models / "slow/model.toml").write_text('timeout = "100ms"\n')
    server = serve(models, {"server": {"request_timeout": "30s" if where == "the model's" else "100ms"}})
    answer, took = ask(server)
    assert answer.status == 504 and 0.1 <= took < 0.6, (answer, took)
    answer, took = ask(server, {"timeout": 60_000_000})
    assert answer.status == 504 and took < 0.6, "a request may ask for less time, never for more"


def test_answers_that_nobody_reads_are_in_the_budget_and_others_are_refused(serve, tmp_path):
    models = tmp_path / "models"
    side = 1400  # 7.5 MiB an answer, and as much again while it is written
    nets.outer(models / "outer.onnx", side)
    server = serve(models, {"server": {"max_body": "1MiB", "body_budget": "20MiB"}, "lanes": {"workspace": "16MiB"}})
    x = {"x": np.ones((side, 1), np.float32)}
    budget = lambda: server.metric("plimsoll_bodies_bytes")
    body, headers = v2.encode(x)
    with contextlib.ExitStack() as stack:
        lazy = stack.enter_context(socket.socket())
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.connect(("127.0.0.1", server.port))
        lines = [f"{name}: {value}" for name, value in {**headers, "content-length": len(body)}.items()]
        lazy.sendall("\r\n".join(["POST /v2/models/outer/infer HTTP/1.1", "host: it", *lines, "", ""]).encode() + body)
        until(lambda: 7 * MIB < budget() < 9 * MIB)
        refused = v2.try_infer(server, "outer", x)
        assert refused.status == 429 and "body_budget" in refused.error and refused.headers["retry-after"], refused
    until(lambda: v2.try_infer(server, "outer", x).status == 200)
    until(lambda: budget() == 0)


def test_an_answer_that_the_budget_can_never_hold_is_422_with_the_figures(serve, tmp_path):
    nets.outer(tmp_path / "models/outer.onnx", 600)
    server = serve(tmp_path / "models", {"server": {"max_body": "512KiB", "body_budget": "1MiB"}, "lanes": {"workspace": "16MiB"}})
    refused = v2.try_infer(server, "outer", {"x": np.ones((600, 1), np.float32)})
    assert refused.status == 422 and "the answer takes 2.7 MiB" in refused.error and "1.0 MiB" in refused.error, refused
    assert server.post("/v2/models/outer/infer", b"{}").status == 400


def test_tensors_unpacked_from_json_are_in_the_budget(serve, tmp_path):
    nets.times(tmp_path / "models/double.onnx", 2)
    server = serve(tmp_path / "models", {"server": {"max_body": "1MiB", "body_budget": "2MiB"}})
    body = lambda numbers: b'{"inputs":[{"name":"x","datatype":"FP32","shape":[%d,4],"data":[%s]}]}' % (
        numbers // 4, b",".join([b"0"] * numbers))  # fmt: skip
    # 1 MB of text and 2 MB of numbers do not fit; 200 KB and 400 KB do, but not with 1.9 MB of an answer.
    refused = server.post(DOUBLE, body(500_000))
    assert refused.status == 413 and "tensors unpacked" in refused.error and "2.0 MiB" in refused.error, refused
    refused = server.post(DOUBLE, body(100_000))
    assert refused.status == 422 and "the answer takes" in refused.error, refused
    assert server.post(DOUBLE, body(20_000)).status == 200
    until(lambda: server.metric("plimsoll_bodies_bytes") == 0)
