"""The door: who may change what is served, TLS, and clients that take their time or all the places."""

import http.client
import os
import re
import socket
import ssl
import subprocess
import threading
import time

import numpy as np
import pytest

import nets
import v2
from server import Server, run, until
from test_cli import ended
from wire import Raw

ROW = {"x": np.ones((1, 4), np.float32)}
ONE = {"x": np.array([1], np.float32)}
LOAD, UNLOAD = "/v2/repository/models/double/load", "/v2/repository/models/double/unload"
INFER = "/v2/models/double/infer"


@pytest.fixture
def models(tmp_path):
    nets.times(tmp_path / "models/double.onnx", 2)
    return tmp_path / "models"


def secret(file, text):
    """A file that its owner alone may read, put in the place of what was there."""
    beside = file.with_suffix(".new")
    beside.write_text(text)
    beside.chmod(0o600)
    beside.rename(file)
    return str(file)


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


# Who may change what is served.


def test_the_token_is_asked_for_where_something_changes_and_nowhere_else(serve, models, tmp_path):
    server = serve(models, {"server": {"admin_token_file": secret(tmp_path / "token", "open sesame\n")}})
    for path in (LOAD, UNLOAD):
        answer = server.post(path)
        assert answer.status == 401 and "needs the admin token" in answer.error, answer
        answer = server.post(path, headers=bearer("open"))
        assert answer.status == 401 and "is not the admin token" in answer.error, answer
        assert server.get("/v2/models/double/ready").status == 200
    assert v2.try_infer(server, "double", ROW).status == 200
    for path in ("/v2", "/v2/memory", "/metrics", "/v2/models/double", "/v2/models/double/stats"):
        assert server.get(path).status == 200
    assert server.post("/v2/repository/index").status == 200
    assert server.post(UNLOAD, headers=bearer("open sesame")).status == 200
    assert server.post(LOAD, headers=bearer("open sesame")).status == 200


def test_another_token_in_the_file_is_the_one_that_counts_and_no_file_lets_nobody_in(serve, models, tmp_path):
    file = tmp_path / "token"
    config = {"server": {"admin_token_file": secret(file, "the-first-one")}, "log": {"level": "debug"}}
    server = serve(models, config)
    status = lambda token: server.post(LOAD, headers=bearer(token)).status
    assert (status("the-first-one"), status("the-second-one")) == (200, 401)
    secret(file, "the-second-one")
    until(lambda: status("the-second-one") == 200, 3)
    assert status("the-first-one") == 401
    file.unlink()
    until(lambda: status("the-second-one") == 403, 3)
    answer = server.post(LOAD, headers=bearer("the-second-one"))
    assert answer.status == 403 and "shut" in answer.error and "admin_token_file" in answer.error, answer
    secret(file, "the-third-one")
    until(lambda: status("the-third-one") == 200, 3)
    assert "-one" not in server.log().replace("the-first-one.", ""), "a token is never logged"


@pytest.mark.parametrize("what", ["missing", "empty", "two lines"])
def test_a_file_without_a_token_ends_the_start(models, tmp_path, what):
    file = tmp_path / "token"
    if what != "missing":
        secret(file, " \n" if what == "empty" else "a\nb\n")
    (tmp_path / "plimsoll.toml").write_text(f'[server]\nlisten = "127.0.0.1:0"\nadmin_token_file = "{file}"\n')
    for command in ("serve", "check"):
        done = ended(run(command, cwd=tmp_path), 1)
        told = {"missing": "No such file", "empty": "it is empty", "two lines": "more than one line"}[what]
        assert str(file) in done.stderr and "admin_token_file" in done.stderr and told in done.stderr, done.stderr


def test_a_token_that_everyone_may_read_is_a_warning(serve, models, tmp_path):
    file = tmp_path / "token"
    file.write_text("open sesame")
    file.chmod(0o644)
    log = serve(models, {"server": {"admin_token_file": str(file)}}).log()
    assert re.search(r"WARN.*every user.*server\.admin_token_file.*", log), log


