"""tritonclient.http works unchanged."""

import concurrent.futures
import itertools

import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

import nets
from server import Server

X = np.arange(8, dtype=np.float32).reshape(2, 4)


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    folder = tmp_path_factory.mktemp("repository")
    nets.times(folder / "double.onnx", 2)
    nets.times(folder / "triple/1/model.onnx", 3)
    nets.times(folder / "triple/2/model.onnx", 30)
    return folder


@pytest.fixture(scope="module")
def server(repository, tmp_path_factory):
    with Server(tmp_path_factory.mktemp("triton"), repository) as server:
        yield server


@pytest.fixture(scope="module")
def client(server):
    client = triton.InferenceServerClient(server.address, concurrency=16)
    yield client
    client.close()


def tensor(array, binary=True, name="x"):
    tensor = triton.InferInput(name, array.shape, "FP32")
    tensor.set_data_from_numpy(array, binary_data=binary)
    return tensor


def test_the_server_is_live_and_ready_and_says_what_it_is(client):
    assert client.is_server_live() and client.is_server_ready()
    metadata = client.get_server_metadata()
    assert metadata["name"] == "plimsoll" and metadata["version"]
    extensions = {"binary_tensor_data", "model_configuration", "model_repository", "statistics"}
    assert extensions <= set(metadata["extensions"])


