"""The commands that need no server: what they print, what they refuse, and how they end."""

import json
import re
import shutil

import numpy as np
import pytest

import nets
import reference
import v2
from server import MODELS, Server, run

DIGIT = np.array(json.loads((MODELS / "digits/one.json").read_text())["inputs"][0]["data"], np.float32)
DIGIT = DIGIT.reshape(1, 1, 8, 8)


@pytest.fixture
def here(tmp_path):
    """An empty folder to run in, with a repository `models` in it that holds `double`."""
    nets.times(tmp_path / "models/double.onnx", 2)
    return tmp_path


def ended(done, code):
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert "panicked" not in done.stderr
    return done


def test_check_prints_what_fits_and_what_is_left(here):
    done = ended(run("check", "--ceiling", "1GiB", cwd=here), 0)
    rows = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert "ready" in rows["double:1"]
    assert "1.0 GiB" in rows["ceiling"]
    assert {"ceiling", "process", "headroom", "slab", "weights", "lanes", "reserve", "free"} <= rows.keys()


def test_check_tells_what_models_on_demand_would_take(here):
    for at in range(2):
        nets.large(here / f"models/large-{at}.onnx", 24)
    on_demand = {"PLIMSOLL_MODELS__LOAD": "on_demand"}
    done = ended(run("check", "--ceiling", "256MiB", cwd=here, env=on_demand), 0)
    shown = [line.split()[0:5] for line in done.stdout.splitlines()]
    assert ["large-0:1", "on", "demand", "24", "MiB"] in shown and ["large-1:1", "on", "demand", "24", "MiB"] in shown
    assert re.search(r"^    weights +0 bytes$", done.stdout, re.M), "none of them stays"
    assert re.search(r"^all models at once would take 48 MiB of the \d+ MiB for weights$", done.stdout, re.M), done.stdout
    nets.large(here / "models/huge.onnx", 160)
    done = ended(run("check", "--ceiling", "256MiB", cwd=here, env=on_demand), 1)
    assert re.search(r"^huge:1 +unavailable +0 bytes  `huge:1` needs 160 MiB", done.stdout, re.M), done.stdout
    listed = {"PLIMSOLL_MODELS__LOAD": '["large-0"]'}
    document = json.loads(ended(run("check", "--json", "--ceiling", "256MiB", cwd=here, env=listed), 0).stdout)
    states = {model["name"]: (model["state"], model["bytes"] >> 20) for model in document["models"]}
    assert states["large-0"] == ("ready", 24) and states["large-1"] == ("not listed", 24), "a model that is not wanted"
    assert states["huge"] == ("unavailable", 0) and document["weights_at_once_bytes"] >> 20 == 48, "is no failure"


def test_the_slab_is_announced_before_it_is_taken(here):
    check = ("check", "--ceiling", "256MiB", "--device", "cpu")
    log = ended(run(*check, cwd=here, env={"PLIMSOLL_LOG__LEVEL": "info"}), 0).stderr
    assert re.match(r"\S+ +INFO taking the slab.*slab=\d+ MiB\n", log), log


def test_check_logs_what_is_to_be_looked_at_unless_it_is_told_to_say_more(here):
    check = ("check", "--device", "cpu")
    assert ended(run(*check, cwd=here), 0).stderr == ""
    assert "loaded model=" in ended(run(*check, cwd=here, env={"PLIMSOLL_LOG__LEVEL": "info"}), 0).stderr
    (here / "models/broken.onnx").write_bytes(b"no model")
    assert "WARN" in ended(run(*check, cwd=here), 1).stderr


def test_check_adds_up_as_json_and_prints_nothing_else(here):
    document = json.loads(ended(run("check", "--ceiling", "1GiB", "--json", cwd=here), 0).stdout)
    lines = ("driver_bytes", "process_bytes", "bodies_bytes", "headroom_bytes", "slab_bytes")
    # The slab is a whole number of cache lines.
    assert 0 <= document["ceiling_bytes"] - sum(document[line] for line in lines) < 64
    regions = sum(document[region]["bytes"] for region in ("weights", "lanes", "reserve"))
    assert regions + document["tail_bytes"] == document["slab_bytes"]
    assert document["ceiling_bytes"] == 1 << 30
    (model,) = document["models"]
    assert (model["name"], model["version"], model["state"]) == ("double", "1", "ready")
    assert model["bytes"] == document["held_bytes"] > 0


def test_check_fails_when_a_wanted_model_cannot_be_served(here):
    (here / "models/broken.onnx").write_bytes(b"no model")
    done = ended(run("check", "--json", cwd=here), 1)
    states = {model["name"]: model for model in json.loads(done.stdout)["models"]}
    assert states["double"]["state"] == "ready" and states["broken"]["state"] == "unavailable"
    assert states["broken"]["reason"]
    (here / "models/broken.onnx").unlink()
    (here / "plimsoll.toml").write_text('[models]\nload = ["double", "missing"]\n')
    done = ended(run("check", cwd=here), 1)
    assert "missing" in done.stdout


