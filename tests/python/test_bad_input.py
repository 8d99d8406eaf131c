"""What is wrong with a request is told in one sentence, with the right status, and with what would be right."""

import copy
import gzip
import json

import numpy as np
import pytest

import nets
import v2
from server import MODELS
from wire import Raw

INFER = "/v2/models/digits/infer"
GOOD = json.loads((MODELS / "digits/one.json").read_text())
IMAGE = np.array(GOOD["inputs"][0]["data"], np.float32).reshape(1, 1, 8, 8)


def changed(**members):
    """The good request with members of its input replaced, or removed where None."""
    request = copy.deepcopy(GOOD)
    entry = request["inputs"][0] | members
    request["inputs"] = [{key: value for key, value in entry.items() if value is not None}]
    return json.dumps(request).encode()


def raw(text):
    """The good request with its data replaced by this text."""
    return changed(data="DATA").replace(b'"DATA"', text.encode())


def request(**members):
    return json.dumps(GOOD | members).encode()


BODIES = {
    "empty": (b"", ["body", "JSON"]),
    "cut off": (b'{"inputs": [', ["body", "line 1"]),
    "no object": (b"[1, 2]", ["body", "not an inference request"]),
    "not UTF-8": (b'{"inputs": "\xff"}', ["body", "UTF-8", "byte 12"]),
    "nested without end": (b"[" * 200_000, ["body"]),
    "nested data without end": (raw("[" * 200_000), []),
    "more than an object": (json.dumps(GOOD).encode() + b"{}", ["body"]),
    "without inputs": (b"{}", ["`inputs`", "missing"]),
    "inputs of the wrong kind": (request(inputs=3), ["inputs"]),
    "without the input": (request(inputs=[]), ["`image`", "missing", "FP32"]),
    "a wrong name": (changed(name="picture"), ["`picture`", "`image`"]),
    "a name of the wrong kind": (changed(name=7), ["inputs[0]", "name", "7"]),
    "without a name": (changed(name=None), ["inputs[0]", "`name`"]),
    "the input twice": (request(inputs=GOOD["inputs"] * 2), ["`image`", "twice"]),
    "a wrong dtype": (changed(datatype="FP64"), ["`image`", "FP32", "FP64"]),
    "an unknown dtype": (changed(datatype="FLOAT"), ["`image`", "`FLOAT`", "FP32"]),
    "without a dtype": (changed(datatype=None), ["`image`", "`datatype`"]),
    "a wrong shape": (changed(shape=[1, 1, 8, 7]), ["`image`", "[1, 1, 8, 7]", "1, 8, 8]"]),
    "a wrong rank": (changed(shape=[64]), ["`image`", "[64]", "1, 8, 8]"]),
    "a negative size": (changed(shape=[-1, 1, 8, 8]), ["`image`", "shape", "-1"]),
    "a size that is no number": (changed(shape=["a", 1, 8, 8]), ["`image`", "shape"]),
    "a shape that overflows": (changed(shape=[2**62, 1, 8, 8]), ["`image`"]),
    "a shape beyond 64 bits": (changed(shape=[2**64, 1, 8, 8]), ["`image`", "shape"]),
    "without a shape": (changed(shape=None), ["`image`", "`shape`"]),
    "too little data": (changed(data=[0] * 63), ["`image`", "63", "64"]),
    "too much data": (changed(data=[0] * 65), ["`image`", "65", "64"]),
    "data nested otherwise than the shape": (changed(data=[[0] * 32, [0] * 32]), ["`image`"]),
    "data of the wrong kind": (changed(data=["a"] * 64), ["`image`", "a"]),
    "data with null": (raw("[" + "0," * 63 + "null]"), ["`image`", "null"]),
    "data with NaN, which JSON has not": (raw("[" + "0," * 63 + "NaN]"), ["body"]),
    "data that is no array": (changed(data=3), ["`image`", "data"]),
    "without data": (changed(data=None), ["`image`", "`data`", "binary_data_size"]),
    "an unknown output": (request(outputs=[{"name": "digit"}]), ["`digit`", "`probabilities`"]),
    "an output twice": (request(outputs=[{"name": "probabilities"}] * 2), ["`probabilities`", "twice"]),
    "an id of the wrong kind": (request(id=7), ["`id`", "7"]),
    "a timeout of the wrong kind": (request(parameters={"timeout": "soon"}), ["`timeout`", "soon"]),
    "a negative timeout": (request(parameters={"timeout": -1}), ["`timeout`", "-1"]),
    "shared memory": (changed(data=None, parameters={"shared_memory_region": "a"}), ["`image`", "shared_memory"]),
}