def test_a_model_is_ready_and_described(client):
    assert client.is_model_ready("double") and client.is_model_ready("double", "1")
    metadata = client.get_model_metadata("double")
    assert (metadata["name"], metadata["versions"]) == ("double", ["1"])
    assert metadata["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}]
    assert metadata["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [-1, 4]}]
    assert client.get_model_metadata("triple")["versions"] == ["1", "2"]


def test_a_model_has_a_configuration_in_tritons_form(client):
    config = client.get_model_config("double")
    assert config["name"] == "double"
    assert [(port["name"], port["data_type"], port["dims"]) for port in config["input"]] in (
        [("x", "TYPE_FP32", ["-1", "4"])],
        [("x", "TYPE_FP32", [-1, 4])],
        [("x", "TYPE_FP32", ["4"])],
        [("x", "TYPE_FP32", [4])],
    )
    assert [port["name"] for port in config["output"]] == ["y"]


def test_the_index_names_every_version(client):
    index = client.get_model_repository_index()
    assert [(line["name"], line["version"], line["state"]) for line in index] == [
        ("double", "1", "READY"), ("triple", "1", "READY"), ("triple", "2", "READY"),
    ]  # fmt: skip


def test_a_model_is_unloaded_and_loaded(server):
    with triton.InferenceServerClient(server.address) as client:
        client.unload_model("triple")
        assert not client.is_model_ready("triple")
        states = {line["name"]: line["state"] for line in client.get_model_repository_index()}
        assert states == {"double": "READY", "triple": "UNAVAILABLE"}
        client.load_model("triple")
        assert client.is_model_ready("triple")
        assert (client.infer("triple", [tensor(X)]).as_numpy("y") == X * 30).all()


@pytest.mark.parametrize(("sent", "received"), list(itertools.product([True, False], repeat=2)))
def test_tensors_travel_as_binary_data_and_as_json_in_every_mixture(client, sent, received):
    output = triton.InferRequestedOutput("y", binary_data=received)
    result = client.infer("double", [tensor(X, sent)], outputs=[output], request_id="mixture")
    assert result.as_numpy("y").dtype == np.float32 and (result.as_numpy("y") == X * 2).all()
    response = result.get_response()
    assert response["id"] == "mixture" and response["model_name"] == "double" and response["model_version"] == "1"
    assert ("data" in result.get_output("y")) is not received


def test_without_requested_outputs_all_come_and_a_version_can_be_chosen(client):
    assert (client.infer("double", [tensor(X)]).as_numpy("y") == X * 2).all()
    assert (client.infer("triple", [tensor(X)]).as_numpy("y") == X * 30).all()
    assert (client.infer("triple", [tensor(X)], model_version="1").as_numpy("y") == X * 3).all()


def test_parameters_are_taken(client):
    result = client.infer("double", [tensor(X)], timeout=5_000_000, priority=1, parameters={"mine": "kept out of it"})
    assert (result.as_numpy("y") == X * 2).all()


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
@pytest.mark.parametrize("binary", [True, False])
def test_bodies_are_compressed_both_ways(client, algorithm, binary):
    many = np.tile(X, (500, 1))
    result = client.infer(
        "double",
        [tensor(many, binary)],
        outputs=[triton.InferRequestedOutput("y", binary_data=binary)],
        request_compression_algorithm=algorithm,
        response_compression_algorithm=algorithm,
    )
    assert (result.as_numpy("y") == many * 2).all()


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_an_answer_is_compressed_when_the_client_asks_for_it(server, algorithm):
    many = np.tile(X, (500, 1))
    body, length = triton.InferenceServerClient.generate_request_body([tensor(many)])
    headers = {"Inference-Header-Content-Length": str(length), "Accept-Encoding": algorithm}
    answer = server.post("/v2/models/double/infer", body, headers)
    assert answer.status == 200 and answer.headers["content-encoding"] == algorithm
    assert len(answer.body) < many.nbytes / 4


def counts(client, model="double"):
    stats = client.get_inference_statistics(model)["model_stats"][0]
    times = stats["inference_stats"]
    return stats["inference_count"], stats["execution_count"], times["success"]["count"], times["fail"]["count"], stats


def test_statistics_count_requests_rows_and_failures(client):
    inferences, executions, successes, failures, _ = counts(client)
    for _ in range(3):
        client.infer("double", [tensor(X)])
    with pytest.raises(InferenceServerException):
        client.infer("double", [tensor(X[:, :3])])
    now = counts(client)
    assert now[:4] == (inferences + 6, executions + 3, successes + 3, failures + 1)
    stats = now[4]
    assert stats["last_inference"] > 1_600_000_000_000
    times = stats["inference_stats"]
    for part in ("queue", "compute_input", "compute_infer", "compute_output"):
        assert times[part]["count"] == now[2] and 0 < times[part]["ns"] <= times["success"]["ns"], part
    of_two = next(batch for batch in stats["batch_stats"] if batch["batch_size"] == 2)
    assert of_two["compute_infer"]["count"] >= 3
    everything = client.get_inference_statistics()["model_stats"]
    assert {(line["name"], line["version"]) for line in everything} >= {("double", "1"), ("triple", "2")}


def test_sixteen_threads_with_a_client_each_get_their_own_answers(server):
    def ask(thread):
        random = np.random.default_rng(thread)
        with triton.InferenceServerClient(server.address) as client:
            for at in range(40):
                x = random.standard_normal((1 + at % 3, 4)).astype(np.float32)
                binary = bool((thread + at) % 2)
                output = triton.InferRequestedOutput("y", binary_data=not binary)
                result = client.infer("double", [tensor(x, binary)], outputs=[output], request_id=f"{thread}-{at}")
                assert result.get_response()["id"] == f"{thread}-{at}"
                np.testing.assert_array_equal(result.as_numpy("y"), x * 2)

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(ask, range(16)))


def test_a_hundred_asynchronous_requests_share_one_client(client):
    asked = [np.full((1, 4), at, np.float32) for at in range(100)]
    under_way = [client.async_infer("double", [tensor(x)], request_id=str(at)) for at, x in enumerate(asked)]
    for at, request in enumerate(under_way):
        result = request.get_result()
        assert result.get_response()["id"] == str(at)
        assert (result.as_numpy("y") == asked[at] * 2).all()


REFUSED = {
    "an unknown model": ("404", "double, triple", lambda c: c.infer("treble", [tensor(X)])),
    "an unknown version": ("404", "1, 2", lambda c: c.infer("triple", [tensor(X)], model_version="7")),
    "an unknown input": ("400", "`z`", lambda c: c.infer("double", [tensor(X, name="z")])),
    "a wrong shape": ("400", "[2, 3]", lambda c: c.infer("double", [tensor(X[:, :3].copy())])),
    "an unknown output": (
        "400", "`q`", lambda c: c.infer("double", [tensor(X)], outputs=[triton.InferRequestedOutput("q")]),
    ),
    "metadata of an unknown model": ("404", "double, triple", lambda c: c.get_model_metadata("treble")),
    "the configuration of an unknown model": ("404", "double, triple", lambda c: c.get_model_config("treble")),
    "statistics of an unknown model": ("404", "double, triple", lambda c: c.get_inference_statistics("treble")),
    "a load of an unknown model": ("404", "double, triple", lambda c: c.load_model("treble")),
    "an unload of an unknown model": ("404", "double, triple", lambda c: c.unload_model("treble")),
    "a load with another configuration": ("400", "config", lambda c: c.load_model("double", config='{"a": 1}')),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_a_refusal_is_an_exception_with_our_sentence_and_status(client, what):
    status, part, call = REFUSED[what]
    with pytest.raises(InferenceServerException) as refused:
        call(client)
    assert refused.value.status() == status
    assert part in refused.value.message(), refused.value.message()


def test_a_model_that_is_unloaded_is_a_503_to_the_client(server, repository):
    nets.times(repository / "passing.onnx", 5)
    with triton.InferenceServerClient(server.address) as client:
        client.load_model("passing")
        client.unload_model("passing")
        with pytest.raises(InferenceServerException) as refused:
            client.infer("passing", [tensor(X)])
        assert refused.value.status() == "503" and "passing" in refused.value.message()
