"""What the documents of images, service and cluster tell to type, as far as it can be tried without those."""

import re
import shlex
import subprocess

import pytest
from images import Image
from server import MODELS, ROOT, Server

DOCUMENTS = [*(ROOT / f"{folder}/README.md" for folder in ("docker", "service")), *ROOT.glob("docs/[cg]*.md")]
FOLDERS = r"(?:cluster|config|docker|docs|models|service|tests)/[\w./-]*\w"
# No files: an address of the server, and a service of Kubernetes.
NO_FILES = ("models/digits/infer", "service/plimsoll")


@pytest.fixture(params=DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def document(request):
    return request.param


def commands(document):
    """Indented lines, continued ones joined, without remarks."""
    text = re.sub(r" *\\\n *", " ", document.read_text())
    return [re.sub(r"\s{2,}#.*", "", line.strip()) for line in text.splitlines() if line.startswith("    ")]


def test_every_path_that_is_named_is_there(document):
    text = document.read_text()
    links = [(document.parent / link).resolve() for link in re.findall(r"\]\(([^):]+)\)", text)]
    named = [ROOT / path for path in re.findall(rf"(?<![\w./-]){FOLDERS}", text) if path not in NO_FILES]
    assert links + named and all(path.exists() for path in links + named), [p for p in links + named if not p.exists()]


def test_every_build_names_arguments_that_its_dockerfile_has():
    builds = [line for line in commands(ROOT / "docker/README.md") if line.startswith("docker build")]
    for words in map(shlex.split, builds):
        image = Image(re.match(r"docker/(\w+)\.Dockerfile", words[words.index("-f") + 1])[1])
        tag = words[words.index("-t") + 1]
        assert tag.startswith(f"plimsoll:{'jetpack' if image.name == 'jetson' else image.name}") and words[-1] == "."
        for argument in (words[at + 1] for at, word in enumerate(words) if word == "--build-arg"):
            name, value = argument.split("=")
            assert name in image.arguments and any(stage.name.endswith(f"-{value}") for stage in image.stages)


def test_every_request_is_answered(tmp_path):
    asked = {line for path in DOCUMENTS for line in commands(path) if line.startswith("curl")}
    with Server(tmp_path, MODELS) as server:
        for line in asked:
            command = line.replace("127.0.0.1:8000", server.address)
            done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True)
            assert '"outputs"' in done.stdout, (line, done.stdout, done.stderr)
    assert asked