@pytest.mark.parametrize("guarded", [False, True])
def test_admin_calls_that_other_machines_may_make_are_a_warning(models, tmp_path, guarded):
    config = {"listen": "0.0.0.0:0"}
    if guarded:
        config["admin_token_file"] = secret(tmp_path / "token", "open sesame")
    server = Server(tmp_path / "server", models, {"server": config})
    try:
        until(lambda: "ready models=1" in server.log(), 20)
        assert ("set server.admin_token_file" in server.log()) != guarded, server.log()
    finally:
        server.stop()


# TLS.


def certificate(folder, name):
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    cert, key = folder / f"{name}.crt", folder / f"{name}.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    subprocess.run([*command, "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert.read_text(), key.read_text()


class TlsServer(Server):
    """Asked over TLS by a client that trusts `trusted` alone."""

    def connect(self, timeout=60):
        context = ssl.create_default_context(cafile=self.trusted)
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=timeout, context=context)

    def shown(self):
        """The certificate that a new connection is shown."""
        return ssl.get_server_certificate(("127.0.0.1", self.port)).strip()


@pytest.fixture
def tls(models, tmp_path):
    cert, key = certificate(tmp_path, "first")
    secret(tmp_path / "tls.crt", cert)
    secret(tmp_path / "tls.key", key)
    keys = {"tls_cert": str(tmp_path / "tls.crt"), "tls_key": str(tmp_path / "tls.key"), "header_timeout": "1s"}
    server = TlsServer(tmp_path / "server", models, {"server": keys})
    server.trusted = str(tmp_path / "first.crt")
    with server:
        yield server


def test_a_client_that_trusts_the_certificate_is_served_over_tls(tls):
    assert (v2.infer(tls, "double", ROW)["y"] == 2).all()
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = ssl.create_default_context(cafile=tls.trusted)
        context.minimum_version = context.maximum_version = version
        context.set_alpn_protocols(["h2", "http/1.1"])
        with socket.create_connection(("127.0.0.1", tls.port), 10) as plain:
            with context.wrap_socket(plain, server_hostname="127.0.0.1") as stream:
                assert stream.selected_alpn_protocol() == "http/1.1"
                stream.sendall(b"GET /v2/health/live HTTP/1.1\r\nhost: it\r\nconnection: close\r\n\r\n")
                assert stream.recv(4096).startswith(b"HTTP/1.1 200")


def test_large_bodies_and_answers_pass_through_tls(tls):
    x = np.random.default_rng(3).normal(size=(50_000, 4)).astype(np.float32)
    connection = tls.connect()
    for _ in range(3):
        np.testing.assert_array_equal(v2.infer(tls, "double", {"x": x}, connection=connection)["y"], 2 * x)


def test_a_renewed_certificate_is_shown_to_new_connections_and_open_ones_stay(tls, tmp_path):
    first, (second, key) = tls.shown(), certificate(tmp_path, "second")
    connection = tls.connect()
    assert tls.request("GET", "/v2", connection=connection).status == 200
    own = connection.sock.getsockname()
    # The certificate first and the key later, as some tools do: nothing is shown that has no key.
    secret(tmp_path / "tls.crt", second)
    time.sleep(0.7)
    assert tls.shown() == first
    secret(tmp_path / "tls.key", key)
    until(lambda: tls.shown() == second.strip(), 6)
    assert tls.request("GET", "/v2", connection=connection).status == 200
    assert connection.sock.getsockname() == own, "it is still the same connection"


def test_files_that_are_no_certificate_leave_the_old_one(tls, tmp_path):
    first = tls.shown()
    secret(tmp_path / "tls.crt", "no certificate")
    until(lambda: "the certificate stays what it was" in tls.log(), 6)
    time.sleep(2.5)
    assert tls.log().count("the certificate stays what it was") == 1, "told once"
    assert tls.shown() == first and tls.get("/v2").status == 200


def test_clients_that_speak_no_tls_or_never_finish_the_handshake_are_let_go(tls):
    with Raw(tls) as plain:
        plain.head("/v2", method="GET")
        assert b"HTTP" not in plain.end()
    for begun in (b"", b"\x16\x03\x01"):
        with Raw(tls) as slow:
            slow.send(begun)
            at = time.monotonic()
            try:
                slow.end()
            except ConnectionResetError:
                pass
            assert time.monotonic() - at < 3
    assert tls.get("/v2/health/ready").status == 200


