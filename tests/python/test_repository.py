"""The folder of models: what is served of it, in which version, and how changes are followed."""

import shutil

import numpy as np
import pytest

import nets
import v2
from load import Load
from server import MODELS, until

ROW = {"x": np.ones((1, 4), np.float32)}
WATCH = {"models": {"watch": "100ms"}}


@pytest.fixture
def models(tmp_path):
    nets.times(tmp_path / "models/double.onnx", 2)
    return tmp_path / "models"


def factor(server, model, version=""):
    """What the model multiplies by, or the status of its refusal."""
    body, headers = v2.encode(ROW)
    path = f"/v2/models/{model}" + (f"/versions/{version}" if version else "")
    answer = server.post(f"{path}/infer", body, headers)
    return v2.decode(answer)["y"][0, 0] if answer.status == 200 else answer.status


def index(server):
    lines = server.post("/v2/repository/index").json()
    return {(line["name"], line["version"]): (line["state"], line["reason"]) for line in lines}


def test_a_bare_file_and_a_folder_are_served_without_any_configuration(serve, models):
    nets.times(models / "triple/model.onnx", 3)
    server = serve(models)
    assert factor(server, "double") == 2 and factor(server, "triple") == 3
    assert server.get("/v2/models/triple").json()["versions"] == ["1"]


def test_the_newest_version_is_the_default_and_every_one_can_be_asked_for(serve, models):
    for version in (1, 2, 10):
        nets.times(models / f"many/{version}/model.onnx", version)
    server = serve(models)
    assert factor(server, "many") == 10
    assert [factor(server, "many", version) for version in (1, 2, 10)] == [1, 2, 10]
    assert factor(server, "many", 3) == 404
    assert sorted(server.get("/v2/models/many").json()["versions"], key=int) == ["1", "2", "10"]
    counted = server.get("/v2/models/many/stats").json()["model_stats"]
    assert {line["version"]: line["inference_count"] for line in counted} == {"1": 1, "2": 1, "10": 2}


def test_a_new_model_is_served_soon_after_it_was_dropped_in(serve, models):
    server = serve(models, WATCH)
    assert factor(server, "triple") == 404
    nets.times(models / "triple/model.onnx", 3)
    until(lambda: factor(server, "triple") == 3)


def test_a_removed_model_is_404(serve, models):
    nets.times(models / "triple/model.onnx", 3)
    server = serve(models, WATCH)
    assert factor(server, "triple") == 3
    shutil.rmtree(models / "triple")
    until(lambda: factor(server, "triple") == 404)
    assert factor(server, "double") == 2
    assert all(extent["owner"] != "triple:1" for extent in server.memory()["extents"])


def test_a_model_that_came_and_went_between_two_looks_of_the_watch_is_404(serve, models):
    server = serve(models, {"models": {"watch": "1s"}})
    nets.times(models / "brief.onnx", 3)
    assert server.load("brief").status == 200 and factor(server, "brief") == 3
    (models / "brief.onnx").unlink()
    until(lambda: factor(server, "brief") == 404, 5)


def test_a_changed_model_is_swapped_without_a_failed_request(serve, models):
    server = serve(models, WATCH)
    with Load(server, "double", ROW, threads=4) as load:
        for new in (5, 6, 7):
            load.wait_for(50)
            nets.times(models / "double.onnx", new)
            until(lambda: factor(server, "double") == new)  # noqa: B023
        load.wait_for(50)
    assert set(load.statuses()) == {200}, load.statuses()
    seen = {float(v2.decode(answer)["y"][0, 0]) for answer in load.answers}
    assert seen == {2, 5, 6, 7}


@pytest.mark.parametrize("location", ["m/weights.bin", "m/inner/w", "m.onnx.data"])
@pytest.mark.parametrize("watched", [True, False])
def test_changed_external_data_is_a_changed_model(serve, tmp_path, location, watched):
    models = tmp_path / "models"
    data = models / location
    data.parent.mkdir(parents=True, exist_ok=True)
    model = models / ("m/model.onnx" if location.startswith("m/") else "m.onnx")
    data.write_bytes(np.full(4, 1, np.float32).tobytes())
    nets.external(model, data.relative_to(model.parent), np.zeros(4))
    zeros = {"x": np.zeros(4, np.float32)}
    server = serve(models, WATCH if watched else {"models": {"watch": False}})
    with Load(server, "m", zeros) as load:
        part = data.with_name(".part")
        part.write_bytes(np.full(4, 2, np.float32).tobytes())
        part.replace(data)
        if not watched:
            assert server.load("m").status == 200
        until(lambda: v2.infer(server, "m", zeros)["y"][0] == 2)
    assert set(load.statuses()) == {200}


