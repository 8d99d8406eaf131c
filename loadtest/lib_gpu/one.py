"""A repository of one model, and what a lane must have for it."""

import json
import pathlib
import shutil

from . import nets, wire
from .server import bench

MIB = 1 << 20
NAME = "m"


def buckets(most):
    """The rows that the server prepares programs for: powers of two below max_batch, and that."""
    return [1 << at for at in range(most.bit_length()) if 1 << at < most] + [most]


def repository(folder, arguments, max_batch, prepared):
    """The model with its settings; shapes of so many rows each are made ready before the first request."""
    place = pathlib.Path(folder) / NAME
    place.mkdir(parents=True)
    shutil.copy(arguments.model, place / "model.onnx")
    settings = [f"max_batch = {max_batch}", f'precision = "{arguments.precision}"' * (arguments.device == "cuda")]
    ports = nets.ports(arguments.model)
    sets = [{name: shape for name, _, shape in nets.shaped(ports, rows)} for rows in prepared]
    # TOML takes names in quotes as JSON has them.
    tables = ", ".join("{ " + ", ".join(f"{json.dumps(name)} = {shape}" for name, shape in each.items()) + " }" for each in sets)
    (place / "model.toml").write_text("\n".join([*settings, f"prepare = [{tables}]"]) + "\n")
    return folder


def question(arguments, rows):
    return wire.question(NAME, nets.shaped(nets.ports(arguments.model), rows), rows)


def benched(scratch, arguments, rows, seconds, lanes=1):
    model = pathlib.Path(arguments.model).resolve()
    more = ["--batch", rows, "--lanes", lanes, "--seconds", seconds]
    return bench(scratch / "bench", model, arguments.device, arguments.precision, *more)


def workspace(scratch, arguments, rows):
    """Bytes that a lane must have for runs of up to so many rows; 4 KiB more, since a lane whose memory is not pinned has
    some words of its own in it."""
    return 4096 + max(benched(scratch, arguments, each, 0.05)["memory"]["workspace_bytes"] for each in {1, rows})
