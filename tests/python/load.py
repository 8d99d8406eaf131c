"""Clients that keep asking while something happens to the server."""

import concurrent.futures
import http.client
import threading
import time

import v2
from wire import Raw


class Load:
    """Threads that ask one after the other, each on its own connection, until the block is left.

    `answers` has what came: an `Answer`, or the exception of a request that got none. What was refused at the door
    (the listener was closed) is counted in `not_accepted` and ends its thread.
    """

    def __init__(self, server, model, inputs, threads=8, keep_alive=True):
        self.server, self.model, self.inputs, self.keep_alive = server, model, inputs, keep_alive
        self.answers, self.not_accepted = [], 0
        self.stopping = threading.Event()
        self.threads = [threading.Thread(target=self._work, daemon=True) for _ in range(threads)]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive(), "a request hangs"

    def _work(self):
        connection = None
        while not self.stopping.is_set():
            if connection is None:
                connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=30)
                try:
                    connection.connect()
                except ConnectionRefusedError:
                    self.not_accepted += 1
                    return
                except OSError as error:
                    # The kernel had queued it; the listener was closed before anyone accepted it.
                    self.not_accepted += isinstance(error, ConnectionResetError)
                    return
                fresh = True
            try:
                answer = v2.try_infer(self.server, self.model, self.inputs, connection=connection)
                self.answers.append(answer)
                closes = answer.headers.get("connection") == "close"
            except (OSError, http.client.HTTPException) as error:
                # On a connection that has answered before, a server may close between two requests, as HTTP says,
                # when it told so; here it always tells, so this too is a failure.
                self.answers.append((error, "first on its connection" if fresh else "on a connection in use"))
                closes = True
            fresh = False
            if closes or not self.keep_alive:
                connection.close()
                connection = None

    def statuses(self):
        seen = {}
        for answer in self.answers:
            key = getattr(answer, "status", None) or repr(answer)
            seen[key] = seen.get(key, 0) + 1
        return seen

    def wait_for(self, more, seconds=30):
        """Waits until so many more answers have come."""
        goal, end = len(self.answers) + more, time.monotonic() + seconds
        while len(self.answers) < goal:
            assert time.monotonic() < end, f"only {len(self.answers)} of {goal} answers"
            time.sleep(0.005)


class Same:
    """One request again and again over one connection. Bytes on a socket: an HTTP library would take longer than the
    server does."""

    def __init__(self, server, model, inputs):
        body, headers = v2.encode(inputs)
        lines = [f"POST /v2/models/{model}/infer HTTP/1.1", "Host: plimsoll", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.request = "\r\n".join([*lines, "", ""]).encode() + body
        self.raw = Raw(server)

    def ready(self):
        """Asks whether the server is ready, on the same connection."""
        return self._answer(b"GET /v2/health/ready HTTP/1.1\r\nHost: plimsoll\r\n\r\n")

    def ask(self):
        """Asks, and returns the body of the answer."""
        return self._answer(self.request)

    def _answer(self, request):
        self.raw.send(request)
        head, answer = b"", b""
        while not head:
            answer += self._more()
            head, _, answer = answer.partition(b"\r\n\r\n") if b"\r\n\r\n" in answer else (b"", b"", answer)
        assert head.startswith(b"HTTP/1.1 200 "), (head, answer)
        length = int(head.rpartition(b"\r\ncontent-length: ")[2].partition(b"\r\n")[0])
        while len(answer) < length:
            answer += self._more()
        return answer

    def _more(self):
        more = self.raw.socket.recv(1 << 20)
        assert more, "the connection was closed instead of an answer"
        return more

    def close(self):
        self.raw.socket.close()


def hammer(server, model, inputs, requests, connections=4):
    """So many requests over a few connections, each of which waits for its answer; all answers must be alike."""

    def work(times):
        same = Same(server, model, inputs)
        answers = {same.ask() for _ in range(times)}
        same.close()
        return answers

    with concurrent.futures.ThreadPoolExecutor(connections) as pool:
        assert len(set().union(*pool.map(work, [requests // connections] * connections))) == 1
