"""Every datatype travels unharmed, as JSON and as binary data, in both directions."""

import json
import struct

import numpy as np
import pytest
from onnx import TensorProto

import nets
from server import Server

KINDS = {
    "BOOL": (TensorProto.BOOL, np.bool_, [True, False, True]),
    "UINT8": (TensorProto.UINT8, np.uint8, [0, 1, 255]),
    "UINT16": (TensorProto.UINT16, np.uint16, [0, 1, 2**16 - 1]),
    "UINT32": (TensorProto.UINT32, np.uint32, [0, 1, 2**32 - 1]),
    "UINT64": (TensorProto.UINT64, np.uint64, [0, 2**53 + 1, 2**64 - 1]),
    "INT8": (TensorProto.INT8, np.int8, [-128, 0, 127]),
    "INT16": (TensorProto.INT16, np.int16, [-(2**15), 0, 2**15 - 1]),
    "INT32": (TensorProto.INT32, np.int32, [-(2**31), 0, 2**31 - 1]),
    "INT64": (TensorProto.INT64, np.int64, [-(2**63), 2**53 + 1, 2**63 - 1]),
    "FP16": (TensorProto.FLOAT16, np.float16, [-65504, 0.1, 6e-8]),
    "FP32": (TensorProto.FLOAT, np.float32, [-3.4e38, 0.1, 1.2e-38]),
    "FP64": (TensorProto.DOUBLE, np.float64, [-1.7e308, 0.1, 5e-324]),
    "BYTES": (TensorProto.STRING, None, ["", "größer \u2713 \"quoted\"\n", "x" * 1000]),
}
NUMBERS = [name for name in KINDS if name not in ("BOOL", "BYTES")]
FLOATS = ["FP16", "FP32", "FP64"]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    models = tmp_path_factory.mktemp("dtypes")
    for name, (elem_type, _, _) in KINDS.items():
        nets.identity(models / f"{name}.onnx", elem_type)
    with Server(tmp_path_factory.mktemp("dtypes-server"), models) as server:
        yield server


def packed(name, values):
    """The values as the binary extension lays them out."""
    if name == "BYTES":
        return b"".join(struct.pack("<I", len(text.encode())) + text.encode() for text in values)
    return np.array(values, KINDS[name][1]).tobytes()


def ask(server, name, values, sent, received):
    """Sends the values either way and returns what came back: bytes for binary data, else the JSON list."""
    entry, tail, headers = {"name": "x", "datatype": name, "shape": [len(values)]}, b"", {}
    if sent == "binary":
        tail = packed(name, values)
        entry["parameters"] = {"binary_data_size": len(tail)}
    else:
        entry["data"] = values
    head = json.dumps({"inputs": [entry], "parameters": {"binary_data_output": received == "binary"}}).encode()
    if sent == "binary":
        headers["Inference-Header-Content-Length"] = str(len(head))
    answer = server.post(f"/v2/models/{name}/infer", head + tail, headers)
    if answer.status != 200:
        return answer
    length = int(answer.headers.get("Inference-Header-Content-Length", len(answer.body)))
    (output,) = json.loads(answer.body[:length])["outputs"]
    assert (output["datatype"], output["shape"]) == (name, [len(values)])
    return answer.body[length:] if received == "binary" else output["data"]


@pytest.mark.parametrize("received", ["binary", "json"])
@pytest.mark.parametrize("sent", ["binary", "json"])
@pytest.mark.parametrize("name", KINDS)
def test_values_come_back_as_they_were_sent(server, name, sent, received):
    values = KINDS[name][2]
    got = ask(server, name, values, sent, received)
    if received == "binary":
        assert got == packed(name, values)
    elif name in FLOATS:
        # Enough digits were written for every bit to survive the decimal form.
        assert np.array(got, KINDS[name][1]).tobytes() == packed(name, values)
    else:
        assert got == values


@pytest.mark.parametrize("name", FLOATS)
def test_what_json_cannot_hold_travels_as_binary_data_and_is_refused_in_json_with_advice(server, name):
    values = [float("nan"), float("inf"), -float("inf")]
    assert ask(server, name, values, "binary", "binary") == packed(name, values)
    answer = ask(server, name, values, "binary", "json")
    assert answer.status == 400 and "binary" in answer.error, answer


@pytest.mark.parametrize("name", [name for name in NUMBERS if name not in FLOATS])
def test_an_integer_out_of_range_or_with_a_fraction_is_refused(server, name):
    low, high = np.iinfo(KINDS[name][1]).min, np.iinfo(KINDS[name][1]).max
    for wrong in (low - 1, high + 1, 0.5, "1", True, None):
        answer = ask(server, name, [0, wrong, 0], "json", "json")
        assert answer.status == 400 and "`x`" in answer.error, (wrong, answer)


def test_a_float_out_of_range_is_refused(server):
    for name, wrong in (("FP16", 1e6), ("FP32", 1e39)):
        answer = ask(server, name, [0, wrong], "json", "json")
        assert answer.status == 400 and "`x`" in answer.error, answer


def test_whole_numbers_are_floats_too(server):
    assert ask(server, "FP32", [1, -2, 3e2], "json", "json") == [1, -2, 300]


def test_a_boolean_must_be_one(server):
    for wrong in ("true", 2, 0.5, None):
        assert ask(server, "BOOL", [True, wrong], "json", "json").status == 400, wrong


def test_text_that_is_cut_or_no_utf8_is_refused(server):
    for tail in (b"\x05\x00\x00\x00abc", b"\x01\x00", b"\xff\xff\xff\xffabc", b"\x01\x00\x00\x00\xff"):
        entry = {"name": "x", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": len(tail)}}
        head = json.dumps({"inputs": [entry]}).encode()
        headers = {"Inference-Header-Content-Length": str(len(head))}
        answer = server.post("/v2/models/BYTES/infer", head + tail, headers)
        assert answer.status == 400 and "`x`" in answer.error, (tail, answer)
