"""The server under test: started with a configuration on a free port, asked over HTTP, stopped with SIGTERM."""

import http.client
import json
import pathlib
import re
import signal
import socket
import subprocess
import time

from . import processes


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def toml(config):
    """Sections of strings, numbers, booleans and lists; JSON writes those as TOML does."""
    lines = []
    for section, keys in config.items():
        lines.append(f"[{section}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    return "\n".join(lines) + "\n"


def write(folder, models, config, device):
    """plimsoll.toml in a folder; returns the port that it names."""
    port = free_port()
    sections = {
        "server": {"listen": f"127.0.0.1:{port}", "shutdown_grace": "5s"},
        "device": {"kind": device},
        "models": {"path": str(pathlib.Path(models).resolve()), "watch": False},
    }
    for section, keys in config.items():
        sections.setdefault(section, {}).update(keys)
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    (pathlib.Path(folder) / "plimsoll.toml").write_text(toml(sections))
    return port


def command(*arguments, cwd, seconds=60, env=None):
    """A command of the binary to its end, whatever its exit code is."""
    return processes.run_any([processes.BIN, *arguments], seconds, cwd=cwd, env=processes.environment(env))


def checked(folder, models, config, device):
    """The ledger of a start that does not listen."""
    write(folder, models, config, device)
    done = command("check", "--json", cwd=folder, seconds=60)
    try:
        return json.loads(done.stdout)
    except json.JSONDecodeError:
        raise RuntimeError(f"check ended with {done.returncode}: {done.stderr[-2000:]}") from None


def bench(folder, model, device, precision, *more):
    """The figures of `plimsoll bench`; the CPU has one precision, which needs no name."""
    asked = ["--precision", precision] if device == "cuda" else []
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    done = command("bench", model, "--device", device, "--json", *asked, *more, cwd=folder, seconds=120)
    if done.returncode != 0:
        raise RuntimeError(f"bench ended with {done.returncode}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


class Server:
    """As a context it is started, and in the end stopped; `meter` measures it on the device."""

    def __init__(self, folder, models, config, device, meter=None, env=None):
        self.folder, self.meter = pathlib.Path(folder), meter
        self.port = write(folder, models, config, device)
        if meter:
            meter.begin()
        self.begun = time.perf_counter()
        with open(self.folder / "log.txt", "wb") as log:
            self.process = processes.popen(
                [processes.BIN, "serve"], cwd=folder, env=processes.environment(env),
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def start(self, seconds=60, every=0.005):
        """Waits until it is ready; returns the seconds since its process was started."""
        while not self.is_ready():
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended with {self.process.returncode}:\n{self.log()[-3000:]}")
            if time.perf_counter() - self.begun > seconds:
                raise RuntimeError(f"not ready within {seconds} s:\n{self.log()[-3000:]}")
            time.sleep(every)
        took = time.perf_counter() - self.begun
        if self.meter:
            self.meter.settle(self.process.pid)
        return took

    def is_ready(self):
        try:
            return self.get("/v2/health/ready", 5)[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def log(self):
        return (self.folder / "log.txt").read_text(errors="replace")

    def stop(self, seconds=15):
        """Stops it as an operator would; returns what was wrong with its end."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return [f"it did not end within {seconds} s of SIGTERM"]
        wrong = [] if code == 0 else [f"exit code {code}: {self.log()[-500:]}"]
        return wrong + (["it panicked: see its log"] if "panicked" in self.log() else [])

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.process.kill()
            raise
        return self

    def __exit__(self, kind, *_):
        if kind is not None:
            self.process.kill()
            self.process.wait(10)
        elif wrong := self.stop():
            raise RuntimeError("; ".join(wrong))

    def request(self, method, path, body=None, headers=None, seconds=40):
        """Status and body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def get(self, path, seconds=40):
        return self.request("GET", path, seconds=seconds)

    def json(self, path):
        status, body = self.get(path)
        if status != 200:
            raise RuntimeError(f"{path} is {status}: {body[:300]!r}")
        return json.loads(body)

    def load(self, model):
        return self.request("POST", f"/v2/repository/models/{model}/load", b"")

    def unload(self, model):
        return self.request("POST", f"/v2/repository/models/{model}/unload", b"")

    def memory(self):
        return self.json("/v2/memory")

    def metric(self, name):
        """The sum of a metric over its labels."""
        text = self.get("/metrics")[1].decode()
        lines = [line for line in text.splitlines() if re.match(rf"{name}(\{{| )", line)]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    def device_bytes(self):
        return self.meter.read(self.process.pid)
