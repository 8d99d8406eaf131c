"""Manifests for Kubernetes: valid by the schemas of those who read them, and in agreement about memory.

No cluster is needed. Kubernetes' schemas come from PyPI, the Prometheus operator's from npm.
"""

import copy
import json
import re
import shutil
import subprocess

import kubernetes_validate
import pytest
from images import Image
from manifests import KUBERNETES, bytes_of, checked, documents, kinds
from server import clean_environment

MANIFESTS = ("plimsoll.yaml", "plimsoll-gpu.yaml")
OPERATOR = "@kubernetes-models/prometheus-operator@6.0.0"


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("name", MANIFESTS)
def test_kubernetes_knows_every_field(name, version):
    for document in documents(name):
        kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("name", MANIFESTS)
def test_names_and_labels_lead_to_each_other(name):
    kind = kinds(name)
    deployment = kind["Deployment"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"].items() <= labels.items()
    for selector in (kinds("plimsoll.yaml")["Service"]["spec"]["selector"], monitored()):
        assert selector.items() <= labels.items()
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert {volume["name"] for volume in pod["volumes"]} == {mount["name"] for mount in container["volumeMounts"]}
    assert pod["volumes"][0]["configMap"]["name"] == kind["ConfigMap"]["metadata"]["name"]
    if "HorizontalPodAutoscaler" in kind:
        spec = kind["HorizontalPodAutoscaler"]["spec"]
        assert spec["scaleTargetRef"]["name"] == deployment["metadata"]["name"] and "replicas" not in deployment["spec"]
        assert spec["minReplicas"] > kind["PodDisruptionBudget"]["spec"]["minAvailable"]
        (rule,) = documents("prometheus-adapter.yaml")[0]["rules"]["custom"]
        assert spec["metrics"][0]["pods"]["metric"]["name"] == rule["name"]["as"]


def test_no_deployment_selects_anothers_pods():
    for own in MANIFESTS:
        selector = kinds(own)["Deployment"]["spec"]["selector"]["matchLabels"]
        for other in set(MANIFESTS) - {own}:
            labels = kinds(other)["Deployment"]["spec"]["template"]["metadata"]["labels"]
            assert not selector.items() <= labels.items(), (own, other)


def monitored():
    (monitor,) = documents("servicemonitor.yaml")
    service = kinds("plimsoll.yaml")["Service"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["spec"]["endpoints"][0]["port"] in [port["name"] for port in service["spec"]["ports"]]
    return monitor["spec"]["selector"]["matchLabels"]


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_pod_is_what_the_image_is(name):
    pod = kinds(name)["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    stage = Image(re.match(r"plimsoll:([a-z]+)", container["image"])[1]).last
    user, group = map(int, stage.one("USER").split(":"))
    assert (pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsGroup"]) == (user, group)
    assert container["ports"][0]["containerPort"] == int(stage.one("EXPOSE"))
    places = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert stage.pairs("ENV")["PLIMSOLL_CONFIG"] in places and stage.pairs("ENV")["PLIMSOLL_CACHE__DIR"] in places


@pytest.mark.parametrize("name", MANIFESTS)
def test_memory_asked_for_is_the_ceiling_and_the_limit_lies_above(name, tmp_path):
    kind = kinds(name)
    config = kind["ConfigMap"]["data"]["plimsoll.toml"]
    resources = kind["Deployment"]["spec"]["template"]["spec"]["containers"][0]["resources"]
    request, limit = (bytes_of(resources[which]["memory"]) for which in ("requests", "limits"))
    lines = checked(tmp_path, config.replace('kind = "cuda"', 'kind = "cpu"'))
    if "nvidia.com/gpu" in resources["limits"]:
        # The ceiling is of the GPU's memory; of the host's there are program, bodies, headroom and the driver's own.
        host = lines["process_bytes"] + lines["bodies_bytes"] + lines["headroom_bytes"] + (256 << 20)
        assert host <= request == limit
    else:
        assert lines["ceiling_bytes"] == request < limit
        assert limit - request >= request // 8
    grace = bytes_of(re.search(r'shutdown_grace = "(\d+)s"', config)[1])
    assert kind["Deployment"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > grace


def test_the_prometheus_operator_takes_the_monitor(tmp_path):
    if shutil.which("npm") is None:
        pytest.skip("skipped: there is no npm, which has the operator's schema")
    install = ["npm", "install", "--silent", "--no-audit", "--ignore-scripts", "--no-save", OPERATOR]
    subprocess.run(install, cwd=tmp_path, check=True, env=clean_environment())
    (monitor,) = documents("servicemonitor.yaml")
    wrong = copy.deepcopy(monitor)
    wrong["spec"]["endpoints"][0]["interval"] = 5
    script = """
        import { ServiceMonitor } from "OPERATOR/monitoring.coreos.com/v1/ServiceMonitor";
        for (const one of ONES)
            try { new ServiceMonitor(one).validate(); console.log("good") } catch { console.log("bad") }
    """.replace("OPERATOR", OPERATOR.rsplit("@", 1)[0]).replace("ONES", json.dumps([monitor, wrong]))
    done = subprocess.run(["node", "--input-type=module"], input=script, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.split() == ["good", "bad"], done.stderr


def test_the_patch_with_the_token_fits_the_deployment_and_the_server(tmp_path):
    (patch,) = documents("admin-token.yaml")
    pod = patch["spec"]["template"]["spec"]
    deployment = copy.deepcopy(kinds("plimsoll.yaml")["Deployment"])
    whole = deployment["spec"]["template"]["spec"]
    (own,), (added,) = whole["containers"], pod["containers"]
    assert own["name"] == added["name"]
    own["env"] = added["env"]
    own["volumeMounts"] += added["volumeMounts"]
    whole["volumes"] += pod["volumes"]
    kubernetes_validate.validate(deployment, KUBERNETES[-1], strict=True)
    (tmp_path / "token").write_text("a-token-of-some-length\n")
    (variable,) = added["env"]
    assert variable["value"].startswith(added["volumeMounts"][0]["mountPath"])
    assert checked(tmp_path, env={variable["name"]: str(tmp_path / "token")})["ceiling_bytes"]