def test_changed_settings_are_taken_up_without_a_failed_request(serve, models):
    nets.times(models / "named/model.onnx", 3)
    server = serve(models, WATCH)
    labels = lambda: "labels.y" in server.get("/v2/models/named/config").json()["parameters"]
    assert not labels()
    with Load(server, "named", ROW, threads=4) as load:
        (models / "named/model.toml").write_text('labels = { y = ["a", "b", "c", "d"] }\n')
        until(labels)
        load.wait_for(20)
    assert set(load.statuses()) == {200}, load.statuses()


@pytest.mark.parametrize("broken", ["the model", "the settings"])
def test_a_change_that_cannot_be_loaded_leaves_the_model_as_it_was_and_says_so(serve, models, broken):
    nets.times(models / "triple/model.onnx", 3)
    server = serve(models, WATCH)
    file = models / "triple" / ("model.onnx" if broken == "the model" else "model.toml")
    file.write_text("max_btach = 3\n")
    told = until(lambda: index(server).get(("triple", "1"), ("", ""))[1])
    assert index(server)["triple", "1"][0] == "READY" and told, index(server)
    assert factor(server, "triple") == 3
    assert "WARN" in server.log()
    answer = server.load("triple")
    assert answer.status == 400 and answer.error
    if broken == "the settings":
        assert "`max_btach`" in answer.error and "`max_batch`" in answer.error and ":1:1" in answer.error
    assert factor(server, "triple") == 3


def test_a_file_that_is_still_being_written_is_not_loaded_half(serve, models):
    server = serve(models, WATCH)
    nets.times(models / "triple.onnx", 3)
    whole = (models / "triple.onnx").read_bytes()
    (models / "triple.onnx").unlink()
    with open(models / "later.onnx", "wb") as file:
        for at in range(0, len(whole), 1 + len(whole) // 5):
            file.write(whole[at : at + 1 + len(whole) // 5])
            file.flush()
            assert server.get("/v2/models/later").status in (404, 503)
    until(lambda: factor(server, "later") == 3)
    assert "cannot be loaded" not in server.log()


def test_on_demand_a_model_is_loaded_by_its_first_request(serve, models):
    server = serve(models, {"models": {"load": "on_demand"}})
    assert index(server)["double", "1"][0] == "UNAVAILABLE"
    assert not server.memory()["extents"]
    with Load(server, "double", ROW) as load:
        load.wait_for(50)
    assert set(load.statuses()) == {200}, load.statuses()
    assert index(server)["double", "1"][0] == "READY"
    assert server.log().count("loaded") == 1, "eight first requests, one load"


def test_on_demand_a_broken_model_is_503_with_the_reason(serve, models):
    (models / "broken.onnx").write_bytes(b"no model")
    server = serve(models, {"models": {"load": "on_demand"}})
    answer = v2.try_infer(server, "broken", ROW)
    assert answer.status == 503 and "ONNX" in answer.error and answer.headers["Retry-After"], answer


def test_a_list_loads_those_models_and_no_other(serve, models):
    shutil.copytree(MODELS / "digits", models / "digits")
    server = serve(models, {"models": {"load": ["digits", "absent"]}})
    states = {name: state for (name, _), (state, _) in index(server).items()}
    assert states == {"digits": "READY", "double": "UNAVAILABLE"}
    assert factor(server, "double") == 503
    assert server.load("double").status == 200 and factor(server, "double") == 2
    assert "absent" in server.log()


def test_what_cannot_be_served_is_listed_with_the_reason_and_keeps_nothing_else_from_serving(serve, models):
    nets.times(models / "both/model.onnx", 3)
    nets.times(models / "both/1/model.onnx", 3)
    (models / "empty").mkdir()
    (models / "broken.onnx").write_bytes(b"no model")
    nets.times(models / "un named.onnx", 3)
    nets.times(models / "unset/model.onnx", 3)
    (models / "unset/model.toml").write_text("max_btach = 3\n")
    (models / "README.md").write_text("not a model")
    (models / ".hidden.onnx").write_text("not a model")
    server = serve(models)
    lines = {name: line for (name, _), line in index(server).items()}
    assert lines.keys() == {"both", "broken", "double", "empty", "un named", "unset"}
    assert lines.pop("double") == ("READY", "")
    assert all(state == "UNAVAILABLE" and reason for state, reason in lines.values()), lines
    assert factor(server, "double") == 2
    assert "max_btach" in lines["unset"][1], lines["unset"]


def test_two_models_of_one_name_are_refused_and_both_places_are_named(serve, models):
    nets.times(models / "double/model.onnx", 3)
    server = serve(models)
    state, reason = index(server)["double", ""]
    assert state == "UNAVAILABLE" and "double.onnx" in reason and "double/" in reason
    answer = server.load("double")
    assert answer.status == 400 and "double.onnx" in answer.error
