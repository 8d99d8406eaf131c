"""A GPU's driver that refuses something, played by a double of it (tests/fakecuda): no GPU is needed.

The double runs copies and no kernel, so the models here are made of host steps and of nothing at all.
"""

import concurrent.futures
import re
import shutil
import subprocess

import nets
import numpy as np
import pytest
import v2
from onnx import TensorProto
from server import ROOT, run

MIB = 1 << 20
REFUSED = "plimsoll_pinned_allocations_refused_total"


def compiled(folder, *options):
    """The doubles of NVIDIA's libraries, under the names by which they are looked for."""
    subprocess.run([ROOT / "tests/fakecuda/build", folder, *options], check=True)
    return {"LD_LIBRARY_PATH": str(folder)}


@pytest.fixture(scope="module")
def fake(tmp_path_factory):
    """The environment in which the doubles are found before, and instead of, what is installed."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler (cc), which makes the double of a GPU's driver")
    return compiled(tmp_path_factory.mktemp("fake"))


@pytest.fixture
def models(tmp_path):
    nets.identity(tmp_path / "models/same.onnx", TensorProto.FLOAT)
    nets.triangle(tmp_path / "models/triangle.onnx")
    return tmp_path / "models"


def config(**more):
    sections = {
        "device": {"kind": "cuda"},
        "memory": {"ceiling": "1GiB", "reserve": "64MiB", "headroom": "64MiB"},
        "lanes": {"steady": 2, "workspace": "64MiB"},
        "server": {"max_body": "64MiB", "body_budget": "256MiB"},
        "models": {"watch": False},
    }
    return sections | more


def numbers(shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def ask(server):
    """Questions of all sizes, each often enough to be recorded and replayed, and with new numbers each time."""
    for seed in range(3):
        for count in (1, 1000, 3 * MIB // 8, 3 * MIB):
            x = numbers(count, seed)
            assert (v2.infer(server, "same", {"x": x})["y"] == x).all(), f"{x.nbytes} bytes"
        for size in (1, 3, 500, 1500):
            x = numbers((size, size), seed)
            assert (v2.infer(server, "triangle", {"x": x})["y"] == np.diag(np.diag(x))).all(), f"{x.nbytes} bytes"


def test_where_memory_is_pinned_nothing_is_counted(serve, models, fake):
    server = serve(models, config(), env=fake)
    ask(server)
    assert server.memory()["pinned_refusals"] == 0 and server.metric(REFUSED) == 0
    metrics = server.get("/metrics").body.decode()
    assert f"\n{REFUSED} 0\n" in metrics, "0 is said, not left away"
    assert re.search(r'plimsoll_build_info\{.*device="cuda"', metrics), metrics
    assert "WARN" not in server.log(), server.log()


# The first two pieces are for weights, then each lane has one: two steady and one for bursts.
@pytest.mark.parametrize(("refused", "pieces"), [("all", 5), ("1", 1), ("3", 1)])
@pytest.mark.parametrize("pageable", ["now", "late"])
def test_where_memory_is_not_pinned_answers_are_the_same_and_it_is_said(serve, models, fake, refused, pieces, pageable):
    env = fake | {"FAKE_CUDA_REFUSE_PINNED": refused, "FAKE_CUDA_PAGEABLE": pageable}
    server = serve(models, config(), env=env)
    ask(server)
    memory = server.memory()
    assert memory["pinned_refusals"] == pieces == server.metric(REFUSED), memory
    assert (memory["device_allocations"], memory["device_allocations_after_ready"]) == (1, 0), "the slab"
    warned = re.findall(r"WARN.*does not pin.*refused=(\S+) MiB pieces=(\d+)", server.log())
    assert warned == [({1: "4.0", 5: "20"}[pieces], str(pieces))], server.log()


@pytest.mark.parametrize("refused", ["none", "all"])
def test_rows_that_share_a_run_are_brought_and_fetched_each_in_its_place(serve, models, fake, refused):
    env = fake | {"FAKE_CUDA_REFUSE_PINNED": refused} if refused == "all" else fake
    server = serve(models, config(lanes={"steady": 1, "workspace": "64MiB"}, batching={"max_batch": 64}), env=env)
    asked = [numbers(1 + at * 7 % 40, at) for at in range(64)]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        for _ in range(4):
            for x, answer in zip(asked, pool.map(lambda x: v2.infer(server, "same", {"x": x})["y"], asked), strict=True):
                np.testing.assert_array_equal(answer, x)
    # Rows that nobody brought fill up 3 to 4, 5 to 8 and so on.
    stats = server.statistics("same")
    assert stats["inference_count"] == 4 * sum(map(len, asked)) and stats["execution_count"] <= 4 * len(asked)


def test_on_the_processor_nothing_is_pinned(digits):
    assert "pinned_refusals" not in digits.memory()
    assert f"\n{REFUSED} " not in digits.get("/metrics").body.decode()


def refusal(models, tmp_path, env, *options):
    done = run("serve", "--device", "cuda", "--models", models, "--listen", "127.0.0.1:0", *options, cwd=tmp_path, env=env)
    assert done.returncode == 1 and "panicked" not in done.stderr, done.stderr
    return done.stderr


def test_a_gpu_that_does_not_give_the_slab_is_refused_with_the_figures(models, fake, tmp_path):
    env = fake | {"FAKE_CUDA_REFUSE_MEMORY": "1"}
    told = refusal(models, tmp_path, env, "--ceiling", "1GiB")
    assert re.search(r"slab of \S+ MiB: out of memory .*8\.0 GiB of the GPU's 8\.0 GiB are free", told), told
    told = refusal(models, tmp_path, fake, "--ceiling", "9GiB")
    assert re.search(r"slab of \S+ GiB is more than the 8\.0 GiB .*available.*memory\.ceiling", told), told


def test_a_lane_without_pinned_memory_has_a_kibibyte_less_for_programs(serve, models, fake):
    small = config(lanes={"steady": 1, "workspace": "64KiB"}, memory={"ceiling": "1GiB", "reserve": "0B"})
    whole, less = numbers(64 * 1024 // 4), numbers(63 * 1024 // 4)
    pinned = serve(models, small, env=fake)
    assert (v2.infer(pinned, "same", {"x": whole})["y"] == whole).all()
    pageable = serve(models, small, env=fake | {"FAKE_CUDA_REFUSE_PINNED": "all"})
    refused = v2.try_infer(pageable, "same", {"x": whole})
    assert refused.status == 422 and "64.0 KiB" in refused.error and "63.0 KiB" in refused.error, refused
    assert (v2.infer(pageable, "same", {"x": less})["y"] == less).all()


def test_a_lane_too_small_for_what_is_in_no_pinned_memory_is_refused(models, fake, tmp_path):
    env = fake | {"FAKE_CUDA_REFUSE_PINNED": "all", "PLIMSOLL_LANES__WORKSPACE": "512B"}
    told = refusal(models, tmp_path, env, "--ceiling", "1GiB")
    assert re.search(r"lanes\.workspace.*1024 bytes.*512", told), told


def test_a_driver_that_lacks_a_function_is_refused_by_its_name(models, fake, tmp_path):
    told = refusal(models, tmp_path, compiled(tmp_path / "lacking", "-DcuGraphUpload=another"))
    assert "the driver lacks cuGraphUpload" in told, told


def test_a_kernel_that_cannot_be_launched_is_an_error_and_the_server_lives(serve, models, fake):
    nets.large(models / "large.onnx", 16)
    server = serve(models, config(), env=fake | {"FAKE_CUDA_REFUSE_PINNED": "all"})
    assert v2.try_infer(server, "large", {"x": numbers((1, 1024))}).status == 500
    ask(server)
