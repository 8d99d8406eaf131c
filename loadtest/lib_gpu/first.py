"""How much longer does the first request after ready take than those after it?"""

import pathlib
import shutil
import statistics
import time

from . import wire
from .server import Server

# The shapes that each model's file or model.toml declares.
DECLARED = {
    "digits": [["image", "FP32", [1, 1, 8, 8]]],
    "ppocr-cls": [["x", "FP32", [1, 3, 48, 192]]],
    "magika": [["bytes", "INT32", [1, 2048]]],
    "squeezenet": [["data_0", "FP32", [1, 3, 224, 224]]],
    "nudenet": [["images", "FP32", [1, 3, 320, 320]]],
}
STARTS, NEXT, BOUND = 3, 50, 1.5


def milliseconds(server, model):
    """How long the first request took, and each of the next ones."""
    request = wire.asked(wire.question(model, DECLARED[model]))
    connection, took = wire.Connection(server.port), []
    # As a client that has waited for ready does: what is asked about is the model, and not the making of a connection.
    connection.ask(b"GET /v2/health/ready HTTP/1.1\r\nHost: plimsoll\r\n\r\n")
    for _ in range(1 + NEXT):
        begun = time.perf_counter()
        status, body = connection.ask(request)
        took.append((time.perf_counter() - begun) * 1e3)
        assert status == 200, f"{model}: {status} {bytes(body[:300])!r}"
    connection.close()
    return took[0], took[1:]


def scenario_13_first_requests_are_as_fast_as_the_next(place):
    """Scenario 13: medians of a few starts, since another process may get in the way of any one request."""
    there = [name for name in DECLARED if (pathlib.Path(place.shelf) / name / "model.onnx").is_file()]
    assert there, f"{place.shelf} has none of {', '.join(DECLARED)}"
    for name in there:
        shutil.copytree(pathlib.Path(place.shelf) / name, place.models / name)
    ratios = {name: [] for name in there}
    config = {"memory": {"ceiling": "2GiB" if place.device == "cuda" else "512MiB"}}
    for start in range(STARTS):
        with Server(place.folder / f"server{start}", place.models, config, place.device) as server:
            # Each model in turn is the first of all.
            for name in there[start:] + there[:start]:
                first, rest = milliseconds(server, name)
                ratios[name].append(first / statistics.median(rest))
    told = ", ".join(f"{name} {statistics.median(seen):.2f}" for name, seen in ratios.items())
    late = [name for name, seen in ratios.items() if statistics.median(seen) > BOUND]
    assert not late, f"first over median: {told}; more than {BOUND} for {', '.join(late)}"
    return f"first over median: {told}"
