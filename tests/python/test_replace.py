"""A version gives way to another: what is new is loaded and warm before what is old leaves, where memory allows that."""

import contextlib

import nets
import numpy as np
import pytest
import v2
from load import Load

MIB = 1 << 20
# One of these fits under the ceiling, two do not.
SIZE = 40
ROW = {"x": np.ones((1, 1024), np.float32)}


def narrow(**models):
    memory = {"ceiling": "192MiB", "headroom": "48MiB"}
    server = {"body_budget": "4MiB", "max_body": "1MiB"}
    return {"memory": memory, "server": server, "models": {"watch": False, **models}}


def first(answer):
    """The first number of an answer, which tells the versions apart."""
    return float(v2.decode(answer)["y"][0, 0])


def expected(seed):
    weights = np.random.default_rng(seed).standard_normal((1024, SIZE * MIB // 4 // 1024), np.float32)
    return float((ROW["x"] @ weights)[0, 0])


def held(server, owner):
    return sum(extent["bytes"] for extent in server.memory()["extents"] if extent["owner"] == owner)


def line(server, model):
    lines = server.post("/v2/repository/index").json()
    return next(line for line in lines if line["name"] == model)


@contextlib.contextmanager
def traffic(server, model, inputs):
    """Three clients, each with its own connection and its own list of answers, in the order in which it got them."""
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Load(server, model, inputs, threads=1)) for _ in range(3)]
        for client in clients:
            client.wait_for(5)
        yield clients
        for client in clients:
            client.wait_for(5)


def switched(client, old, new):
    """Whether all that a client got is old first and new from some moment on."""
    seen = [first(answer) for answer in client.answers if answer.status == 200]
    which = [int(np.isclose(value, new, rtol=1e-3)) for value in seen]
    assert all(which[at] or np.isclose(value, old, rtol=1e-3) for at, value in enumerate(seen)), (old, new, set(seen))
    return which[0] == 0 and which[-1] == 1 and which == sorted(which)


@pytest.mark.parametrize("replace", ["keep", "unload_first"])
def test_where_both_fit_no_request_is_lost_and_the_answers_change_once(serve, tmp_path, replace):
    model = tmp_path / "models/m/1/model.onnx"
    nets.large(model, SIZE, seed=1)
    server = serve(tmp_path / "models", {"models": {"watch": False, "replace": replace}})
    with traffic(server, "m", ROW) as clients:
        nets.large(model, SIZE, seed=2)
        assert server.load("m").status == 200
    for client in clients:
        assert set(client.statuses()) == {200} and switched(client, expected(1), expected(2))
    assert SIZE * MIB <= held(server, "m:1") < (SIZE + 1) * MIB, "the old one has left"


def test_a_version_whose_folder_gave_way_to_the_next_serves_until_that_is_ready(serve, tmp_path):
    nets.large(tmp_path / "models/m/1/model.onnx", SIZE, seed=1)
    server = serve(tmp_path / "models", {"models": {"watch": "100ms"}})
    with traffic(server, "m", ROW) as clients:
        nets.large(tmp_path / "next/model.onnx", SIZE, seed=2)
        (tmp_path / "models/m/1").rename(tmp_path / "gone")
        (tmp_path / "next").rename(tmp_path / "models/m/2")
        for client in clients:
            while not switched(client, expected(1), expected(2)):
                client.wait_for(1)
    assert all(set(client.statuses()) == {200} for client in clients), [client.statuses() for client in clients]
    assert all(switched(client, expected(1), expected(2)) for client in clients)
    assert server.get("/v2/models/m").json()["versions"] == ["2"]
    assert held(server, "m:1") == 0


def test_a_version_whose_folder_is_gone_goes_on_where_the_next_cannot_be_loaded(serve, tmp_path):
    nets.large(tmp_path / "models/m/1/model.onnx", SIZE, seed=1)
    server = serve(tmp_path / "models", {"models": {"watch": False}})
    (tmp_path / "models/m/1").rename(tmp_path / "models/m/2")
    (tmp_path / "models/m/2/model.onnx").write_bytes(b"no model")
    assert server.load("m").status == 400
    lines = {line["version"]: line for line in server.post("/v2/repository/index").json()}
    assert lines["1"]["state"] == "READY" and "gone" in lines["1"]["reason"], lines
    assert lines["2"]["state"] == "UNAVAILABLE" and lines["2"]["reason"], lines
    assert first(v2.try_infer(server, "m", ROW)) == pytest.approx(expected(1), rel=1e-3)
    assert server.unload("m").status == 200
    assert held(server, "m:1") == 0 and v2.try_infer(server, "m", ROW).status == 503


