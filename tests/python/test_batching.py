"""Requests that wait run together, and nobody can tell but by the time."""

import concurrent.futures
import re

import numpy as np
import pytest

import nets
import v2
from load import Load
from server import until

ONE_LANE = {"lanes": {"steady": 1}, "memory": {"reserve": "0%"}}


def batching(most, **more):
    return {**ONE_LANE, "batching": {"max_batch": most, "queue_limit": 256}, **more}


@pytest.fixture
def pool():
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        yield pool


@pytest.fixture
def models(tmp_path):
    return tmp_path / "models"


def numbers(rows, seed, size=512):
    return np.random.default_rng(seed).standard_normal((rows, size), np.float32)


def counts(server, model):
    stats = server.statistics(model)
    return stats["inference_count"], stats["execution_count"], stats["batch_stats"]


def test_requests_that_wait_run_together_and_each_gets_its_own_rows(serve, models, pool):
    nets.rows(models / "rows.onnx", 300)
    server = serve(models, batching(8))
    asked = [numbers(1 + at % 3, at) for at in range(48)]
    alone = [v2.infer(server, "rows", {"x": x})["y"] for x in asked]
    inferences, executions, _ = counts(server, "rows")
    assert (inferences, executions) == (sum(map(len, asked)), len(asked)), "one by one, as nothing waits"
    for _ in range(3):
        answers = list(pool.map(lambda x: v2.infer(server, "rows", {"x": x})["y"], asked))
        for answer, expected in zip(answers, alone, strict=True):
            np.testing.assert_array_equal(answer, expected)
    inferences, executions, batches = counts(server, "rows")
    assert inferences == 4 * sum(map(len, asked))
    assert executions <= len(asked) + 3 * len(asked) // 2, f"{executions} runs for {4 * len(asked)} requests"
    assert max(batch["batch_size"] for batch in batches) > 3 and sum(b["compute_infer"]["count"] for b in batches) == executions


def test_batches_answer_more_requests_in_the_same_time(serve, models):
    nets.rows(models / "rows.onnx", 300)
    rates = []
    for most in (1, 16):
        server = serve(models, batching(most))
        with Load(server, "rows", {"x": numbers(1, 1)}, threads=16) as load:
            load.wait_for(16)
            before, (_, runs, _) = len(load.answers), counts(server, "rows")
            until(lambda: counts(server, "rows")[1] - runs >= 30, 60)
            rates.append((len(load.answers) - before) / (counts(server, "rows")[1] - runs))
        assert set(load.statuses()) == {200}, load.statuses()
        server.stop()
    assert rates[0] < 1.5 and rates[1] > 4, f"requests a run: {rates[0]:.1f} without batches, {rates[1]:.1f} with"


def test_shapes_that_differ_beyond_the_first_axis_wait_in_groups_of_their_own(serve, models, pool):
    nets.times(models / "times.onnx", 3, ("batch", "width"))
    nets.slow(models / "slow.onnx", 30)
    server = serve(models, batching(4))
    asked = [numbers(1 + at % 2, at, 4 + at % 3) for at in range(60)]
    with Load(server, "slow", {"x": np.ones(1, np.float32)}, threads=2):
        for _ in range(3):
            for x, answer in zip(asked, pool.map(lambda x: v2.infer(server, "times", {"x": x})["y"], asked), strict=True):
                np.testing.assert_array_equal(answer, 3 * x)
    inferences, executions, batches = counts(server, "times")
    assert inferences == 3 * sum(map(len, asked)) and executions < 3 * len(asked)
    assert max(batch["batch_size"] for batch in batches) <= 4


def test_an_output_that_has_no_rows_is_not_divided(serve, models, pool):
    nets.total(models / "total.onnx")
    server = serve(models, batching(8))
    until(lambda: re.search(r"WARN.*one by one.*model=\"total:1\"", server.log()))
    asked = [numbers(1 + at % 4, at, 4) for at in range(40)]
    for x, answer in zip(asked, pool.map(lambda x: v2.infer(server, "total", {"x": x})["y"], asked), strict=True):
        np.testing.assert_allclose(answer, x.sum(0, keepdims=True), rtol=1e-5, atol=1e-5)
    assert counts(server, "total")[1] == len(asked)


def test_batches_are_as_large_as_a_lane_has_workspace_for(serve, models, pool):
    nets.rows(models / "rows.onnx", 300)
    # Two values of 2 KiB a row are alive at a time.
    server = serve(models, batching(64, lanes={"steady": 1, "workspace": "40KiB"}))
    until(lambda: re.search(r"WARN.*larger batches.*max_batch=64 most=8 ", server.log()))
    asked = [numbers(1, at) for at in range(64)]
    list(pool.map(lambda x: v2.infer(server, "rows", {"x": x}), asked))
    assert max(batch["batch_size"] for batch in counts(server, "rows")[2]) <= 8
    assert v2.try_infer(server, "rows", {"x": numbers(64, 1)}).status == 422


def test_a_value_that_does_not_suit_fails_its_own_request_and_no_other(serve, models, pool):
    nets.lookup(models / "lookup.onnx", 300)
    server = serve(models, batching(8))
    asked = [np.array([at % 11], np.int64) for at in range(110)]
    for x, answer in zip(asked, pool.map(lambda x: v2.try_infer(server, "lookup", {"x": x}), asked), strict=True):
        if x[0] == 10:
            assert answer.status == 400 and "look" in answer.error, answer
        else:
            assert (v2.decode(answer)["y"] == x[0]).all()
