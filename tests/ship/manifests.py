"""Manifests for a cluster as data, and what the server says of the configuration in them."""

import json
import re

import yaml
from server import MODELS, ROOT, run

CLUSTER = ROOT / "cluster"
# The oldest and the newest release whose schemas everything is compared with.
KUBERNETES = ("1.31", "1.37")
UNITS = {"": 1, "Mi": 1 << 20, "Gi": 1 << 30, "MiB": 1 << 20, "GiB": 1 << 30}


def documents(name):
    return list(yaml.safe_load_all((CLUSTER / name).read_text()))


def kinds(name):
    return {document["kind"]: document for document in documents(name)}


def bytes_of(text):
    number, unit = re.fullmatch(r"(\d+)(\w*)", text).groups()
    return int(number) * UNITS[unit]


def checked(tmp_path, config=None, env=None):
    """What `plimsoll check` says of a configuration, on the CPU."""
    (tmp_path / "plimsoll.toml").write_text(config or "")
    done = run("check", "--json", "--models", MODELS, "--device", "cpu", cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
