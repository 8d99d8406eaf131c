"""The real binary as a context: started with a configuration on a free port, stopped with SIGTERM, its log kept."""

import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("PLIMSOLL_BIN", ROOT / "target/release/plimsoll")).resolve()
FETCHED = pathlib.Path(os.environ.get("PLIMSOLL_FETCHED", ROOT / "fetched-models")).resolve()
MODELS = ROOT / "models"

# A short grace period: a stop first waits a tenth of it for load balancers to notice.
BASE = {"server": {"listen": "127.0.0.1:0", "shutdown_grace": "5s"}, "device": {"kind": "cpu"}}


def clean_environment(extra=None):
    """The environment without our own variables, of which the binary refuses those that it does not know."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PLIMSOLL_")}
    return kept | (extra or {})


def run(*arguments, cwd, env=None, timeout=60):
    """Runs a command of the binary to its end."""
    command = [str(BIN), *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=clean_environment(env), capture_output=True, text=True, timeout=timeout)


def toml(config):
    """Sections of strings, numbers, booleans and lists as TOML; JSON writes those the same way."""
    lines = []
    for section, keys in config.items():
        lines.append(f"[{section}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    return "\n".join(lines) + "\n"


def until(condition, seconds=10, every=0.01):
    """Polls until the condition holds and returns what it returned."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"not within {seconds} s: {getattr(condition, '__name__', condition)}"
        time.sleep(every)


class Answer:
    """Status, headers and body of an answer."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        """The sentence of an error, which must come in the protocol's form."""
        assert self.headers["content-type"] == "application/json", self
        document = self.json()
        assert list(document) == ["error"] and document["error"], self
        return document["error"]

    def __repr__(self):
        return f"Answer({self.status}, {dict(self.headers)}, {self.body[:300]!r})"


def read_answer(response):
    return Answer(response.status, response.headers, response.read())


class Server:
    """One process. `config` maps sections of plimsoll.toml to keys, over those of `BASE`; `before` is a command that
    starts it, with these file descriptors."""

    def __init__(
        self, folder, models, config=None, arguments=(), env=None, command=("serve",), before=(), fds=()
    ):  # fmt: skip
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        sections = {section: dict(keys) for section, keys in BASE.items()}
        sections["models"] = {"path": str(models)}
        for section, keys in (config or {}).items():
            sections.setdefault(section, {}).update(keys)
        (self.folder / "plimsoll.toml").write_text(toml(sections))
        self.log_path = self.folder / "log.txt"
        with open(self.log_path, "ab") as log:
            self.log_from = log.tell()
            self.process = subprocess.Popen(
                [*before, str(BIN), *command, *map(str, arguments)], pass_fds=fds,
                cwd=self.folder, env=clean_environment(env), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def start(self, seconds=60):
        try:
            self.port = int(until(self._listening, seconds))
            until(lambda: self.get("/v2/health/ready").status == 200, seconds)
        except BaseException:
            self.process.kill()
            raise
        return self

    def _listening(self):
        assert self.process.poll() is None, f"ended with {self.process.returncode}:\n{self.log()}"
        match = re.search(r"listening address=127\.0\.0\.1:(\d+)", self.log())
        return match and match[1]

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            file.seek(self.log_from)
            return file.read()

    def stop(self, seconds=20):
        """Stops it as an operator would; it must end well and never have panicked."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"it did not end within {seconds} s of SIGTERM:\n{self.log()[-3000:]}") from None
        assert "panicked" not in self.log(), self.log()[-3000:]
        assert code == 0, f"exit code {code}:\n{self.log()[-3000:]}"

    def kill(self):
        """Cuts the power."""
        self.process.kill()
        self.process.wait(10)

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, *_):
        # A test that failed says why itself; what its server thinks of its end would only hide that.
        if kind is not None:
            self.process.kill()
            self.process.wait(10)
        else:
            self.stop()

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    @property
    def url(self):
        return f"http://{self.address}"

    def connect(self, timeout=60):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def request(self, method, path, body=None, headers=None, connection=None, timeout=60):
        own = connection or self.connect(timeout)
        try:
            own.request(method, path, body, headers or {})
            return read_answer(own.getresponse())
        finally:
            if connection is None:
                own.close()

    def get(self, path, headers=None):
        return self.request("GET", path, headers=headers)

    def post(self, path, body=b"", headers=None, connection=None, timeout=60):
        return self.request("POST", path, body, headers, connection, timeout)

    def load(self, model):
        return self.post(f"/v2/repository/models/{model}/load")

    def unload(self, model):
        return self.post(f"/v2/repository/models/{model}/unload")

    def memory(self):
        return self.get("/v2/memory").json()

    def statistics(self, model):
        """Statistics of the model's newest version."""
        return self.get(f"/v2/models/{model}/stats").json()["model_stats"][-1]

    def metric(self, name):
        """The sum of a metric over its labels."""
        text = self.get("/metrics").body.decode()
        lines = [line for line in text.splitlines() if re.match(rf"{name}(\{{| )", line)]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    def resident_bytes(self):
        return self._status("VmRSS")

    def peak_bytes(self):
        """The most that has been resident since the start."""
        return self._status("VmHWM")

    def _status(self, name):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(rf"{name}:\s+(\d+) kB", status)[1]) * 1024