def test_health_asks_over_tls_where_the_configuration_says_so(tls, tmp_path):
    listen = {"PLIMSOLL_SERVER__LISTEN": tls.address}
    ended(run("health", "--config", tls.folder / "plimsoll.toml", cwd=tmp_path, env=listen), 0)
    ended(run("health", "--url", f"https://127.0.0.1:{tls.port}", cwd=tmp_path), 0)
    ended(run("memory", "--url", f"https://127.0.0.1:{tls.port}", cwd=tmp_path), 0)
    assert "not ready" in ended(run("health", "--url", tls.url, cwd=tmp_path), 1).stderr


def test_a_stop_under_tls_answers_what_is_in_flight(models, tmp_path):
    nets.slow(models / "slow.onnx", 300)
    cert, key = certificate(tmp_path, "first")
    keys = {"tls_cert": secret(tmp_path / "tls.crt", cert), "tls_key": secret(tmp_path / "tls.key", key)}
    server = TlsServer(tmp_path / "server", models, {"server": keys})
    server.trusted = str(tmp_path / "first.crt")
    server.start()
    answers = []
    asking = threading.Thread(target=lambda: answers.append(v2.try_infer(server, "slow", ONE)))
    asking.start()
    until(lambda: server.metric("plimsoll_bodies_bytes") > 0)
    server.stop()
    asking.join()
    assert [answer.status for answer in answers] == [200]


WRONG = {
    "a certificate that is not there": ({"tls_cert": "absent.crt"}, ["absent.crt", "server.tls_cert", "No such file"]),
    "a certificate that is none": ({"tls_cert": "b.key"}, ["b.key", "holds no certificate"]),
    "a key that is none": ({"tls_key": "a.crt"}, ["a.crt", "holds no private key"]),
    "another's key": ({"tls_key": "b.key"}, ["tls_cert and server.tls_key do not go together"]),
}


@pytest.mark.parametrize("what", WRONG)
def test_tls_that_cannot_work_ends_the_start(models, tmp_path, what):
    certificate(tmp_path, "a")
    certificate(tmp_path, "b")
    keys, told = WRONG[what]
    keys = {"tls_cert": "a.crt", "tls_key": "a.key"} | keys
    lines = [f'{key} = "{file}"' for key, file in keys.items()]
    (tmp_path / "plimsoll.toml").write_text("\n".join(["[server]", 'listen = "127.0.0.1:0"', *lines]))
    for command in ("serve", "check"):
        done = ended(run(command, cwd=tmp_path), 1)
        assert all(part in done.stderr for part in told), done.stderr


# Files that are no model's.

VALUES, SECRET = np.ones(4, np.float32), np.full(4, 7, np.float32)


@pytest.mark.parametrize("file", ["plus/w.bin", "plus/model.onnx", "plus/model.toml", "plus.onnx"])
def test_a_pipe_among_a_models_files_is_refused_and_waited_for_by_nobody(serve, models, tmp_path, file):
    nets.external(models / "plus/model.onnx", "w.bin", VALUES)
    (models / "plus/w.bin").write_bytes(VALUES.tobytes())
    if file == "plus.onnx":
        (models / "plus").rename(tmp_path / "plus")
    (models / file).unlink(missing_ok=True)
    os.mkfifo(models / file)
    server = serve(models)
    answer = server.post("/v2/repository/models/plus/load", timeout=10)
    assert answer.status == 400 and file.split("/")[-1] in answer.error, answer
    assert v2.try_infer(server, "double", ROW).status == 200


def test_an_attribute_in_another_file_is_read_from_the_models_own_folder_alone(models, tmp_path):
    (tmp_path / "secret.bin").write_bytes(SECRET[:1].tobytes())
    np.save(tmp_path / "x.npy", np.zeros(4, np.float32))
    infer = ["infer", "fill", "--input", "x=x.npy", "--json"]
    nets.external_fill(models / "fill/model.onnx", "w.bin")
    (models / "fill/w.bin").write_bytes(np.float32(3).tobytes())
    assert '"data":[3.0,3.0,3.0,3.0]' in ended(run(*infer, cwd=tmp_path), 0).stdout.replace(" ", "")
    (models / "fill/w.bin").unlink()
    (models / "fill/w.bin").symlink_to(tmp_path / "secret.bin")
    ended(run(*infer, cwd=tmp_path), 1)
    nets.external_fill(models / "fill/model.onnx", "../../secret.bin")
    assert "folder" in ended(run(*infer, cwd=tmp_path), 1).stderr


