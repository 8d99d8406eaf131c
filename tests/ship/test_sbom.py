"""The bill of materials that docker/sbom makes is one by its schema, and tells what the binary really has in it."""

import json
import re
import shutil
import subprocess

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from server import BIN, ROOT


@pytest.fixture(scope="module")
def text():
    if shutil.which("cargo") is None:
        pytest.skip("skipped: there is no cargo")
    return subprocess.run([ROOT / "docker/sbom", BIN], capture_output=True, text=True, check=True).stdout


@pytest.fixture
def bill(text):
    return json.loads(text)


def test_the_schema_of_cyclonedx_takes_it(text):
    assert JsonStrictValidator(SchemaVersion.V1_5).validate_str(text) is None


def test_every_crate_whose_source_the_binary_names_is_in_it(bill):
    """Panics tell the file that they come from, so most crates with code of theirs in the binary are named there."""
    named = re.findall(rb"/registry/src/[^/]+/([\w-]+)-(\d+\.\d+\.\d+[\w.+-]*)/", BIN.read_bytes())
    named = {(name.decode(), version.decode()) for name, version in named}
    listed = {(part["name"], part["version"]) for part in bill["components"]}
    assert len(named) > 50 and not named - listed, named - listed


def test_every_crate_has_the_checksum_and_the_version_of_the_lock_file(bill):
    lock = (ROOT / "Cargo.lock").read_text()
    locked = re.findall(r'name = "(.+)"\nversion = "(.+)"\n(?:source = ".+"\nchecksum = "(.+)"\n)?', lock)
    sums = {(name, version): sum for name, version, sum in locked}
    for part in bill["components"]:
        told = part.get("hashes", [{"content": ""}])[0]["content"]
        assert part["name"] == "std" or told == sums[part["name"], part["version"]], part
        assert part["name"] in ("std", "plimsoll-engine") or told, part


def test_what_only_runs_while_it_is_built_is_not_in_it(bill):
    listed = {part["name"] for part in bill["components"]}
    assert {"tract-core", "tokio", "rustls", "libmimalloc-sys", "std"} <= listed
    assert not {"cc", "syn", "serde_derive", "proptest", "loom"} & listed


def test_what_depends_on_what_leads_from_the_binary_to_every_crate(bill):
    needs = {entry["ref"]: entry["dependsOn"] for entry in bill["dependencies"]}
    reached, open = set(), [bill["metadata"]["component"]["bom-ref"]]
    while open:
        one = open.pop()
        if one not in reached:
            reached.add(one)
            open += needs[one]
    assert reached == needs.keys() == {part["bom-ref"] for part in bill["components"]} | {"pkg:cargo/plimsoll@0.1.0"}