def test_check_fails_when_a_model_does_not_fit(here):
    nets.large(here / "models/large.onnx", 64)
    done = ended(run("check", "--ceiling", "160MiB", cwd=here), 1)
    assert "needs" in done.stdout and "free under the ceiling" in done.stdout


WRONG = {
    "a key in the file": ("[memory]\ncieling = '1GiB'\n", {}, ["plimsoll.toml:2:1", "`cieling`", "mean `ceiling`?"]),
    "a section in the file": ("\n[memry]\nceiling = '1GiB'\n", {}, ["plimsoll.toml:2:", "`memry`", "`memory`"]),
    "a value in the file": ("[memory]\n\nceiling = 'much'\n", {}, ["plimsoll.toml:3:", "`ceiling`", '"much"', "2GiB"]),
    "no TOML at all": ("[memory\n", {}, ["plimsoll.toml:1:"]),
    "a variable": ("", {"PLIMSOLL_MEMORY__CIELING": "1GiB"}, ["PLIMSOLL_MEMORY__CIELING", "PLIMSOLL_MEMORY__CEILING"]),
    "a variable's value": ("", {"PLIMSOLL_LANES__STEADY": "none"}, ["PLIMSOLL_LANES__STEADY", "whole number"]),
    "two values that contradict": ("[memory]\nceiling = '1GiB'\nheadroom = '2GiB'\n", {}, ["ceiling", "headroom"]),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_configuration_exits_2_and_names_the_place_and_the_remedy(here, what):
    text, env, parts = WRONG[what]
    (here / "plimsoll.toml").write_text(text)
    for command in (["check"], ["serve", "--listen", "127.0.0.1:0"]):
        done = ended(run(*command, cwd=here, env=env), 2)
        assert all(part in done.stderr for part in parts), done.stderr
        assert not done.stdout


def test_flags_win_over_the_environment_and_that_over_the_file(here):
    (here / "plimsoll.toml").write_text("[memory]\nceiling = '300MiB'\n")
    check = lambda *flags, **env: json.loads(run("check", "--json", *flags, cwd=here, env=env).stdout)
    ceiling = lambda *flags, **env: check(*flags, **env)["ceiling_bytes"]
    assert ceiling() == 300 << 20
    assert ceiling(PLIMSOLL_MEMORY__CEILING="400MiB") == 400 << 20
    assert ceiling("--ceiling", "500MiB", PLIMSOLL_MEMORY__CEILING="400MiB") == 500 << 20


USAGE = {
    "no command": [],
    "an unknown command": ["sreve"],
    "an unknown flag": ["check", "--celing", "1GiB"],
    "a size that is none": ["check", "--ceiling", "much"],
    "an address without a port": ["serve", "--listen", "127.0.0.1"],
    "a configuration file that is not there": ["check", "--config", "absent.toml"],
    "a model that is not there": ["infer", "triple"],
    "an input that the model does not have": ["infer", "double", "--input", "z=x.npy"],
    "an input without a file": ["infer", "double", "--input", "x"],
    "a shape that is none": ["bench", "double", "--shape", "x=1x0"],
    "a shape that the model does not take": ["bench", "double", "--shape", "x=1x5"],
    "an unknown precision": ["bench", "double", "--precision", "fp7"],
}


@pytest.mark.parametrize("what", USAGE)
def test_wrong_usage_exits_2_with_a_sentence_on_stderr(here, what):
    done = ended(run(*USAGE[what], cwd=here), 2)
    assert done.stderr.strip() and not done.stdout


def test_infer_reads_and_writes_arrays_and_equals_onnxruntime(here):
    np.save(here / "seven.npy", DIGIT)
    command = ["infer", "digits", "--models", MODELS, "--input", "image=seven.npy", "--output-dir", "out"]
    ended(run(*command, cwd=here), 0)
    got = np.load(here / "out/probabilities.npy")
    wanted = reference.run(reference.session(MODELS / "digits/model.onnx"), {"image": DIGIT})["probabilities"]
    reference.assert_close(got, wanted)
    assert got.argmax() == 7


def test_infer_takes_a_file_and_answers_as_the_server_does(here):
    np.save(here / "x.npy", np.array([[1, 2, 3, 4], [5, 6, 7, 8]], np.float32))
    done = ended(run("infer", "models/double.onnx", "--input", "x=x.npy", "--json", cwd=here), 0)
    (output,) = json.loads(done.stdout)["outputs"]
    assert (output["name"], output["datatype"], output["shape"]) == ("y", "FP32", [2, 4])
    assert output["data"] == [2, 4, 6, 8, 10, 12, 14, 16]


def test_infer_of_a_wrong_array_says_what_was_expected(here):
    np.save(here / "x.npy", np.zeros((2, 5), np.float32))
    done = ended(run("infer", "double", "--input", "x=x.npy", cwd=here), 2)
    assert "[2, 5]" in done.stderr and "4" in done.stderr
    np.save(here / "x.npy", np.zeros((2, 4), np.int32))
    done = run("infer", "double", "--input", "x=x.npy", cwd=here)
    assert done.returncode in (1, 2) and "FP32" in done.stderr and "panicked" not in done.stderr
    (here / "x.npy").write_bytes(b"\x93NUMPY\x01\x00")
    done = run("infer", "double", "--input", "x=x.npy", cwd=here)
    assert done.returncode == 1 and "x.npy" in done.stderr and "panicked" not in done.stderr


def test_bench_prints_one_document_with_every_field(here):
    command = ["bench", "digits", "--models", MODELS, "--batch", 4, "--lanes", 2, "--seconds", 0.3, "--json"]
    document = json.loads(ended(run(*command, cwd=here), 0).stdout)
    latency = document["latency_ms"]
    assert 0 < latency["p50"] <= latency["p90"] <= latency["p99"] and latency["mean"] > 0
    assert document["runs_per_second"] > 10 and document["device"] == "cpu" and document["precision"] == "fp32"
    assert document["memory"]["device_bytes"] >= 0 and document["memory"]["resident_bytes"] > 1 << 20


def test_bench_of_nothing_serves_zeros_of_the_right_shape(tmp_path):
    images = np.ones((3, 1, 8, 8), np.float32)
    with Server(tmp_path, MODELS, command=("bench", "digits", "--null")) as server:
        given = v2.infer(server, "digits", {"image": images})
        assert {name: array.shape for name, array in given.items()} == {"probabilities": (3, 10)}
        assert not any(array.any() for array in given.values())
        assert server.statistics("digits")["inference_count"] >= 3


def test_bench_of_nothing_wants_a_model_of_the_repository(here):
    done = ended(run("bench", "double.onnx", "--null", cwd=here), 2)
    assert "double.onnx" in done.stderr and "repository" in done.stderr


def test_bench_of_an_open_shape_asks_for_it(here):
    nets.times(here / "models/open.onnx", 2, shape=("batch", "width"))
    done = ended(run("bench", "open", "--seconds", 0.1, cwd=here), 2)
    assert "--shape" in done.stderr and "`x`" in done.stderr
    done = ended(run("bench", "open", "--shape", "x=2x3", "--seconds", 0.1, cwd=here), 0)
    assert "p50" in done.stdout


VALUES = [1.0, 2.0, 3.0, 4.0]


def test_external_data_is_read_from_the_models_own_folder(here):
    nets.external(here / "models/plus/model.onnx", "w.bin", VALUES)
    (here / "models/plus/w.bin").write_bytes(np.array(VALUES, np.float32).tobytes())
    np.save(here / "x.npy", np.ones(4, np.float32))
    done = ended(run("infer", "plus", "--input", "x=x.npy", "--json", cwd=here), 0)
    assert json.loads(done.stdout)["outputs"][0]["data"] == [2, 3, 4, 5]


@pytest.mark.parametrize("way", ["up and out", "absolute", "a link", "a linked folder"])
def test_external_data_from_elsewhere_is_refused(here, way):
    (here / "elsewhere").mkdir()
    secret = here / "elsewhere/secret.bin"
    secret.write_bytes(np.array(VALUES, np.float32).tobytes())
    folder = here / "models/plus"
    folder.mkdir()
    location = {"up and out": "../../elsewhere/secret.bin", "absolute": str(secret)}.get(way, "link")
    if way == "a link":
        (folder / "link").symlink_to(secret)
    if way == "a linked folder":
        (folder / "link").symlink_to(secret.parent)
        location = "link/secret.bin"
    nets.external(folder / "model.onnx", location, VALUES)
    for command in (["infer", "plus"], ["infer", "models/plus/model.onnx"], ["check"]):
        done = ended(run(*command, cwd=here), 1)
        told = done.stderr + done.stdout
        assert "external" in told or "folder" in told, told


def test_a_model_file_that_is_a_link_out_of_the_repository_is_refused(here):
    shutil.move(here / "models/double.onnx", here / "double.onnx")
    (here / "models/double.onnx").symlink_to(here / "double.onnx")
    done = ended(run("infer", "double", cwd=here), 1)
    assert "outside" in done.stderr