@pytest.mark.parametrize("what", ["data", "model", "folder"])
def test_a_link_that_takes_a_files_place_during_a_load_is_never_followed_out(serve, models, tmp_path, what):
    mine, outside = models / "plus", tmp_path / "outside"
    for folder, values in ((mine, VALUES), (outside, SECRET)):
        nets.external(folder / "model.onnx", "w.bin", values)
        (folder / "w.bin").write_bytes(values.tobytes())
    name = {"data": "plus/w.bin", "model": "plus/model.onnx", "folder": "plus"}[what]
    file, target = models / name, outside / name.removeprefix("plus").removeprefix("/")
    server = serve(models, {"models": {"load": ["double"], "watch": False}})
    aside, over = tmp_path / "aside", threading.Event()

    def swap():
        while not over.is_set():
            file.rename(aside)
            file.symlink_to(target)
            time.sleep(0.001)
            file.unlink()
            aside.rename(file)
            time.sleep(0.001)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        loaded = 0
        for _ in range(150):
            if server.load("plus").status == 200:
                loaded += 1
                answer = v2.try_infer(server, "plus", {"x": np.zeros(4, np.float32)})
                if answer.status == 200:
                    np.testing.assert_array_equal(v2.decode(answer)["y"], VALUES)
                server.unload("plus")
    finally:
        over.set()
        swapping.join()
    # Whatever lies there at that moment: a load of the file itself is a good one.
    assert server.load("plus").status == 200 and loaded < 150, loaded


# Clients that take their time, or all the places.


def closed_after(raw, send=b"", every=None):
    """Seconds until the server closes, sending a byte every so often."""
    begun = time.monotonic()
    raw.socket.settimeout(every)
    while time.monotonic() - begun < 10:
        try:
            if not raw.socket.recv(65536):
                break
        except TimeoutError:
            try:
                raw.send(send)
            except OSError:
                break
        except ConnectionResetError:
            break
    return time.monotonic() - begun


def test_a_head_that_trickles_in_is_cut_off_and_silence_is_allowed_for_longer(serve, models):
    server = serve(models, {"server": {"header_timeout": "500ms", "idle_timeout": "2s"}})
    with Raw(server) as slow:
        slow.send(b"GET /v2 HTTP/1.1\r\nhost: ")
        assert 0.4 < closed_after(slow, b"a", every=0.1) < 1.2
    with Raw(server) as silent:
        assert 1.8 < closed_after(silent, every=5) < 3
    with Raw(server) as idle:
        for _ in range(4):
            time.sleep(0.8)
            assert idle.head("/v2", method="GET").answer().status == 200, "each answer begins the silence anew"
        # A second head is held to the same as the first.
        idle.send(b"GET /v2 HTTP/1.1\r\nhost: ")
        assert 0.4 < closed_after(idle, b"a", every=0.1) < 1.2


def test_a_body_may_take_longer_than_a_head(serve, models):
    server = serve(models, {"server": {"header_timeout": "300ms", "idle_timeout": "300ms"}})
    body, headers = v2.encode(ROW)
    with Raw(server) as slow:
        slow.head(INFER, *(f"{name}: {value}" for name, value in headers.items()), f"Content-Length: {len(body)}")
        for at in range(len(body)):
            slow.send(body[at : at + 1])
            time.sleep(1.0 / len(body))
        assert slow.answer().status == 200