@pytest.mark.parametrize("what", BODIES)
def test_a_wrong_json_body_is_400_and_the_sentence_says_where(digits, what):
    body, parts = BODIES[what]
    answer = digits.post(INFER, body)
    assert answer.status == 400, answer
    assert all(part in answer.error for part in parts), answer.error
    assert len(answer.error) < 500, "a sentence, not the client's own body"


def binary(size=256, tail=256, header=None, **members):
    """A request whose input comes as binary data, with sizes that may disagree."""
    entry = {"name": "image", "datatype": "FP32", "shape": [1, 1, 8, 8], "parameters": {"binary_data_size": size}}
    head = json.dumps({"inputs": [entry | members]}).encode()
    return head + bytes(tail), {"Inference-Header-Content-Length": str(len(head) if header is None else header)}


BINARY = {
    "a byte count that disagrees with the shape": (binary(252, 252), ["`image`", "252", "256"]),
    "fewer bytes than announced": (binary(256, 255), ["`image`", "256", "255"]),
    "more bytes than announced": (binary(256, 257), ["1 bytes", "body"]),
    "a negative size": (binary(-1), ["`image`", "binary_data_size", "-1"]),
    "data twice over": (binary(data=[0] * 64), ["`image`", "`data`", "`binary_data_size`"]),
    "a header longer than the body": (binary(header=10**6), ["Inference-Header-Content-Length", "1000000"]),
    "a header that ends within the JSON": (binary(header=20), ["body"]),
    "a header of nothing": (binary(header=0), ["Inference-Header-Content-Length"]),
    "a header that is no number": (binary(header="many"), ["Inference-Header-Content-Length", "many"]),
    "binary data without the header": ((binary()[0], {}), ["Inference-Header-Content-Length"]),
}


@pytest.mark.parametrize("what", BINARY)
def test_a_wrong_binary_body_is_400_and_the_sentence_gives_the_figures(digits, what):
    (body, headers), parts = BINARY[what]
    answer = digits.post(INFER, body, headers)
    assert answer.status == 400, answer
    assert all(part in answer.error for part in parts), answer.error


def test_a_batch_of_none_is_answered_or_refused_and_breaks_nothing(digits):
    answer = v2.try_infer(digits, "digits", {"image": np.zeros((0, 1, 8, 8), np.float32)})
    assert answer.status in (200, 400), answer
    assert v2.infer(digits, "digits", {"image": IMAGE})["probabilities"].argmax() == 7


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_body_that_does_not_decompress_is_400(digits, encoding):
    for body in (b"not compressed", gzip.compress(b"{}" * 100)[:-9], b""):
        answer = digits.post(INFER, body, {"Content-Encoding": encoding})
        assert answer.status == 400 and "body" in answer.error, answer


def test_an_unknown_encoding_is_415_and_names_the_known_ones(digits):
    answer = digits.post(INFER, json.dumps(GOOD), {"Content-Encoding": "br"})
    assert answer.status == 415
    assert all(name in answer.error for name in ("`br`", "gzip", "deflate")), answer.error


@pytest.mark.parametrize("rest", ["", "/ready", "/config", "/stats", "/infer", "/versions/1", "/versions/1/infer"])
def test_an_unknown_model_is_404_and_the_models_that_exist_are_named(digits, rest):
    method = "POST" if rest.endswith("/infer") else "GET"
    answer = digits.request(method, f"/v2/models/letters{rest}", json.dumps(GOOD) if method == "POST" else None)
    assert answer.status == 404 and "`letters`" in answer.error and "digits" in answer.error, answer