def test_where_both_do_not_fit_the_load_is_507_and_the_old_one_serves_on(serve, tmp_path):
    model = tmp_path / "models/m.onnx"
    nets.large(model, SIZE, seed=1)
    server = serve(tmp_path / "models", narrow())
    with traffic(server, "m", ROW) as clients:
        nets.large(model, SIZE, seed=2)
        answer = server.load("m")
        assert answer.status == 507 and "needs 40 MiB" in answer.error, answer
    for client in clients:
        assert set(client.statuses()) == {200}
        assert {round(first(answer), 2) for answer in client.answers} == {round(expected(1), 2)}
    assert line(server, "m")["state"] == "READY" and "could not be loaded" in line(server, "m")["reason"]


def test_where_both_do_not_fit_the_old_one_can_be_unloaded_first(serve, tmp_path):
    model = tmp_path / "models/m.onnx"
    nets.large(model, SIZE, seed=1)
    server = serve(tmp_path / "models", narrow(replace="unload_first"))
    free = server.memory()["free_bytes"]
    for old, new in [(1, 2), (2, 3)]:
        with traffic(server, "m", ROW) as clients:
            nets.large(model, SIZE, seed=new)
            assert server.load("m").status == 200
        for client in clients:
            assert set(client.statuses()) <= {200, 503} and switched(client, expected(old), expected(new))
            refused = [answer for answer in client.answers if answer.status == 503]
            assert all(answer.headers["Retry-After"] and "loading" in answer.error for answer in refused)
    assert server.memory()["free_bytes"] == free and SIZE * MIB <= held(server, "m:1") < (SIZE + 1) * MIB
    assert line(server, "m")["state"] == "READY" and not line(server, "m")["reason"]
    assert "models.replace" in server.log()


def test_nothing_is_unloaded_in_vain(serve, tmp_path):
    model = tmp_path / "models/m.onnx"
    nets.large(model, SIZE, seed=1)
    server = serve(tmp_path / "models", narrow(replace="unload_first"))
    with traffic(server, "m", ROW) as clients:
        # More than the ceiling has for all models together.
        nets.large(model, 5 * SIZE, seed=2)
        assert server.load("m").status == 507
        model.write_bytes(b"no model")
        assert server.load("m").status == 400
    assert all(set(client.statuses()) == {200} for client in clients)


# Its weights fit where the old ones have left; the workspace of its second shape fits in no lane.
PREPARE = "prepare = [{ x = [1, 1024] }, { x = [1024, 1024] }]\n"


def test_where_the_new_one_fails_after_all_the_old_one_is_loaded_again(serve, tmp_path):
    folder = tmp_path / "models/m"
    nets.large(folder / "model.onnx", SIZE, seed=1, batch="batch")
    server = serve(tmp_path / "models", narrow(replace="unload_first"))
    (folder / "model.toml").write_text(PREPARE)
    answer = server.load("m")
    assert answer.status == 422 and "has been loaded again" in answer.error, answer
    assert first(v2.try_infer(server, "m", ROW)) == pytest.approx(expected(1), rel=1e-3)
    assert line(server, "m")["state"] == "READY" and "loaded again" in line(server, "m")["reason"]
    assert SIZE * MIB <= held(server, "m:1") < (SIZE + 1) * MIB


def test_an_old_one_whose_file_was_overwritten_cannot_come_back_and_that_is_said(serve, tmp_path):
    folder = tmp_path / "models/m"
    nets.large(folder / "model.onnx", SIZE, seed=1, batch="batch")
    server = serve(tmp_path / "models", narrow(replace="unload_first"))
    nets.large(folder / "model.onnx", SIZE, seed=2, batch="batch")
    (folder / "model.toml").write_text(PREPARE)
    answer = server.load("m")
    assert answer.status == 422 and "overwritten" in answer.error, answer
    assert line(server, "m")["state"] == "UNAVAILABLE" and "overwritten" in line(server, "m")["reason"]
    refused = v2.try_infer(server, "m", ROW)
    assert refused.status == 503 and refused.headers["Retry-After"]
    assert "overwritten" in server.log() and held(server, "m:1") == 0
    (folder / "model.toml").unlink()
    assert server.load("m").status == 200
    assert first(v2.try_infer(server, "m", ROW)) == pytest.approx(expected(2), rel=1e-3)
