"""The cache: a second start finds what the first has made, and nothing that happens to it makes an answer wrong."""

import os
import pathlib
import random
import shutil
import statistics
import time
import tomllib

import nets
import numpy as np
import pytest
import v2
from server import FETCHED, MODELS, Server, until

ROW = {"x": np.linspace(-1, 1, 1024, dtype=np.float32)[None]}
DTYPES = {"FP32": np.float32, "INT32": np.int32, "INT64": np.int64}
MIB = 1 << 20


def inputs(server, model):
    """Random inputs of the shapes that a model's settings prepare, else of those it declares."""
    source = np.random.default_rng(7)
    settings = FETCHED / model / "model.toml"
    prepared = (tomllib.loads(settings.read_text()).get("prepare") or [{}])[0] if settings.is_file() else {}
    values = {}
    for port in server.get(f"/v2/models/{model}").json()["inputs"]:
        shape = prepared.get(port["name"], [max(size, 1) for size in port["shape"]])
        values[port["name"]] = (source.random(shape) * 200).astype(DTYPES[port["datatype"]])
    return values


def answers(server, models):
    """What each model answers, as bytes."""
    found = {}
    for model in models:
        outputs = v2.infer(server, model, inputs(server, model))
        found[model] = {name: value.tobytes() for name, value in outputs.items()}
    return found


def imported(server):
    """The models whose file was imported, and those that were found in the cache."""
    loaded = [line for line in server.log().splitlines() if " loaded " in line]
    split = {True: set(), False: set()}
    for line in loaded:
        split["imported=true" in line].add(line.split('model="')[1].split('"')[0])
    return split[True], split[False]


@pytest.fixture
def cached(serve, tmp_path):
    """Starts a server on a cache that all starts of the test share; without a watch, which would load by itself."""
    fixed = {"cache": {"dir": str(tmp_path / "cache")}}
    return lambda folder, **config: serve(folder, {"models": {"watch": False}} | fixed | config)


def test_a_second_start_imports_nothing_and_answers_the_same(cached):
    models = sorted(path.name for path in FETCHED.iterdir())
    config = {"memory": {"ceiling": "1GiB"}}
    first = cached(FETCHED, **config)
    assert imported(first) == (set(models), set())
    expected = answers(first, models)
    first.stop()
    second = cached(FETCHED, **config)
    assert imported(second) == (set(), set(models))
    assert answers(second, models) == expected


def processor_seconds(server):
    """What a process has computed so far, by all its threads."""
    fields = pathlib.Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_with_a_warm_cache_the_fetched_models_are_ready_in_300_ms(tmp_path):
    took = []
    for at in range(16):
        config = {"cache": {"dir": str(tmp_path / "cache")}, "memory": {"ceiling": "512MiB"}}
        started = time.monotonic()
        server = Server(tmp_path / f"{at}", FETCHED, config)
        until(lambda: "listening address" in server.log(), 60, every=0.001)
        server.port = int(server.log().split("listening address=127.0.0.1:")[1].split()[0])
        until(lambda: server.get("/v2/health/ready").status == 200, 60, every=0.001)
        took.append((time.monotonic() - started, processor_seconds(server)))
        server.stop()
        # 300 ms are for a machine whose first start, which imports everything, takes 4.3 s; a slower one takes longer.
        most = max(0.3, took[0][0] / 14)
        # Other processes make a start longer and never shorter: one that is quick enough is the proof. Where they
        # leave no start alone, what the server itself computed is.
        if at > 0 and (took[-1][0] <= most or (at > 7 and took[-1][1] <= most)):
            break
    print("start to ready, and processor time, ms:", [(round(a * 1e3), round(b * 1e3)) for a, b in took])
    assert min(took[-1]) <= most, took


