"""The systemd units, without a systemd that runs: its own checks of them, and the binary under what they promise it."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys

import pytest
from server import BIN, MODELS, ROOT, clean_environment, until

SERVICE = ROOT / "service"
UNITS = ("plimsoll.service", "plimsoll.socket")
READY = ["serve", "--device", "cpu", "--ceiling", "512MiB", "--models", str(MODELS)]
tool = lambda name: pytest.mark.skipif(shutil.which(name) is None, reason=f"skipped: there is no {name}")


# Becomes a program to which its first argument, a descriptor, is passed as systemd does it.
PASSES = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.set_inheritable(3, True)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1", "LISTEN_FDNAMES": "http"}
os.execv(sys.argv[2], sys.argv[2:])
"""


def run(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A root on which the files lie where service/README.md puts them."""
    root = tmp_path_factory.mktemp("root")
    places = dict.fromkeys(UNITS, "etc/systemd/system") | {
        "sysusers.conf": "usr/lib/sysusers.d", "tmpfiles.conf": "usr/lib/tmpfiles.d",
    }  # fmt: skip
    for file, folder in places.items():
        (root / folder).mkdir(parents=True, exist_ok=True)
        shutil.copy(SERVICE / file, root / folder / (file if file in UNITS else f"plimsoll{pathlib.Path(file).suffix}"))
    shutil.copytree("/usr/lib/systemd/system", root / "usr/lib/systemd/system", symlinks=True)
    (root / "usr/bin").mkdir(parents=True)
    shutil.copy("/bin/true", root / "usr/bin/plimsoll")
    return root


@tool("systemd-analyze")
@pytest.mark.parametrize("drop_in", [None, "gpu.conf"])
def test_systemd_understands_the_units(installed, drop_in):
    folder = installed / "etc/systemd/system/plimsoll.service.d"
    shutil.rmtree(folder, ignore_errors=True)
    if drop_in:
        folder.mkdir()
        shutil.copy(SERVICE / drop_in, folder)
    code, told = run("systemd-analyze", f"--root={installed}", "verify", *UNITS)
    assert code == 0 and not told, told


@tool("systemd-analyze")
def test_the_sandbox_is_rated_as_tight(installed):
    shutil.rmtree(installed / "etc/systemd/system/plimsoll.service.d", ignore_errors=True)
    # Of 100; a unit without any sandboxing has 96.
    rate = ["systemd-analyze", f"--root={installed}", "security", "--offline=true", "--threshold=20", "--no-pager"]
    code, told = run(*rate, "plimsoll.service")
    assert code == 0, told


@tool("systemd-sysusers")
@tool("systemd-tmpfiles")
def test_the_user_and_the_folders_are_made(installed):
    code, told = run("systemd-sysusers", f"--root={installed}")
    assert code == 0 and "plimsoll:" in (installed / "etc/passwd").read_text(), told
    code, told = run("systemd-tmpfiles", f"--root={installed}", "--create", "plimsoll.conf")
    assert code == 0 and (installed / "var/lib/plimsoll/models").is_dir(), told


def setting(name):
    return re.findall(rf"^{name}=(.*)$", (SERVICE / "plimsoll.service").read_text(), re.MULTILINE)


def system_calls(group):
    """The calls of a group of systemd's, the groups inside it resolved."""
    _, told = run("systemd-analyze", "syscall-filter", "--no-pager", group)
    words = [line.strip() for line in told.splitlines()[1:] if line.strip() and not line.strip().startswith("#")]
    return {call for word in words for call in (system_calls(word) if word.startswith("@") else {word})}


def started(command, tmp_path, **more):
    return subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **more)


@tool("systemd-analyze")
@tool("strace")
def test_it_makes_only_system_calls_that_the_sandbox_allows(tmp_path, free_port):
    allowed, denied = setting("SystemCallFilter")
    calls = set.union(*map(system_calls, allowed.split()))
    calls -= set.union(*map(system_calls, denied.removeprefix("~").split()))
    trace = tmp_path / "trace"
    traced = ["strace", "-f", "-qq", "-o", trace, BIN, *READY, "--listen", f"127.0.0.1:{free_port}"]
    environment = clean_environment({"PLIMSOLL_CACHE__DIR": str(tmp_path / "cache")})
    process = started(list(map(str, traced)), tmp_path, env=environment, start_new_session=True)
    try:
        until(lambda: run("curl", "-sf", f"http://127.0.0.1:{free_port}/v2/health/ready")[0] == 0, 60)
        body = f"@{MODELS / 'digits/one.json'}"
        assert run("curl", "-sf", "-d", body, f"http://127.0.0.1:{free_port}/v2/models/digits/infer")[0] == 0
        inside = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0]
        os.kill(int(inside), signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        # What is traced outlives strace.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    text = trace.read_text(errors="replace")
    made = set(re.findall(r"^\d+ +(\w+)\(", text, re.MULTILINE))
    # The first call starts the program, which systemd does before the filter is in place.
    assert made - calls - {"execve"} == set()
    # MemoryDenyWriteExecute: no memory that can be written and run.
    assert not re.search(r"PROT_WRITE\|PROT_EXEC", text)


def test_it_tells_systemd_when_it_is_ready_and_when_it_stops(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices:
        notices.bind(str(tmp_path / "notify"))
        notices.settimeout(5)
        environment = clean_environment({"NOTIFY_SOCKET": str(tmp_path / "notify")})
        process = started([BIN, *READY, "--listen", "127.0.0.1:0"], tmp_path, env=environment)
        try:
            assert until(lambda: "READY=1" in notices.recv(4096).decode().splitlines())
            process.send_signal(signal.SIGTERM)
            assert until(lambda: "STOPPING=1" in notices.recv(4096).decode().splitlines())
            assert process.wait(20) == 0
        finally:
            process.kill()


def test_it_serves_on_the_socket_that_systemd_holds(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        command = [sys.executable, "-c", PASSES, str(listener.fileno()), BIN, *READY, "--listen", "127.0.0.1:0"]
        process = started(command, tmp_path, pass_fds=[listener.fileno()], env=clean_environment())
        try:
            code, _ = run("curl", "-sf", "--max-time", 8, f"http://127.0.0.1:{port}/v2/health/live")
            assert code == 0
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
        finally:
            process.kill()


def test_a_stop_is_never_cut_short():
    (stop,) = setting("TimeoutStopSec")
    assert int(stop.removesuffix("s")) > 30  # the default of server.shutdown_grace
    assert setting("Type") == ["notify"]
