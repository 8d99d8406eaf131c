"""What must not be had from outside: files of the machine."""

import os
import threading
import time

import numpy as np
import pytest

import nets
import v2
from server import run
from test_cli import ended

ROW = {"x": np.ones((1, 4), np.float32)}


@pytest.fixture
def models(tmp_path):
    nets.times(tmp_path / "models/double.onnx", 2)
    return tmp_path / "models"


# Files that are no model's.

VALUES, SECRET = np.ones(4, np.float32), np.full(4, 7, np.float32)


@pytest.mark.parametrize("file", ["plus/w.bin", "plus/model.onnx", "plus/model.toml", "plus.onnx"])
def test_a_pipe_among_a_models_files_is_refused_and_waited_for_by_nobody(serve, models, tmp_path, file):
    nets.external(models / "plus/model.onnx", "w.bin", VALUES)
    (models / "plus/w.bin").write_bytes(VALUES.tobytes())
    if file == "plus.onnx":
        (models / "plus").rename(tmp_path / "plus")
    (models / file).unlink(missing_ok=True)
    os.mkfifo(models / file)
    server = serve(models)
    answer = server.post("/v2/repository/models/plus/load", timeout=10)
    assert answer.status == 400 and file.split("/")[-1] in answer.error, answer
    assert v2.try_infer(server, "double", ROW).status == 200


def test_an_attribute_in_another_file_is_read_from_the_models_own_folder_alone(models, tmp_path):
    (tmp_path / "secret.bin").write_bytes(SECRET[:1].tobytes())
    np.save(tmp_path / "x.npy", np.zeros(4, np.float32))
    infer = ["infer", "fill", "--input", "x=x.npy", "--json"]
    nets.external_fill(models / "fill/model.onnx", "w.bin")
    (models / "fill/w.bin").write_bytes(np.float32(3).tobytes())
    assert '"data":[3.0,3.0,3.0,3.0]' in ended(run(*infer, cwd=tmp_path), 0).stdout.replace(" ", "")
    (models / "fill/w.bin").unlink()
    (models / "fill/w.bin").symlink_to(tmp_path / "secret.bin")
    ended(run(*infer, cwd=tmp_path), 1)
    nets.external_fill(models / "fill/model.onnx", "../../secret.bin")
    assert "folder" in ended(run(*infer, cwd=tmp_path), 1).stderr


@pytest.mark.parametrize("what", ["data", "model", "folder"])
def test_a_link_that_takes_a_files_place_during_a_load_is_never_followed_out(serve, models, tmp_path, what):
    mine, outside = models / "plus", tmp_path / "outside"
    for folder, values in ((mine, VALUES), (outside, SECRET)):
        nets.external(folder / "model.onnx", "w.bin", values)
        (folder / "w.bin").write_bytes(values.tobytes())
    name = {"data": "plus/w.bin", "model": "plus/model.onnx", "folder": "plus"}[what]
    file, target = models / name, outside / name.removeprefix("plus").removeprefix("/")
    server = serve(models, {"models": {"load": ["double"], "watch": False}})
    aside, over = tmp_path / "aside", threading.Event()

    def swap():
        while not over.is_set():
            file.rename(aside)
            file.symlink_to(target)
            time.sleep(0.001)
            file.unlink()
            aside.rename(file)
            time.sleep(0.001)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        loaded = 0
        for _ in range(150):
            if server.load("plus").status == 200:
                loaded += 1
                answer = v2.try_infer(server, "plus", {"x": np.zeros(4, np.float32)})
                if answer.status == 200:
                    np.testing.assert_array_equal(v2.decode(answer)["y"], VALUES)
                server.unload("plus")
    finally:
        over.set()
        swapping.join()
    # Whatever lies there at that moment: a load of the file itself is a good one.
    assert server.load("plus").status == 200 and loaded < 150, loaded