def test_a_cold_start_holds_little_above_the_slab_and_a_warm_one_less(cached, tmp_path):
    nets.large(tmp_path / "models/large.onnx", 128)
    peaks = []
    for _ in range(2):
        server = cached(tmp_path / "models", memory={"ceiling": "400MiB", "headroom": "64MiB"})
        v2.infer(server, "large", ROW)
        peaks.append(server.peak_bytes() - server.memory()["slab_bytes"])
        server.stop()
    print(f"peak above the slab: cold {peaks[0] / MIB:.1f} MiB, warm {peaks[1] / MIB:.1f} MiB")
    assert peaks[0] <= 1.3 * 128 * MIB and peaks[1] <= 64 * MIB


def test_a_file_with_other_weights_is_imported_though_length_and_time_are_the_same(cached, tmp_path):
    model = tmp_path / "models/m.onnx"
    nets.large(model, 4, seed=1)
    before = model.stat()
    server = cached(tmp_path / "models")
    one = v2.infer(server, "m", ROW)["y"]
    server.stop()
    nets.large(model, 4, seed=2)
    assert model.stat().st_size == before.st_size
    os.utime(model, ns=(before.st_atime_ns, before.st_mtime_ns))
    server = cached(tmp_path / "models")
    assert imported(server) == ({"m"}, set())
    assert not np.array_equal(v2.infer(server, "m", ROW)["y"], one)
    server.stop()
    # The first again, as a copy: other times, same contents as at the first start, whose place it lost.
    nets.large(model, 4, seed=1)
    server = cached(tmp_path / "models")
    assert np.array_equal(v2.infer(server, "m", ROW)["y"], one)
    server.stop()
    # The same contents under another time and inode.
    shutil.copy(model, tmp_path / "copy")
    os.replace(tmp_path / "copy", model)
    server = cached(tmp_path / "models")
    assert imported(server) == (set(), {"m"})
    assert np.array_equal(v2.infer(server, "m", ROW)["y"], one)


@pytest.mark.parametrize("length", [4, 8000])
def test_external_data_that_changed_is_imported(cached, tmp_path, length):
    """A few numbers, which are put into the graph, and many, which stay in their file."""
    model, values = tmp_path / "models/m/model.onnx", np.arange(length, dtype=np.float32)
    nets.external(model, "weights", values)
    data = model.parent / "weights"
    data.write_bytes(values.tobytes())
    x = {"x": np.ones(length, np.float32)}
    for at, (weights, imports) in enumerate([(values, True), (values, False), (values * 3, True)]):
        data.write_bytes(weights.tobytes())
        server = cached(model.parents[1])
        assert np.array_equal(v2.infer(server, "m", x)["y"], weights + 1), at
        assert imported(server)[not imports] == {"m"}, at
        server.stop()


@pytest.mark.parametrize("external", [False, True])
def test_a_new_shape_is_prepared_from_the_files_that_were_loaded(cached, tmp_path, external):
    """From the cache or not, a model that another has replaced goes on as what it was, and is kept as that."""
    folder, size = tmp_path / "models/m", 8000 if external else 4
    if external:
        nets.external(folder / "model.onnx", "weights", np.zeros(size, np.float32), batch=("rows",))

    def put(number):
        # Another file under the name, as a deployment does it. Answers to zeros and ones tell the number.
        if external:
            (tmp_path / "fresh").write_bytes(np.full(size, number, np.float32).tobytes())
            os.replace(tmp_path / "fresh", folder / "weights")
        else:
            nets.times(tmp_path / "fresh.onnx", number)
            folder.mkdir(parents=True, exist_ok=True)
            os.replace(tmp_path / "fresh.onnx", folder / "model.onnx")

    def asked(server, rows):
        x = np.full((rows, size), 0 if external else 1, np.float32)
        return set(v2.infer(server, "m", {"x": x})["y"].flat)

    put(1)
    cached(tmp_path / "models").stop()
    server = cached(tmp_path / "models")
    assert imported(server) == (set(), {"m"})
    put(3)
    for rows in [5, 1, 6]:
        assert asked(server, rows) == {1}, rows
    server.stop()
    # The cache holds nothing of the new under the name of the old.
    for number in [1, 3]:
        put(number)
        server = cached(tmp_path / "models")
        for rows in [5, 6, 1, 7]:
            assert asked(server, rows) == {number}, rows
        server.stop()


