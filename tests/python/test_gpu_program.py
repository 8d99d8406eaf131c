"""loadtest/gpu, which is meant for a machine with a GPU and run by hand there: here each part of it works on the CPU."""

import json
import subprocess
import sys

import nets
import pytest
from server import BIN, FETCHED, ROOT, clean_environment

PARTS = {
    "ceiling": ["--models", FETCHED, "--names", "ppocr-cls,magika", "--seconds", 6, "--clients", 4, "--room", 50],
    "memory": ["--requests", 2000, "--clients", 2, "--max-batch", 4],
    "http": ["--concurrency", "1,2", "--batches", "1,4", "--seconds", 0.5, "--rounds", 1, "--least", 0],
    "start": ["--rounds", 1, "--most", 30],
    "scenarios": ["--only", "11"],
}


@pytest.mark.parametrize("part", PARTS)
def test_it_runs_on_the_processor_and_finds_nothing_wrong(part, tmp_path):
    options = [*PARTS[part], "--device", "cpu", "--out", tmp_path / "figures.json"]
    if part in ("memory", "http", "start"):
        options += ["--model", nets.rows(tmp_path / "rows.onnx", 2)]
    command = [sys.executable, ROOT / "loadtest/gpu", part, *map(str, options)]
    # Where the user's folder is does not matter to it.
    environment = clean_environment({"PLIMSOLL_BIN": str(BIN)}) | {"PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-3000:]}"
    assert json.loads((tmp_path / "figures.json").read_text())["wrong"] == []


def test_without_a_driver_it_ends_and_says_what_is_missing(tmp_path):
    for library in ("libcuda.so.1", "libnvidia-ml.so.1"):
        (tmp_path / library).write_bytes(b"")
    command = [sys.executable, ROOT / "loadtest/gpu", "scenarios", "--models", str(FETCHED)]
    environment = clean_environment({"PLIMSOLL_BIN": str(BIN), "LD_LIBRARY_PATH": str(tmp_path)})
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "libcuda.so.1 cannot be loaded" in done.stdout, done.stdout + done.stderr
