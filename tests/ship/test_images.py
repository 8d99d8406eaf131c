"""What the Dockerfiles name exists, and what they repeat is the same everywhere. No Docker is needed."""

import functools
import re
import shutil
import subprocess
import sys

import pytest
from images import IMAGES, Image, context, ignored
from server import BIN, ROOT

# The oldest C library that an image brings is that of Ubuntu 22.04.
OLDEST_GLIBC = (2, 35)


@pytest.fixture(params=IMAGES)
def image(request):
    return Image(request.param)


def run(*command, **more):
    done = subprocess.run(command, capture_output=True, text=True, **more)
    return done.returncode, done.stdout + done.stderr


def test_hadolint_finds_nothing():
    code, told = run("hadolint", *(Image(name).path for name in IMAGES))
    assert code == 0, told


def test_every_source_of_a_copy_is_there_and_not_ignored(image):
    names = {stage.name for stage in image.stages}
    for stage in image.stages:
        for copy in stage.copies:
            if copy.stage is None:
                assert all(context(source) for source in copy.sources), copy.sources
            else:
                assert copy.stage in names, copy.stage


def test_every_base_has_a_tag_or_is_a_stage(image):
    stages = {stage.name for stage in image.stages}
    for stage in image.stages:
        base = image.resolve(stage.base)
        assert base in stages | {"scratch"} or re.fullmatch(r"[\w./-]+:(?!latest)[\w.-]+", base), base


def test_nothing_is_sent_to_the_builder_that_no_image_takes():
    for path in ("target/release/plimsoll", "fetched-models/magika/model.onnx", ".git/config", "tests/run"):
        assert ignored(path), path
    assert not ignored("engine/src/lib.rs") and not ignored("config/cpu.toml")


def test_all_images_build_the_same_way():
    built = [Image(name).stage("build").steps for name in IMAGES]
    assert built[0] == built[1] == built[2]


def test_all_images_run_the_same_way():
    for instruction in ("USER", "VOLUME", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT", "CMD"):
        assert len({Image(name).last.one(instruction) for name in IMAGES}) == 1, instruction
    assert Image("cpu").last.one("USER").split(":")[0] not in ("0", "root")


def test_versions_are_those_of_the_project(image):
    toolchain = re.search(r'channel = "(.+)"', (ROOT / "rust-toolchain.toml").read_text())[1]
    version = re.search(r'^version = "(.+)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
    assert image.arguments["RUST"] == toolchain
    assert f"VERSION={version}" in image.last.all("ARG")
    assert image.last.pairs("LABEL").keys() >= {f"org.opencontainers.image.{key}" for key in ("version", "licenses")}


def test_the_layer_of_dependencies_is_a_workspace_that_cargo_takes(tmp_path):
    if shutil.which("cargo") is None:
        pytest.skip("skipped: there is no cargo")
    build = Image("cpu").stage("build")
    stubs = next(value for step, value in build.steps if step == "RUN").split("&& cargo")[0]
    for copy in build.copies[:4]:
        for source in copy.sources:
            (tmp_path / copy.to).mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / source, tmp_path / copy.to)
    assert run("sh", "-ec", stubs, cwd=tmp_path)[0] == 0
    code, told = run("cargo", "metadata", "--locked", "--offline", "--no-deps", "--format-version=1", cwd=tmp_path)
    assert code == 0 and '"plimsoll-engine"' in told, told


def packages_of_debian():
    """What is installed by apt-get in a stage, or taken apart by docker/tree."""
    listed = re.search(r'^packages="(.+)"', (ROOT / "docker/tree").read_text(), re.MULTILINE)[1].split()
    for stage in (stage for name in IMAGES for stage in Image(name).stages):
        for value in stage.all("RUN"):
            for words in re.findall(r"apt-get install ([^&]*)", value):
                listed += [word for word in words.split() if not word.startswith("-")]
    return sorted(set(listed))


@pytest.mark.parametrize("package", packages_of_debian())
def test_every_package_of_debian_exists(package):
    if shutil.which("apt-cache") is None:
        pytest.skip("skipped: there is no apt-cache")
    code, told = run("apt-cache", "show", package)
    assert code == 0, told


def compilers():
    """NVIDIA's compiler in each stage that has it, for the machine that the image is for."""
    for name, machine in (("cuda", "x86_64"), ("jetson", "aarch64")):
        for stage in Image(name).stages:
            for value in stage.all("RUN"):
                for package in re.findall(r"\S+==\S+", value):
                    yield package, machine


@functools.cache
def offered(name, machine):
    """Versions of a package that PyPI has for a machine, without downloading any."""
    platforms = [f"--platform=manylinux{tag}_{machine}" for tag in ("2014", "_2_17", "2010", "_2_12")]
    command = [sys.executable, "-m", "pip", "index", "versions", name, "--only-binary=:all:", *platforms]
    code, told = run(*command, "--python-version=3.13", "--disable-pip-version-check")
    return re.findall(r"[\d.]+", told.split("versions:")[1]) if code == 0 else told


@pytest.mark.parametrize("package, machine", list(compilers()))
def test_every_compiler_exists_for_its_machine(package, machine):
    name, version = package.split("==")
    assert version in offered(name, machine)


def test_the_newest_compiler_is_the_one_that_the_kernels_are_tested_with():
    requirements = (ROOT / "tests/python/requirements.txt").read_text()
    (tested,) = re.findall(r"^nvidia-cuda-nvrtc==\S+", requirements, re.MULTILINE)
    assert (tested, "x86_64") in list(compilers())


def test_the_binary_asks_for_no_newer_c_library_than_the_oldest_image_has():
    if shutil.which("readelf") is None:
        pytest.skip("skipped: there is no readelf")
    _, told = run("readelf", "--version-info", "--wide", BIN)
    versions = [tuple(map(int, version.split("."))) for version in re.findall(r"GLIBC_([\d.]+)", told)]
    assert max(versions) <= OLDEST_GLIBC


def test_shell_scripts_are_sound():
    if shutil.which("shellcheck") is None:
        pytest.skip("skipped: there is no shellcheck")
    code, told = run("shellcheck", ROOT / "docker/tree", ROOT / "docker/sbom")
    assert code == 0, told
