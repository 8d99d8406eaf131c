"""The ceiling under long and mixed loads, and what a load may not do to the memory of the process."""

import json
import pathlib
import re
import subprocess
import sys
import time

import nets
import numpy as np
import pytest
import v2
from load import Load, hammer
from server import FETCHED, MODELS, ROOT
from watch import MIB, Watch

PIXELS = json.loads((MODELS / "digits/one.json").read_text())["inputs"][0]["data"]
SEVEN = {"image": np.array(PIXELS, np.float32).reshape(1, 1, 8, 8)}


def test_ten_models_under_a_ceiling_for_four_stay_under_it_for_two_minutes():
    run = [sys.executable, ROOT / "loadtest/ceiling", "--minutes", "2"]
    done = subprocess.run(run, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-3000:]}"


def test_resident_memory_after_100000_requests_is_what_it_was_after_1000(serve):
    server = serve(MODELS, {"memory": {"ceiling": "256MiB"}})
    hammer(server, "digits", SEVEN, 1_000)
    early = server.resident_bytes()
    hammer(server, "digits", SEVEN, 99_000)
    assert server.resident_bytes() - early <= 1 * MIB, f"{(server.resident_bytes() - early) / MIB:.2f} MiB more"


def test_a_detector_serves_eight_clients_under_a_ceiling_of_100_mib(serve):
    ceiling = {"ceiling": "100MiB", "headroom": "16MiB", "reserve": "0%"}
    narrow = {"memory": ceiling, "server": {"body_budget": "20MiB", "max_body": "4MiB"}, "lanes": {"workspace": "6MiB"}}
    server = serve(FETCHED, {**narrow, "models": {"load": ["nudenet"]}})
    images = {"images": np.random.default_rng(1).random((1, 3, 320, 320), np.float32)}
    with Watch(server) as watch, Load(server, "nudenet", images) as load:
        time.sleep(6)
    assert set(load.statuses()) == {200} and len(load.answers) > 20
    assert watch.samples > 50 and not watch.wrong, watch.wrong[:3]
    assert server.memory()["ceiling_breaches"] == 0


def slabs(server):
    """Address and size of every mapping that was made as a slab is: the only ones that ask for huge pages."""
    text = pathlib.Path(f"/proc/{server.process.pid}/smaps").read_text()
    entry = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) .*?^VmFlags:(.*?)$", re.M | re.S)
    return [(int(m[1], 16), int(m[2], 16) - int(m[1], 16)) for m in entry.finditer(text) if "hg" in m[3].split()]


def test_the_slab_is_one_mapping_that_no_load_replaces_or_grows(serve, tmp_path):
    models = tmp_path / "models"
    nets.times(models / "double.onnx", 2)
    nets.large(models / "large.onnx", 16)
    server = serve(models, {"lanes": {"workspace": "16KiB"}, "models": {"load": ["double"], "watch": False}})
    before, slab = slabs(server), server.memory()["slab_bytes"]
    assert len(before) == 1 and 0 <= before[0][1] - slab < 4096, (before, slab)
    with Load(server, "double", {"x": np.ones((1, 4), np.float32)}) as load:
        for rows in range(1, 60):
            # Other shapes, on the reserve at times, and weights that come and go.
            v2.infer(server, "double", {"x": np.ones((64 * rows, 4), np.float32)})
            assert server.load("large").status == server.unload("large").status == 200
            assert slabs(server) == before
    assert set(load.statuses()) == {200}
    assert server.memory()["reserve"]["peak_bytes"] > 0


@pytest.mark.parametrize("op", ["ConstantOfShape", "Expand", "Tile", "Range", "Add"])
def test_a_value_made_of_nothing_is_refused_before_it_is_made(serve, tmp_path, op):
    models = tmp_path / "models"
    nets.made_of_nothing(models / "small.onnx", op, 2)
    nets.made_of_nothing(models / "huge.onnx", op, 800)
    assert (models / "huge.onnx").stat().st_size < 2048
    server = serve(models, {"memory": {"ceiling": "256MiB"}, "models": {"load": "on_demand", "watch": False}})
    refused = server.load("huge")
    assert refused.status == 507 and "MiB" in refused.error, refused
    assert server.peak_bytes() < 256 * MIB, f"{server.peak_bytes() / MIB:.0f} MiB"
    assert not [extent for extent in server.memory()["extents"] if "huge" in extent["owner"]]
    # The same with less is served.
    x = np.zeros(1, np.float32)
    expected = np.ones(1, np.float32) * {"ConstantOfShape": 0, "Range": 2 * 2**17 - 1, "Add": 2}.get(op, 1)
    assert v2.infer(server, "small", {"x": x})["y"] == expected