def test_other_settings_are_another_import(cached, tmp_path):
    folder = tmp_path / "models/digits"
    shutil.copytree(MODELS / "digits", folder)
    cached(folder.parent).stop()
    settings = (folder / "model.toml").read_text()
    (folder / "model.toml").write_text(settings + "\n[dims]\nbatch = 2\n")
    server = cached(folder.parent)
    assert server.get("/v2/models/digits").json()["inputs"][0]["shape"][0] == 2
    assert imported(server) == ({"digits"}, set())


def test_a_damaged_cache_costs_an_import_and_no_answer(cached, tmp_path):
    models = ["digits", "ppocr-cls", "magika"]
    for model in models:
        shutil.copytree((MODELS if model == "digits" else FETCHED) / model, tmp_path / "models" / model)
    server = cached(tmp_path / "models")
    expected = answers(server, models)
    server.stop()
    source = random.Random(11)
    for _ in range(4):
        files = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
        assert len(files) >= 3 * len(models), files
        for path in files:
            data = bytearray(path.read_bytes())
            data[source.randrange(len(data))] ^= 1 << source.randrange(8)
            path.write_bytes(data if source.random() < 0.7 else data[: source.randrange(len(data))])
        server = cached(tmp_path / "models")
        assert answers(server, models) == expected
        server.stop()
    server = cached(tmp_path / "models")
    assert imported(server) == (set(), set(models)), "what was damaged has been written anew"


def test_a_power_cut_at_any_moment_leaves_a_clean_start(cached, tmp_path):
    models = ["magika", "ppocr-det"]
    for model in models:
        shutil.copytree(FETCHED / model, tmp_path / "models" / model)
    config = {"cache": {"dir": str(tmp_path / "cache")}}
    started = time.monotonic()
    with Server(tmp_path / "whole", tmp_path / "models", config) as server:
        whole = time.monotonic() - started
        expected = answers(server, models)
    for at in range(12):
        # Each from nothing, cut at another moment of loading and writing.
        shutil.rmtree(tmp_path / "cache")
        server = Server(tmp_path / f"cut{at}", tmp_path / "models", config)
        time.sleep(whole * (at + 1) / 13)
        server.kill()
        server = cached(tmp_path / "models")
        assert answers(server, models) == expected
        server.stop()


def test_a_cache_that_cannot_be_written_is_said_and_does_no_harm(serve, tmp_path):
    (tmp_path / "file").write_text("where a folder should be")
    server = serve(MODELS, {"cache": {"dir": str(tmp_path / "file")}})
    assert v2.infer(server, "digits", {"image": np.zeros((1, 1, 8, 8), np.float32)})
    assert "nothing is kept in cache.dir" in server.log()


def test_models_that_leave_and_come_back_are_found_in_the_cache(cached, tmp_path):
    for at in range(4):
        nets.large(tmp_path / f"models/m{at}.onnx", 32, seed=at)
    server = cached(tmp_path / "models", models={"load": "on_demand", "watch": False}, memory={"ceiling": "224MiB"})
    first = {at: v2.infer(server, f"m{at}", ROW)["y"] for at in range(4)}
    times = []
    for at in [*range(4)] * 3:
        started = time.monotonic()
        assert np.array_equal(v2.infer(server, f"m{at}", ROW)["y"], first[at])
        times.append(time.monotonic() - started)
    assert server.log().count("evicted") > 4
    print(f"a model of 32 MiB comes back in {statistics.median(times) * 1e3:.0f} ms")
    assert server.log().count("imported=true") == 4
