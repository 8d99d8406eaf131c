"""What a machine's own tools see: health checks, readiness as systemd is told it, sockets that it passes."""

import http.server
import json
import os
import socket
import sys
import threading
import time

import pytest

import nets
from server import Server, run
from test_cli import ended


@pytest.fixture
def here(tmp_path):
    nets.times(tmp_path / "models/double.onnx", 2)
    return tmp_path


def health(here, *arguments, code, **env):
    begun = time.monotonic()
    done = ended(run("health", *arguments, cwd=here, env=env), code)
    assert time.monotonic() - begun < 5
    return done


def test_health_follows_the_server_that_the_configuration_describes(here):
    server = Server(here / "server", here / "models").start()
    listen = f'[server]\nlisten = "0.0.0.0:{server.port}"\n'
    (here / "plimsoll.toml").write_text(listen)
    (here / "other.toml").write_text(listen)
    assert health(here, code=0).stdout == "ready\n"
    (here / "plimsoll.toml").unlink()
    health(here, "--config", "other.toml", code=0)
    health(here, code=0, PLIMSOLL_SERVER__LISTEN=server.address)
    health(here, "--url", server.url, code=0)
    server.stop()
    done = health(here, "--url", server.url, code=1)
    assert "not ready" in done.stderr and "no server answers" in done.stderr and not done.stdout, done.stderr


class Loading(http.server.BaseHTTPRequestHandler):
    """A server that is not ready, or has nothing to say."""

    def do_GET(self):
        if self.server.silent:
            time.sleep(4)
        body = json.dumps({"error": "the server is loading its models"}).encode()
        self.send_response(503)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.mark.parametrize("silent", [False, True])
def test_health_says_why_a_server_is_not_ready(here, silent):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Loading) as server:
        server.silent, server.daemon_threads = silent, True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        done = health(here, "--url", f"http://127.0.0.1:{server.server_port}", code=1)
        server.shutdown()
    told = "did not answer within 2s" if silent else "answered 503: the server is loading its models"
    assert told in done.stderr, done.stderr


def test_health_of_an_unknown_port_or_scheme_is_wrong_usage(here):
    assert "--url" in health(here, code=2, PLIMSOLL_SERVER__LISTEN="127.0.0.1:0").stderr
    assert "https://HOST:PORT" in health(here, "--url", "ftp://127.0.0.1", code=2).stderr
    health(here, "--url", "no url", code=2)


class Manager:
    """As much of systemd as a service sees: a socket for its messages."""

    def __init__(self, folder):
        self.path = folder / "notify"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(self.path))
        self.socket.settimeout(20)

    def heard_until(self, what):
        """Every message up to one that says so."""
        heard = []
        while not heard or what not in heard[-1]:
            heard.append(self.socket.recv(4096).decode().splitlines())
        return heard


def test_a_service_manager_is_told_when_the_server_is_ready_and_when_it_stops(here):
    manager = Manager(here)
    server = Server(here / "server", here / "models", env={"NOTIFY_SOCKET": str(manager.path)})
    heard = manager.heard_until("READY=1")
    assert any("STATUS=loading double" in message for message in heard[:-1]), heard
    assert any(line.startswith("EXTEND_TIMEOUT_USEC=") for message in heard for line in message), heard
    assert "STATUS=ready; models loaded: 1" in heard[-1], heard
    server.start()
    server.process.terminate()
    (told,) = manager.heard_until("STOPPING=1")
    assert any(line.startswith("STATUS=stopping") for line in told)
    server.process.wait(20)
    server.stop()


def test_a_service_manager_that_does_not_listen_is_a_warning(here):
    with Server(here / "server", here / "models", env={"NOTIFY_SOCKET": str(here / "nobody")}) as server:
        assert "NOTIFY_SOCKET" in server.log()


# The variable must name the process that gets the socket, which only that process knows.
PASS = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ["LISTEN_PID"] = str(os.getpid())
os.execv(sys.argv[2], sys.argv[2:])
"""


def passed(here, listener, **more):
    fd = listener.fileno()
    env = {"LISTEN_FDS": "1"}
    return Server(here / "server", here / "models", before=[sys.executable, "-c", PASS, str(fd)], fds=(fd,), env=env, **more)


def test_a_socket_that_is_passed_takes_the_place_of_the_configured_one(here):
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    # A client may come before the server is there: its request waits in the socket.
    early = socket.create_connection(("127.0.0.1", port), 30)
    early.sendall(b"GET /v2/health/live HTTP/1.1\r\nhost: it\r\nconnection: close\r\n\r\n")
    with passed(here, listener, config={"server": {"listen": "127.0.0.1:1"}}) as server:
        assert server.port == port
        assert early.recv(4096).startswith(b"HTTP/1.1 200")
        assert server.get("/v2/models/double/ready").status == 200
    # The service manager's socket outlives the server: the next client waits for the next start.
    late = socket.create_connection(("127.0.0.1", port), 30)
    late.sendall(b"GET /v2/health/live HTTP/1.1\r\nhost: it\r\nconnection: close\r\n\r\n")
    with passed(here, listener):
        assert late.recv(4096).startswith(b"HTTP/1.1 200")


def test_a_socket_that_is_passed_to_another_process_is_not_taken(here):
    listener = socket.create_server(("127.0.0.1", 0))
    env = {"LISTEN_FDS": "1", "LISTEN_PID": str(os.getpid())}
    with Server(here / "server", here / "models", env=env, fds=(listener.fileno(),)) as server:
        assert server.port != listener.getsockname()[1]


def test_a_passed_socket_that_does_not_listen_is_refused(here):
    one, _other = socket.socketpair()
    server = passed(here, one)
    assert server.process.wait(20) == 1
    assert "LISTEN_FDS" in server.log()
