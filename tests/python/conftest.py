"""Servers that several files share."""

import pytest

from server import BIN, FETCHED, MODELS, Server


def pytest_configure():
    if not BIN.is_file():
        pytest.exit(f"{BIN} is missing: cargo build --release, or set PLIMSOLL_BIN", 4)


@pytest.fixture(scope="session")
def digits(tmp_path_factory):
    """A server on the models that ship; nothing is unloaded from it."""
    with Server(tmp_path_factory.mktemp("digits"), MODELS) as server:
        yield server


@pytest.fixture(scope="session")
def fetched(tmp_path_factory):
    """A server on the fetched models, every one ready."""
    if not (FETCHED / "resnet50/model.onnx").is_file():
        pytest.fail(f"{FETCHED} is not complete: run models/fetch --light, or set PLIMSOLL_FETCHED")
    with Server(tmp_path_factory.mktemp("fetched"), FETCHED, {"memory": {"ceiling": "4GiB"}}) as server:
        yield server


@pytest.fixture
def serve(tmp_path):
    """Starts servers that live as long as the test and are stopped, and judged, at its end."""
    running = []

    def start(models, config=None, **more):
        server = Server(tmp_path / f"server{len(running)}", models, config, **more)
        running.append(server)
        return server.start()

    yield start
    try:
        for server in running:
            if server.process.poll() is None:
                server.stop()
    finally:
        for server in running:
            server.process.kill()
