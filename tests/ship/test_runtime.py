"""The images' last stages run without Docker: their file tree, assembled from the Dockerfile, as the root of a process.

As a container runtime would: namespaces of its own, the root read-only, the image's user without capabilities, its
environment, its command as process 1, and no place to write but the volumes.
"""

import hashlib
import json
import os
import pathlib
import platform
import shutil
import signal
import subprocess

import pytest
from images import KERNELS, Image
from server import ROOT, Server, until

MB = 1_000_000
# What each image may add to its base, and the binary alone.
BINARY = 30 * MB
LIMITS = {"cpu": 60 * MB, "cuda": 80 * MB, "jetson": 80 * MB}

# $1 is the root, $2 the user, the rest the command; ends as process 1 of its own namespace.
ENTER = """
set -e
root=$1 user=$2; shift 2
mount --make-rprivate /
mount --bind "$root" "$root"
mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
mount -t tmpfs -o "size=64m,mode=0755,uid=${user%:*},gid=${user#*:}" cache "$root/cache"
mount -o remount,bind,ro,nosuid "$root"
exec chroot --userspec="$user" --groups= "$root" "$@"
"""


@pytest.fixture(scope="module", params=LIMITS)
def tree(request, tmp_path_factory):
    """An image and what it adds to its base."""
    image = Image(request.param)
    offers = ["apt-get", "download", "--print-uris", "libc6"]
    if shutil.which("apt-get") is None or subprocess.run(offers, capture_output=True).returncode != 0:
        pytest.skip("skipped: the tree is made of Debian's packages, and apt-get offers none (apt-get update)")
    if image.name != "cpu" and not any(KERNELS.glob("*")):
        pytest.skip(f"skipped: no kernels in {KERNELS}: `plimsoll kernels build`, or set PLIMSOLL_KERNELS")
    return image, image.assemble(tmp_path_factory.mktemp(image.name) / "root")


def test_the_content_stays_below_its_limit(tree):
    image, root = tree
    sizes = {path: path.stat().st_size for path in root.rglob("*") if path.is_file() and not path.is_symlink()}
    total = sum(sizes.values())
    print(f"{image.name}: {total / MB:.1f} MB, of which the binary {sizes[root / 'usr/bin/plimsoll'] / MB:.1f} MB")
    assert total <= LIMITS[image.name], sorted(sizes.items(), key=lambda item: -item[1])[:10]
    assert sizes[root / "usr/bin/plimsoll"] <= BINARY


def test_the_bill_of_materials_is_that_of_the_binary_inside(tree):
    _, root = tree
    bill = json.loads((root / "usr/share/doc/plimsoll/sbom.json").read_text())
    binary = hashlib.sha256((root / "usr/bin/plimsoll").read_bytes()).hexdigest()
    assert bill["metadata"]["component"]["hashes"] == [{"alg": "SHA-256", "content": binary}]


class Container(Server):
    """The command of an image in its tree; `Server` has the requests."""

    def __init__(self, image, root, folder, port):
        stage, self.port, self.log_from, self.device = image.last, port, 0, image.name
        # As `docker run -e` would: the port may be taken on this machine, and less memory is sooner taken.
        env = stage.pairs("ENV") | {"PLIMSOLL_SERVER__LISTEN": f"127.0.0.1:{port}", "PLIMSOLL_MEMORY__CEILING": "1GiB"}
        env["PLIMSOLL_DEVICE__KIND"] = image.name
        command = [*stage.command("ENTRYPOINT"), *stage.command("CMD")]
        self.health = stage.command("HEALTHCHECK")
        self.user = stage.one("USER")
        self.log_path = folder / "log.txt"
        enter = ["sh", "-c", ENTER, "enter", root, self.user]
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                ["unshare", "--mount", "--pid", "--ipc", "--uts", "--kill-child", *enter, *command],
                env={"PATH": os.environ["PATH"]} | env, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    @property
    def inside(self):
        """The process that is number 1 inside, by its number outside."""
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return int(children.read_text().split()[0])

    def facts(self, file):
        return pathlib.Path(f"/proc/{self.inside}/{file}").read_text()


def bring_driver(root):
    """Puts a double of the driver where NVIDIA's container runtime puts the real one; a compiler it brings none."""
    place = root / f"usr/lib/{platform.machine()}-linux-gnu"
    subprocess.run([ROOT / "tests/fakecuda/build", place], check=True)
    (place / "libnvrtc.so").unlink()


def may_unshare():
    """Whether this machine lets a test have namespaces and mounts of its own."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "chroot", "mount"))):
        return False
    probe = ["unshare", "--mount", "--pid", "--fork", "sh", "-c", "mount -t tmpfs probe /mnt && chroot / true"]
    return subprocess.run(probe, capture_output=True).returncode == 0


@pytest.fixture
def container(tree, tmp_path, free_port):
    image, root = tree
    if image.name == "jetson":
        pytest.skip("skipped: an image for ARM does not run here")
    if not may_unshare():
        pytest.skip("skipped: this machine allows no namespaces, mounts and chroot (needs root)")
    if image.name == "cuda":
        if shutil.which("cc") is None:
            pytest.skip("skipped: there is no C compiler (cc), which makes the double of a GPU's driver")
        # The base has more than these, but no more of it is needed.
        subprocess.run([ROOT / "docker/tree", root], check=True)
        bring_driver(root)
    running = Container(image, root, tmp_path, free_port)
    try:
        until(lambda: ready(running), 30)
        yield running
    finally:
        running.process.kill()


def ready(container):
    assert container.process.poll() is None, container.log()
    try:
        return container.get("/v2/health/ready").status == 200
    except ConnectionError:
        return False


def test_it_serves_from_a_read_only_root_as_nobody_in_particular_and_stops_when_told(container):
    status = dict(line.split(":\t", 1) for line in container.facts("status").splitlines())
    mounts = [line.split() for line in container.facts("mountinfo").splitlines()]
    assert status["Uid"].split() == [container.user.split(":")[0]] * 4
    assert int(status["CapEff"], 16) == 0 and status["NSpid"].split()[-1] == "1"
    writable = {fields[4] for fields in mounts if "ro" not in fields[5].split(",")}
    assert writable == {"/proc", "/cache"}, mounts

    # Only CUDA is named there where its kernels were found; the double of a driver takes them and computes nothing.
    assert f'device="{container.device}"' in container.get("/metrics").body.decode()
    if container.device == "cpu":
        body = (ROOT / "models/digits/one.json").read_bytes()
        (output,) = container.post("/v2/models/digits/infer", body).json()["outputs"]
        assert max(range(10), key=output["data"].__getitem__) == 7
    # What the cache is for has arrived there.
    assert any(pathlib.Path(f"/proc/{container.inside}/root/cache").rglob("*"))

    os.kill(container.inside, signal.SIGTERM)
    assert container.process.wait(10) == 0, container.log()
    assert "panicked" not in container.log()


def test_the_health_check_tells_ready_from_stuck(container):
    enter = ["nsenter", f"--target={container.inside}", "--mount", "--pid", "--root", *container.health]
    environment = dict(pair.split("=", 1) for pair in container.facts("environ").split("\0") if "=" in pair)
    ask = lambda: subprocess.run(enter, env=environment, capture_output=True, text=True, timeout=10)
    healthy = ask()
    assert healthy.returncode == 0, healthy.stderr
    os.kill(container.inside, signal.SIGSTOP)
    try:
        assert ask().returncode == 1
    finally:
        os.kill(container.inside, signal.SIGCONT)
