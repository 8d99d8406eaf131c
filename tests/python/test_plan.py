"""`plan` and `selftest`: the footprint of a model before it is served, and planned programs against tract's own."""

import json
import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

import nets
import reference
from server import FETCHED, MODELS, run

FETCHED_NAMES = sorted(path.name for path in FETCHED.iterdir()) if FETCHED.is_dir() else []


@pytest.fixture
def here(tmp_path):
    """An empty folder to run in, with a repository `models` in it."""
    nets.times(tmp_path / "models/double.onnx", 2)
    nets.times(tmp_path / "models/open.onnx", 2, shape=("batch", "width"))
    return tmp_path


def ended(done, code):
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert "panicked" not in done.stderr
    return done


def plan(*arguments, cwd):
    return json.loads(ended(run("plan", *arguments, "--json", cwd=cwd), 0).stdout)


def test_plan_prints_one_document_with_every_field(here):
    document = plan("digits", "--models", MODELS, cwd=here)
    assert document["model"] == "digits" and document["planned"] is True and document["reason"] is None
    assert document["shapes"] == {"image": [1, 1, 8, 8]}
    assert 0 < document["live_peak_bytes"] <= document["workspace_bytes"] and document["weights_bytes"] > 0
    assert document["host_steps"] == []
    steps = document["steps"]
    assert max(step["live_bytes"] for step in steps) == document["live_peak_bytes"]
    peak = document["peak_step"]
    assert steps[peak["index"]]["name"] == peak["name"]
    assert steps[peak["index"]]["live_bytes"] == document["live_peak_bytes"]
    assert {"name", "op", "outputs", "host", "read_bytes", "written_bytes", "scratch_bytes"} <= steps[0].keys()
    # The input is read once, 64 floats of it, and the output is ten probabilities.
    assert steps[0]["read_bytes"] == 64 * 4
    assert steps[-1]["outputs"] == ["FP32[1,10]"] and steps[-1]["written_bytes"] == 40


def test_plan_grows_with_the_batch_and_its_weights_do_not(here):
    one = plan("digits", "--models", MODELS, cwd=here)
    eight = plan("digits", "--models", MODELS, "--batch", 8, cwd=here)
    assert eight["shapes"] == {"image": [8, 1, 8, 8]}
    assert eight["workspace_bytes"] > 4 * one["workspace_bytes"]
    assert eight["weights_bytes"] == one["weights_bytes"]
    given = plan("digits", "--models", MODELS, "--shape", "image=8x1x8x8", cwd=here)
    assert given == eight


def test_plan_for_people_names_the_totals_and_every_step(here):
    document = plan("digits", "--models", MODELS, cwd=here)
    text = ended(run("plan", "digits", "--models", MODELS, cwd=here), 0).stdout
    for name in ("weights", "workspace", "live peak", "host steps", "image=1x1x8x8"):
        assert name in text
    assert f"({document['workspace_bytes']} bytes)" in text
    assert all(step["op"] in text for step in document["steps"])
    assert any(line.startswith("*") for line in text.splitlines())


def test_plan_draws_its_workspace_as_valid_xml(here):
    ended(run("plan", "digits", "--models", MODELS, "--svg", "digits.svg", cwd=here), 0)
    root = ElementTree.parse(here / "digits.svg").getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "digits" in root.find("{http://www.w3.org/2000/svg}title").text


def test_plan_dumps_the_graph(here):
    text = ended(run("plan", "double", "--dump", cwd=here), 0).stdout.splitlines()
    assert text[0] == "input %0 FP32[1,4]" and text[-1].startswith("output %")


WRONG = {
    "a model that is not there": (["triple"], 2, ["`triple`", "double"]),
    "a file that is not there": (["./triple.onnx"], 1, ["triple.onnx"]),
    "an input that the model does not have": (["double", "--shape", "z=1x4"], 2, ["`z`", "takes x"]),
    "a shape that the model does not take": (["double", "--shape", "x=1x5"], 2, ["[batch, 4]", "[1, 5]"]),
    "a size that is open": (["open"], 2, ["`x`", "[batch, width]", "--shape x="]),
    "a precision that is not computed in": (["double", "--precision", "fp16"], 2, ["fp32"]),
}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("command", ["plan", "bench"])
def test_what_cannot_be_planned_ends_with_a_sentence(here, what, command):
    arguments, code, parts = WRONG[what]
    done = ended(run(command, *arguments, cwd=here), code)
    assert all(part in done.stderr for part in parts), done.stderr
    assert not done.stdout and len(done.stderr.strip().splitlines()) == 1


def test_a_prepared_shape_settles_open_sizes(here):
    (here / "models/wide").mkdir()
    (here / "models/open.onnx").rename(here / "models/wide/model.onnx")
    (here / "models/wide/model.toml").write_text("prepare = [{ x = [2, 3] }, { x = [5, 7] }]\n")
    assert plan("wide", cwd=here)["shapes"] == {"x": [2, 3]}
    assert plan("wide", "--batch", 4, cwd=here)["shapes"] == {"x": [4, 3]}
    assert plan("wide", "--shape", "x=1x9", cwd=here)["shapes"] == {"x": [1, 9]}


