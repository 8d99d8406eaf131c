"""What /openapi.json promises is what comes: schemathesis asks, and judges every answer by the document."""

import json
import pathlib
import shutil
import subprocess
import sys

import pytest

from server import MODELS, Server, clean_environment

CHECKS = [
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
]
# Not ready, deadline passed and does not fit are answers, and documented ones: a fault of the server is a 500.
CONFIG = """
[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", 503, 504, 507]
"""
# With the model's name given, requests get past it to their bodies.
KNOWN = """
[parameters]
"path.model" = "digits"
"path.version" = "1"
"""
CASES = 2000


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server of its own: what is tried here includes unloading the model."""
    models = tmp_path_factory.mktemp("openapi-models")
    shutil.copytree(MODELS / "digits", models / "digits")
    with Server(tmp_path_factory.mktemp("openapi"), models) as server:
        yield server


def schemathesis(server, folder, config, *options):
    """One run; returns its report, or fails with what schemathesis prints."""
    (folder / "schemathesis.toml").write_text(config)
    # One worker: CPython 3.11 can fail in its own parser when two threads of schemathesis describe their strategies.
    command = [
        pathlib.Path(sys.executable).with_name("schemathesis"), "--config-file=schemathesis.toml",
        "run", f"{server.url}/openapi.json", f"--checks={','.join(CHECKS)}", "--phases=examples,coverage,fuzzing",
        "--seed=1", "--workers=1", "--no-color", "--generation-database=none", "--no-shrink",
        "--continue-on-failure", "--suppress-health-check=all", "--report=json", "--report-json-path=report.json",
        *options,
    ]  # fmt: skip
    done = subprocess.run(command, cwd=folder, env=clean_environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    report = json.loads((folder / "report.json").read_text())
    assert report["complete"] and not report["failures"] and not report["errors"], report
    assert report["operations"]["tested"] == report["operations"]["selected"] > 0, report["operations"]
    return report


@pytest.fixture(scope="module")
def generated():
    """Cases generated so far, by run."""
    return {}


def test_requests_to_a_known_model_get_the_answers_that_the_document_describes(server, generated, tmp_path):
    options = ["--exclude-operation-id=unload", "--max-examples=150"]
    report = schemathesis(server, tmp_path, CONFIG + KNOWN, *options)
    generated["known"] = report["test_cases"]["generated"]
    assert server.get("/v2/models/digits/ready").status == 200
    assert server.statistics("digits")["inference_count"] > 0, "some requests should be good ones"


def test_requests_to_any_model_and_unloads_get_the_answers_that_the_document_describes(server, generated, tmp_path):
    report = schemathesis(server, tmp_path, CONFIG, "--max-examples=70")
    generated["any"] = report["test_cases"]["generated"]


def test_these_were_2000_cases_or_more(generated):
    assert generated.keys() == {"known", "any"}, "a run before failed"
    assert sum(generated.values()) >= CASES, generated


def test_the_document_is_served_as_json_and_names_its_version(server):
    document = server.get("/openapi.json").json()
    assert document["openapi"].startswith("3.") and document["info"]["title"] == "Plimsoll"
    for path, operations in document["paths"].items():
        for method in operations.keys() - {"parameters"}:
            assert "200" in operations[method]["responses"], (method, path)