def test_a_head_over_the_limit_is_431(serve, models):
    server = serve(models, {"server": {"max_header": "4KiB"}})
    with Raw(server) as raw:
        assert raw.head("/v2", "x: " + "a" * 3000, method="GET").answer().status == 200
    with Raw(server) as raw:
        raw.head("/v2", "x: " + "a" * 5000, method="GET")
        assert raw.end().startswith(b"HTTP/1.1 431 ")
    with Raw(server) as raw:
        raw.head("/v2", *(f"x{at}: a" for at in range(200)), method="GET")
        assert raw.end().startswith(b"HTTP/1.1 431 ")


def test_an_answer_that_is_not_taken_is_dropped_and_its_memory_is_free(serve, tmp_path):
    side = 1400  # 7.5 MiB an answer
    nets.outer(tmp_path / "models/outer.onnx", side)
    config = {"server": {"send_timeout": "1s", "max_body": "1MiB", "body_budget": "20MiB"}, "lanes": {"workspace": "16MiB"}}
    server = serve(tmp_path / "models", config)
    body, headers = v2.encode({"x": np.ones((side, 1), np.float32)})
    lines = [f"{name}: {value}" for name, value in headers.items()] + [f"Content-Length: {len(body)}"]
    with socket.socket() as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.connect(("127.0.0.1", server.port))
        lazy.sendall("\r\n".join(["POST /v2/models/outer/infer HTTP/1.1", "host: it", *lines, "", ""]).encode() + body)
        until(lambda: server.metric("plimsoll_bodies_bytes") > 7 << 20)
        begun = time.monotonic()
        until(lambda: server.metric("plimsoll_bodies_bytes") == 0, 5)
        assert time.monotonic() - begun < 3


def test_for_one_connection_too_many_the_one_that_was_idle_longest_is_closed(serve, models):
    server = serve(models, {"server": {"max_connections": 4}})
    asked = lambda raw: raw.head("/v2", method="GET").answer().status
    with Raw(server) as oldest, Raw(server) as second, Raw(server) as third, Raw(server) as fourth:
        for raw in (oldest, second, third, fourth):
            assert asked(raw) == 200
            time.sleep(0.05)
        assert asked(oldest) == 200, "now the second is the one that has been idle longest"
        begun = time.monotonic()
        with Raw(server) as fifth:
            assert asked(fifth) == 200
            assert time.monotonic() - begun < 3
            assert second.end() == b""
            assert [asked(raw) for raw in (oldest, third, fourth)] == [200] * 3, "and no other"
            until(lambda: server.log().count("server.max_connections") == 1)


@pytest.mark.parametrize("enough", [True, False])
def test_the_limit_of_open_files_is_raised_to_what_connections_need(models, tmp_path, enough):
    limits = "ulimit -Sn 100" if enough else "ulimit -n 400"
    before = ["sh", "-c", f'{limits}; exec "$@"', "sh"]
    with Server(tmp_path / "server", models, {"server": {"max_connections": 300}}, before=before) as server:
        text = open(f"/proc/{server.process.pid}/limits").read()
        assert re.search(rf"Max open files +{556 if enough else 400} ", text), text
        assert ("too few open files" in server.log()) != enough, server.log()


def test_where_no_connection_is_idle_the_next_waits(serve, models):
    nets.slow(models / "slow.onnx", 500)
    server = serve(models, {"server": {"max_connections": 2}, "lanes": {"steady": 2}})
    body, headers = v2.encode(ONE)
    lines = [f"{name}: {value}" for name, value in headers.items()] + [f"Content-Length: {len(body)}"]
    with Raw(server) as one, Raw(server) as other:
        for raw in (one, other):
            raw.head("/v2/models/slow/infer", *lines).send(body)
        time.sleep(0.2)
        assert server.get("/v2/health/live").status == 200, "it is answered in its turn"
        assert one.answer().status == other.answer().status == 200


def test_connections_that_say_nothing_keep_nobody_out(serve, models):
    server = serve(models, {"server": {"max_connections": 64}})
    silent = [socket.create_connection(("127.0.0.1", server.port), 20) for _ in range(200)]
    try:
        begun = time.monotonic()
        for _ in range(5):
            assert v2.try_infer(server, "double", ROW, timeout=30).status == 200
        took = time.monotonic() - begun
        assert took < 20, f"{took:.1f} s"
        assert server.metric("plimsoll_connections") <= 64
    finally:
        for one in silent:
            one.close()