@pytest.mark.parametrize("model", FETCHED_NAMES)
def test_the_workspace_of_a_real_model_is_at_most_a_twentieth_above_its_live_peak(here, model):
    document = plan(model, "--models", FETCHED, "--svg", "plan.svg", cwd=here)
    assert document["planned"], document["reason"]
    assert document["live_peak_bytes"] <= document["workspace_bytes"] <= 1.05 * document["live_peak_bytes"]
    assert max(step["live_bytes"] for step in document["steps"]) == document["live_peak_bytes"]
    ElementTree.parse(here / "plan.svg")


def selftest(*arguments, cwd, code=0):
    done = run("selftest", *arguments, "--json", cwd=cwd, timeout=600)
    assert done.stdout and "panicked" not in done.stderr, done.stderr
    document = json.loads(done.stdout)
    rows = {row["model"]: (row["verdict"], row["reason"]) for row in document["models"]}
    assert done.returncode == code, {name: row for name, row in rows.items() if row[0] != "equal"}
    return document


def test_selftest_passes_on_the_models_that_ship(here):
    document = selftest("--models", MODELS, "--threads", 2, cwd=here)
    (row,) = document["models"]
    assert (row["model"], row["verdict"], row["planned"]) == ("digits", "equal", True)
    assert 0 <= row["worst"] <= 1 and row["planned_ms"] > 0 and row["reference_ms"] > 0
    assert document["equal"] == 1 and document["threads"] == 2 and not row["uniform_weights"]


@pytest.mark.parametrize("threads", [1, 2])
def test_selftest_passes_on_every_fetched_model(here, threads):
    assert FETCHED_NAMES, f"{FETCHED} is missing: run models/fetch --light, or set PLIMSOLL_FETCHED"
    document = selftest("--models", FETCHED, "--threads", threads, cwd=here)
    rows = {row["model"]: row for row in document["models"]}
    assert sorted(rows) == FETCHED_NAMES
    assert {row["verdict"] for row in rows.values()} == {"equal"}
    # Of a net whose weights are one number it is told that this says little.
    assert rows["squeezenet"]["uniform_weights"] and not rows["nudenet"]["uniform_weights"]


LIGHT = ["resnet50", "squeezenet", "shufflenet", "densenet121", "inception-v1", "inception-v2"]


def test_selftest_passes_on_nets_with_random_weights(here):
    for seed, name in enumerate(LIGHT):
        reference.randomized(FETCHED / name / "model.onnx", here / f"light/{name}/model.onnx", seed)
    rows = {row["model"]: row for row in selftest("--models", "light", cwd=here)["models"]}
    assert {row["verdict"] for row in rows.values()} == {"equal"}
    assert sorted(rows) == sorted(LIGHT) and not any(row["uniform_weights"] for row in rows.values())


def test_selftest_for_people_is_a_line_a_model(here):
    lines = ended(run("selftest", "double", "digits", "--models", MODELS, cwd=here), 2)
    assert "`double`" in lines.stderr
    lines = ended(run("selftest", "digits", "--models", MODELS, cwd=here), 0).stdout.splitlines()
    assert lines[0].split()[:3] == ["model", "verdict", "worst"]
    assert lines[1].split()[:2] == ["digits", "equal"]


def test_selftest_of_a_repository_tells_what_it_did_not_try_and_fails_for_what_cannot_run(here):
    rows = {row["model"]: row for row in selftest(cwd=here)["models"]}
    assert rows["double"]["verdict"] == "equal"
    assert rows["open"]["verdict"] == "untried" and "--shape" in rows["open"]["reason"]
    (here / "models/broken.onnx").write_bytes(b"no model")
    rows = {row["model"]: row for row in selftest(cwd=here, code=1)["models"]}
    assert rows["broken"]["verdict"] == "no reference" and rows["broken"]["reason"]
    assert "settle it" in ended(run("selftest", "open", cwd=here), 2).stderr


def test_selftest_takes_arrays(here):
    np.save(here / "x.npy", np.ones((3, 5), np.float32))
    (row,) = selftest("open", "--input", "x=x.npy", cwd=here)["models"]
    assert row["verdict"] == "equal"
    assert "single model" in ended(run("selftest", "--input", "x=x.npy", cwd=here), 2).stderr


def test_bench_of_the_reference_and_of_threads(here):
    command = ["bench", "digits", "--models", MODELS, "--seconds", 0.1, "--threads", 2, "--json"]
    planned = json.loads(ended(run(*command, cwd=here), 0).stdout)
    whole = json.loads(ended(run(*command, "--reference", cwd=here), 0).stdout)
    assert planned["planned"] and not planned["reference"] and planned["host_steps"] == 0
    assert whole["reference"] and not whole["planned"]
    assert planned["threads"] == whole["threads"] == 2


def test_explain_tells_what_was_fused_and_why_something_was_not(here):
    lines = ended(run("plan", "digits", "--models", MODELS, "--explain", cwd=here), 0).stdout.splitlines()
    assert any(line.startswith("epilogues") and " fused " in line for line in lines), lines
    assert all(re.match(r"\S+ +(fused  |declined) ", line) for line in lines), lines