@pytest.mark.parametrize("version", ["2", "0", "-1", "01", "+1", "latest", "18446744073709551616"])
def test_an_unknown_version_is_404_and_the_versions_that_exist_are_named(digits, version):
    for rest in ("", "/ready", "/config", "/stats"):
        answer = digits.get(f"/v2/models/digits/versions/{version}{rest}")
        assert answer.status == 404, (rest, answer)
        assert f"`{version}`" in answer.error and "it has 1" in answer.error, answer.error


@pytest.mark.parametrize("path", ["/page", "/v3", "/v2/", "/v2/models", "/v2/models/digits/infer/now", "/v2/models/%ff"])
def test_an_address_that_nothing_has_is_404(digits, path):
    assert digits.get(path).status == 404
    assert digits.get(path).error


def test_a_wrong_method_is_405_and_names_the_right_one(digits):
    calls = [("GET", INFER, "POST"), ("DELETE", "/v2", "GET"), ("PUT", "/v2/repository/index", "POST")]
    for method, path, right in calls:
        answer = digits.request(method, path)
        assert answer.status == 405 and right in answer.headers["Allow"], answer
        assert answer.error


def test_an_error_names_the_request_and_ids_are_echoed_or_made(digits):
    for path in ("/v2", "/v2/models/letters", "/nowhere", INFER):
        assert digits.get(path, {"x-request-id": "mine-42"}).headers["x-request-id"] == "mine-42"
    made = {digits.get("/v2").headers["x-request-id"] for _ in range(20)}
    assert len(made) == 20 and all(made)
    for unfit in ("a b", "x" * 500, "", "é"):
        own = digits.get("/v2", {"x-request-id": unfit.encode("latin-1")}).headers["x-request-id"]
        assert own and own != unfit


def test_what_is_no_http_ends_only_its_own_connection(digits):
    for noise in (b"\x16\x03\x01\x02\x00\x01\x00", b"HELLO\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\0" * 100):
        with Raw(digits) as raw_connection:
            raw_connection.send(noise).socket.shutdown(1)
            raw_connection.end()
    assert digits.get("/v2/health/live").status == 200


REFUSED = {
    "an unknown model": ("/v2/models/letters/infer", {}, 404),
    "an unknown version": ("/v2/models/digits/versions/2/infer", {}, 404),
    "an address that nothing has": ("/v2/nowhere", {}, 404),
    "a wrong method": ("/v2/models/digits", {}, 405),
    "an unknown encoding": (INFER, {"Content-Encoding": "br"}, 415),
    "a wrong header": (INFER, {"Inference-Header-Content-Length": "many"}, 400),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_refused_request_leaves_its_connection_in_use_or_says_that_it_closes(digits, what):
    path, headers, status = REFUSED[what]
    for _ in range(50):
        connection = digits.connect()
        # The body goes out after the head, in a packet of its own, as HTTP clients commonly do.
        for _ in range(3):
            answer = digits.post(path, json.dumps(GOOD), headers, connection)
            assert answer.status == status
            if answer.headers.get("connection") == "close":
                break
        connection.close()


@pytest.fixture
def admin(serve, tmp_path):
    (tmp_path / "token").write_text("  open sesame\n")
    nets.times(tmp_path / "models/double.onnx", 2)
    return serve(tmp_path / "models", {"server": {"admin_token_file": str(tmp_path / "token")}})


def test_an_admin_call_without_the_token_is_401_and_changes_nothing(admin):
    wrong = ["open sesame", "Bearer", "Bearer open", "Bearer open sesame2", "Basic open sesame"]
    for headers in [{}, *({"Authorization": text} for text in wrong)]:
        for call in ("load", "unload"):
            answer = admin.post(f"/v2/repository/models/double/{call}", headers=headers)
            assert answer.status == 401 and "token" in answer.error, (headers, answer)
            assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert admin.get("/v2/models/double/ready").status == 200
    for call, ready in (("unload", 503), ("load", 200)):
        right = {"Authorization": "Bearer open sesame"}
        assert admin.post(f"/v2/repository/models/double/{call}", headers=right).status == 200
        assert admin.get("/v2/models/double/ready").status == ready
