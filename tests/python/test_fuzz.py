"""Bytes that mean nothing, and requests that are cut off, at every endpoint that takes a body."""

import contextlib
import json
import random
import shutil
import socket

import numpy as np
import pytest

import nets
import v2
from server import MODELS, Server
from wire import Raw

MIB = 1 << 20
ONE = (MODELS / "digits/one.json").read_bytes()
ENDPOINTS = {
    "/v2/models/digits/infer": ONE,
    "/v2/models/digits/versions/1/infer": ONE,
    "/v2/repository/index": b'{"ready": true}',
    "/v2/repository/models/spare/load": b'{"parameters": {}, "more": [1, 2, 3]}',
    "/v2/repository/models/spare/unload": b'{"parameters": {"unload_dependents": false}}',
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    models = tmp_path_factory.mktemp("fuzz-models")
    shutil.copytree(MODELS / "digits", models / "digits")
    nets.times(models / "spare.onnx", 2)
    with Server(tmp_path_factory.mktemp("fuzz"), models) as server:
        yield server


def random_bodies(path):
    source = random.Random(path)
    for at in range(64):
        body = source.randbytes(source.randrange(1, 4096))
        headers = {"Content-Type": source.choice(["application/json", "application/octet-stream", "text/plain"])}
        if at % 2:
            headers["Inference-Header-Content-Length"] = str(source.randrange(0, 2 * len(body)))
        if at % 4 == 3:
            headers["Content-Encoding"] = source.choice(["gzip", "deflate"])
        yield body, headers


def truncated_bodies(path):
    whole = ENDPOINTS[path]
    for at in range(32):
        yield whole[: at * len(whole) // 32], {}
    if path.endswith("infer"):
        whole, headers = v2.encode({"image": np.zeros((1, 1, 8, 8), np.float32)})
    for at in range(32):
        yield whole[: at * len(whole) // 32], headers if path.endswith("infer") else {}


def ask_all(server, path):
    """Sends every body, and returns how often each status came."""
    seen = {}
    for body, headers in [*random_bodies(path), *truncated_bodies(path)]:
        answer = server.post(path, body, headers)
        assert answer.status in (200, 400), (body[:80], headers, answer)
        if answer.status == 400:
            assert len(answer.error) < 500
        seen[answer.status] = seen.get(answer.status, 0) + 1
    return seen


@pytest.mark.parametrize("path", ENDPOINTS)
def test_random_and_truncated_bodies_are_refused_and_leave_no_trace(server, path):
    first = ask_all(server, path)
    assert sum(first.values()) == 128 and first[400] >= 90
    before = server.resident_bytes()
    assert ask_all(server, path) == first, "the same bodies get the same answers"
    grown = server.resident_bytes() - before
    assert grown <= 4 * MIB, f"{grown / MIB:.1f} MiB more than after the first round"
    assert server.post("/v2/models/digits/infer", ONE).status == 200
    assert "panicked" not in server.log()


@pytest.mark.parametrize("path", ENDPOINTS)
def test_clients_that_hang_up_within_a_body_leave_no_trace(server, path):
    whole = ENDPOINTS[path]
    for at in range(64):
        with Raw(server) as raw:
            raw.head(path, f"Content-Length: {len(whole) + 1}").send(whole[: at * len(whole) // 64])
            if at % 2:
                # Half of them still listen for an answer.
                raw.socket.shutdown(socket.SHUT_WR)
                with contextlib.suppress(OSError):
                    raw.end()
    assert server.get("/v2/health/ready").status == 200
    answer = server.post("/v2/models/digits/infer", ONE)
    assert json.loads(answer.body)["model_name"] == "digits"
    assert server.metric("plimsoll_bodies_bytes") == 0
