"""HTTP by hand, for requests that no client library would send."""

import http.client
import socket

from server import read_answer


class Raw:
    """A connection on which bytes are sent as they are."""

    def __init__(self, server, timeout=20):
        self.socket = socket.create_connection(("127.0.0.1", server.port), timeout)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)
        return self

    def head(self, path, *headers, method="POST"):
        """Sends a request's head only."""
        lines = [f"{method} {path} HTTP/1.1", "Host: plimsoll", *headers, "", ""]
        return self.send("\r\n".join(lines).encode())

    def chunk(self, data):
        return self.send(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def answer(self):
        """The answer, read to its end."""
        response = http.client.HTTPResponse(self.socket)
        response.begin()
        return read_answer(response)

    def end(self):
        """What is left to read until the server closes."""
        left = b""
        while data := self.socket.recv(65536):
            left += data
        return left
