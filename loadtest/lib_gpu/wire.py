"""Requests with binary tensors, made once, and a connection that is kept: bytes on a socket, since an HTTP library would
take longer than the server does."""

import json
import re
import socket
import zlib

import numpy as np

DTYPES = {"FP32": np.float32, "FP16": np.float16, "INT32": np.int32, "INT64": np.int64, "BOOL": np.bool_}
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)")
STRETCH = 4096


def numbers(datatype, shape, seed=1):
    """Floats of 0 to 1, or integers of 0 and 1, which any table inside a model can be indexed with: a stretch of random
    ones again and again."""
    random, dtype = np.random.default_rng(seed), DTYPES[datatype]
    drawn = random.random(STRETCH) if datatype.startswith("FP") else random.integers(0, 2, STRETCH)
    return np.resize(drawn.astype(dtype), shape)


def post(path, body, headers=()):
    lines = [f"POST {path} HTTP/1.1", "Host: plimsoll", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def infer(model, arrays, parameters=None):
    """The bytes of an inference request: named arrays, and the answer wanted in binary too."""
    entries, tail = [], []
    names = {np.dtype(dtype): name for name, dtype in DTYPES.items()}
    for name, array in arrays.items():
        data = array.tobytes()
        entry = {"name": name, "datatype": names[array.dtype], "shape": list(array.shape)}
        entries.append(entry | {"parameters": {"binary_data_size": len(data)}})
        tail.append(data)
    head = {"inputs": entries, "parameters": {"binary_data_output": True} | (parameters or {})}
    head = json.dumps(head).encode()
    body = b"".join([head, *tail])
    return post(f"/v2/models/{model}/infer", body, [f"Inference-Header-Content-Length: {len(head)}"])


def question(model, ports, row=0):
    """One to a model, as JSON can carry it: name, datatype and shape of each input, and what tells it from others."""
    return {"key": f"{model} {row}", "model": model, "ports": ports}


def asked(question, parameters=None):
    """The bytes of a question: the same wherever and whenever they are made."""
    arrays = {}
    for name, datatype, shape in question["ports"]:
        arrays[name] = numbers(datatype, shape, zlib.crc32(f"{question['key']} {name}".encode()))
    return infer(question["model"], arrays, parameters)


class Connection:
    """Kept open; an answer is read into the same memory again and again."""

    def __init__(self, port, seconds=40):
        self.port, self.seconds, self.socket = port, seconds, None
        self.room(1 << 20)

    def room(self, size, keep=b""):
        self.buffer = bytearray(size)
        self.view = memoryview(self.buffer)
        self.view[: len(keep)] = keep

    def close(self):
        if self.socket is not None:
            self.socket.close()
            self.socket = None

    def ask(self, request):
        """Status and body of the answer, which stays until the next is read."""
        if self.socket is None:
            self.socket = socket.create_connection(("127.0.0.1", self.port), self.seconds)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self.socket.sendall(request)
            return self.answer()
        except BaseException:
            self.close()
            raise

    def answer(self):
        have, end = 0, -1
        while end < 0:
            have += self.more(have)
            end = self.buffer.find(b"\r\n\r\n", 0, have)
        head = bytes(self.view[:end]).lower()
        length = LENGTH.search(head)
        if not length:
            raise ConnectionError(f"an answer without a length: {head[:300]!r}")
        whole = end + 4 + int(length[1])
        if whole > len(self.buffer):
            self.room(whole + 4096, bytes(self.view[:have]))
        while have < whole:
            have += self.more(have)
        if b"\r\nconnection: close" in head:
            self.close()
        self.header = int(found[1]) if (found := re.search(rb"inference-header-content-length: *(\d+)", head)) else None
        return int(head[9:12]), self.view[end + 4 : whole]

    def more(self, have):
        got = self.socket.recv_into(self.view[have:])
        if not got:
            raise ConnectionError("the connection was closed instead of an answer")
        return got

    def arrays(self, request):
        """The outputs of an answer that must be a result, by name."""
        status, body = self.ask(request)
        if status != 200:
            raise RuntimeError(f"{status}: {bytes(body[:500])!r}")
        head, tail, found = json.loads(bytes(body[: self.header])), bytes(body[self.header :]), {}
        for output in head["outputs"]:
            size = output["parameters"]["binary_data_size"]
            found[output["name"]] = np.frombuffer(tail[:size], DTYPES[output["datatype"]]).reshape(output["shape"])
            tail = tail[size:]
        return found
