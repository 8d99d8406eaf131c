"""Compose files, alerts and the dashboard: what they name exists, the metrics on a running server above all."""

import json
import re
import shutil
import subprocess
import tomllib

import promql_parser as promql
import pytest
import yaml
from images import IMAGES
from server import MODELS, ROOT, Server

WATCH = ROOT / "docker/watch"
COMPOSE = [*(ROOT / f"docker/compose.{name}.yaml" for name in IMAGES), WATCH / "compose.yaml"]
# Not ours: Prometheus makes them for every target.
FOREIGN, TARGET_LABELS = {"up"}, {"instance", "job", "namespace", "pod"}


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def mebibytes(text):
    number, unit = re.fullmatch(r"(\d+) ?([mMgG])\w*", text).groups()
    return int(number) * {"m": 1, "g": 1024}[unit.lower()]


def test_compose_files_have_the_form_of_their_specification():
    code, told = run("check-jsonschema", "--builtin-schema", "vendor.compose-spec", *COMPOSE)
    assert code == 0, told


@pytest.mark.parametrize("file", COMPOSE, ids=lambda file: str(file.relative_to(ROOT)))
def test_what_a_compose_file_mounts_builds_and_includes_is_there(file):
    document = yaml.safe_load(file.read_text())
    paths = list(document.get("include", []))
    for service in document["services"].values():
        if "build" in service:
            context = service["build"]["context"]
            paths += [context, f"{context}/{service['build']['dockerfile']}"]
        for volume in service["volumes"]:
            source = re.sub(r"\$\{\w+:-(.*?)\}", r"\1", volume).split(":")[0]
            paths += [source] if source.startswith(".") else []
            assert source.startswith(".") or source in document["volumes"], volume
    assert all((file.parent / path).exists() for path in paths), paths


@pytest.mark.parametrize("name", IMAGES)
def test_a_container_may_write_nowhere_may_do_nothing_and_has_time_to_stop(name):
    service = yaml.safe_load((ROOT / f"docker/compose.{name}.yaml").read_text())["services"]["plimsoll"]
    assert service["read_only"] and service["cap_drop"] == ["ALL"]
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert int(service["stop_grace_period"].removesuffix("s")) > 30  # the default of server.shutdown_grace


def test_the_limit_of_the_container_is_above_the_ceiling():
    service = yaml.safe_load((ROOT / "docker/compose.cpu.yaml").read_text())["services"]["plimsoll"]
    ceiling = tomllib.loads((ROOT / "config/cpu.toml").read_text())["memory"]["ceiling"]
    assert mebibytes(service["mem_limit"]) > mebibytes(ceiling)


def expressions():
    """Every expression that is asked of Prometheus, by where it stands."""
    dashboard = json.loads((WATCH / "grafana/plimsoll.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield f"panel: {panel['title']}", target["expr"]
    for group in yaml.safe_load((WATCH / "alerts.yml").read_text())["groups"]:
        for rule in group["rules"]:
            yield f"alert: {rule['alert']}", rule["expr"]
    cluster = ROOT / "cluster/prometheus-adapter.yaml"
    for rule in yaml.safe_load(cluster.read_text())["rules"]["custom"]:
        yield "autoscaler", rule["seriesQuery"]


def asked(expression):
    """The metrics of an expression, and the labels that it selects or groups them by."""
    metrics, labels = set(), set()

    def visit(node):
        if isinstance(node, promql.VectorSelector):
            metrics.add(node.name)
            labels.update(matcher.name for matcher in node.matchers.matchers)
        elif isinstance(node, promql.AggregateExpr) and node.modifier:
            labels.update(node.modifier.labels)

    promql.walk(promql.parse(expression.replace("$__rate_interval", "5m")), visit)
    return metrics, labels - TARGET_LABELS


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Every metric of a server that has answered a request, with its labels."""
    with Server(tmp_path_factory.mktemp("served"), MODELS) as server:
        assert server.post("/v2/models/digits/infer", (MODELS / "digits/one.json").read_bytes()).status == 200
        text = server.get("/metrics").body.decode()
    metrics = {}
    for name, labels in re.findall(r"^([a-z_]+)(\{.*\})? ", text, re.MULTILINE):
        metrics.setdefault(name, set()).update(re.findall(r"(\w+)=", labels))
    return metrics


@pytest.mark.parametrize("where, expression", list(expressions()))
def test_every_metric_and_label_that_is_asked_for_exists(served, where, expression):
    metrics, labels = asked(expression)
    assert metrics
    for metric in metrics - FOREIGN:
        assert metric in served, f"{where}: {metric}"
        assert labels <= served[metric], f"{where}: {metric} has {served[metric]}"


def test_the_dashboard_asks_a_source_that_is_provisioned():
    (source,) = yaml.safe_load((WATCH / "grafana/datasources.yaml").read_text())["datasources"]
    dashboard = json.loads((WATCH / "grafana/plimsoll.json").read_text())
    panels = dashboard["panels"]
    for item in [*panels, *(target for panel in panels for target in panel["targets"])]:
        assert item["datasource"] == {"type": source["type"], "uid": source["uid"]}
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_promtool_takes_the_configuration():
    if shutil.which("promtool") is None:
        pytest.skip("skipped: there is no promtool; the expressions are parsed above")
    code, told = run("promtool", "check", "config", WATCH / "prometheus.yml")
    assert code == 0, told
