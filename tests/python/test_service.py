"""What a machine's own tools see: health checks."""

import http.server
import json
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
