"""Dockerfiles as data, and the file tree that the last stage of one describes, made without Docker."""

import fnmatch
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess

from dockerfile_parse import DockerfileParser
from server import BIN, ROOT

IMAGES = ("cpu", "cuda", "jetson")
KERNELS = pathlib.Path(os.environ.get("PLIMSOLL_KERNELS", ROOT / "target/kernels"))


def ignored(path):
    """Whether .dockerignore keeps a path (relative to the project) from the build; the last rule that fits decides."""
    verdict = False
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        rule = line.split("#")[0].strip()
        pattern = rule.removeprefix("!")
        names = [path, *map(str, pathlib.PurePath(path).parents)][:-1] or [path]
        if rule and any(fnmatch.fnmatch(name, pattern) for name in names):
            verdict = not rule.startswith("!")
    return verdict


def context(pattern):
    """The files of the project that a COPY of this source brings: path in the project → path below the source."""
    files = {}
    for source in sorted(ROOT.glob(pattern)):
        inside = [source] if source.is_file() else sorted(path for path in source.rglob("*") if path.is_file())
        for path in inside:
            if not ignored(str(path.relative_to(ROOT))):
                files[path] = path.relative_to(source) if source.is_dir() else pathlib.Path(path.name)
    return files


class Copy:
    """One COPY: sources, destination, the stage that it copies from (None: the project) and the owner."""

    def __init__(self, value):
        words = shlex.split(value)
        flags = dict(word[2:].split("=", 1) for word in words if word.startswith("--"))
        *self.sources, self.to = [word for word in words if not word.startswith("--")]
        self.stage, self.owner = flags.get("from"), flags.get("chown")


class Stage:
    """The instructions between one FROM and the next."""

    def __init__(self, base, name):
        self.base, self.name, self.steps = base, name, []

    def all(self, instruction):
        return [value for step, value in self.steps if step == instruction]

    def one(self, instruction):
        (value,) = self.all(instruction)
        return value

    def command(self, instruction):
        """A command in the form of a list; that of HEALTHCHECK comes after its options."""
        return json.loads(re.search(r"\[.*\]", self.one(instruction))[0])

    def pairs(self, instruction):
        """NAME=value, as ENV and LABEL have them."""
        return dict(word.split("=", 1) for value in self.all(instruction) for word in shlex.split(value))

    @property
    def copies(self):
        return [Copy(value) for value in self.all("COPY")]


class Image:
    """A Dockerfile: `arguments` that stand before the first FROM, and `stages`."""

    def __init__(self, name):
        self.name, self.path = name, ROOT / f"docker/{name}.Dockerfile"
        self.arguments, self.stages = {}, []
        with open(self.path, "rb") as file:
            for step in DockerfileParser(fileobj=file).structure:
                self._take(step["instruction"], step["value"])

    def _take(self, instruction, value):
        if instruction == "FROM":
            base, _, name = value.partition(" AS ")
            self.stages.append(Stage(base, name))
        elif instruction == "ARG" and not self.stages:
            self.arguments.update([value.split("=", 1)])
        elif instruction != "COMMENT":
            self.stages[-1].steps.append((instruction, value))

    def stage(self, name):
        return next(stage for stage in self.stages if stage.name == name)

    @property
    def last(self):
        return self.stages[-1]

    def resolve(self, text):
        """Puts the defaults of the arguments in."""
        return re.sub(r"\$\{(\w+)\}", lambda match: self.arguments[match[1]], text)

    def assemble(self, root):
        """What the last stage adds to its base, below `root`; what an earlier stage makes is made here the same way."""
        for copy in self.last.copies:
            for source in copy.sources:
                target = root / copy.to.lstrip("/")
                if copy.stage is None:
                    self._copy_project(source, copy.to, root)
                elif (copy.stage, source) == ("tree", "/tree"):
                    subprocess.run([ROOT / "docker/tree", root], check=True)
                elif source.endswith("/plimsoll"):
                    target.mkdir(parents=True, exist_ok=True)
                    subprocess.run(["strip", "-o", target / "plimsoll", BIN], check=True)
                elif source.endswith("/sbom.json"):
                    with open(target / "sbom.json", "wb") as bill:
                        subprocess.run([ROOT / "docker/sbom", root / "usr/bin/plimsoll"], stdout=bill, check=True)
                elif source == "/kernels":
                    shutil.copytree(KERNELS, target)
                elif source == "/cache":
                    target.mkdir()
                    if os.geteuid() == 0:
                        os.chown(target, *map(int, copy.owner.split(":")))
                else:
                    target.mkdir(parents=True, exist_ok=True)
                    shutil.copy(source, target)
        return root

    @staticmethod
    def _copy_project(source, to, root):
        for path, below in context(source).items():
            one_name = (ROOT / source).is_file() and not to.endswith("/")
            place = root / to.lstrip("/") / ("" if one_name else below)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place)
