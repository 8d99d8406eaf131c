"""The binary tensor extension in a few lines of our own, so that what is sent and read is in plain sight."""

import json

import numpy as np

DATATYPES = {
    "bool": "BOOL", "uint8": "UINT8", "int8": "INT8", "int16": "INT16", "int32": "INT32", "int64": "INT64",
    "float16": "FP16", "float32": "FP32", "float64": "FP64",
}  # fmt: skip
DTYPES = {datatype: np.dtype(name) for name, datatype in DATATYPES.items()}


def encode(inputs, parameters=None):
    """Named arrays → body and headers of a request whose answer comes as binary data too."""
    entries, tail = [], b""
    for name, array in inputs.items():
        data = np.ascontiguousarray(array).tobytes()
        size = {"binary_data_size": len(data)}
        entry = {"name": name, "datatype": DATATYPES[array.dtype.name], "shape": list(array.shape), "parameters": size}
        entries.append(entry)
        tail += data
    head = {"inputs": entries, "parameters": {"binary_data_output": True} | (parameters or {})}
    head = json.dumps(head).encode()
    return head + tail, {"Inference-Header-Content-Length": str(len(head))}


def decode(answer):
    """An answer with binary outputs → named arrays; every byte must belong to one of them."""
    assert answer.status == 200, answer
    length = int(answer.headers["Inference-Header-Content-Length"])
    head, tail = json.loads(answer.body[:length]), answer.body[length:]
    outputs = {}
    for output in head["outputs"]:
        size = output["parameters"]["binary_data_size"]
        data, tail = tail[:size], tail[size:]
        outputs[output["name"]] = np.frombuffer(data, DTYPES[output["datatype"]]).reshape(output["shape"])
    assert not tail, f"{len(tail)} bytes too many"
    return outputs


def infer(server, model, inputs, parameters=None, connection=None, timeout=60):
    """Runs a model on named arrays and returns its outputs by name."""
    return decode(try_infer(server, model, inputs, parameters, connection, timeout))


def try_infer(server, model, inputs, parameters=None, connection=None, timeout=60):
    """As `infer`, but returns the answer whatever it is."""
    body, headers = encode(inputs, parameters)
    return server.post(f"/v2/models/{model}/infer", body, headers, connection, timeout)
