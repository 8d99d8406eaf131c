"""Manifests for a cluster: valid by the schemas of those who read them, and in agreement about memory.

No cluster is needed. Kubernetes' schemas come from PyPI; KServe's types from its SDK there, whose code is read and not
run; the Prometheus operator's from npm.
"""

import ast
import copy
import json
import re
import shutil
import subprocess
import sys
import zipfile

import kubernetes_validate
import pytest
import yaml
from images import Image
from server import MODELS, ROOT, clean_environment, run

CLUSTER = ROOT / "cluster"
KUBERNETES = ("1.31", "1.37")
MANIFESTS = ("plimsoll.yaml", "plimsoll-gpu.yaml")
KSERVE, OPERATOR = "kserve==0.21.0", "@kubernetes-models/prometheus-operator@6.0.0"
UNITS = {"": 1, "Mi": 1 << 20, "Gi": 1 << 30, "MiB": 1 << 20, "GiB": 1 << 30}


def documents(name):
    return list(yaml.safe_load_all((CLUSTER / name).read_text()))


def kinds(name):
    return {document["kind"]: document for document in documents(name)}


def bytes_of(text):
    number, unit = re.fullmatch(r"(\d+)(\w*)", text).groups()
    return int(number) * UNITS[unit]


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


def checked(tmp_path, config=None, env=None):
    """What `plimsoll check` says of a configuration, on the CPU."""
    (tmp_path / "plimsoll.toml").write_text(config or "")
    done = run("check", "--json", "--models", MODELS, "--device", "cpu", cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


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


def test_kserve_sets_the_ceiling_from_the_memory_that_is_asked_for(tmp_path):
    (runtime,) = documents("kserve/runtime.yaml")
    (service,) = documents("kserve/digits.yaml")
    (container,) = runtime["spec"]["containers"]
    env = {entry["name"]: entry for entry in container["env"]}
    source = env["PLIMSOLL_MEMORY__CEILING"]["valueFrom"]["resourceFieldRef"]
    assert source == {"containerName": container["name"], "resource": "requests.memory"}
    for resources in (container["resources"], service["spec"]["predictor"]["model"]["resources"]):
        request, limit = (bytes_of(resources[which]["memory"]) for which in ("requests", "limits"))
        # Kubernetes writes a resource as a plain number of bytes.
        assert checked(tmp_path, env={"PLIMSOLL_MEMORY__CEILING": str(request)})["ceiling_bytes"] == request < limit
    format = {"name": service["spec"]["predictor"]["model"]["modelFormat"]["name"], "version": "1"}
    assert any(format.items() <= known.items() for known in runtime["spec"]["supportedModelFormats"])


def test_the_pod_that_kserve_makes_of_the_runtime_is_valid():
    spec = copy.deepcopy(documents("kserve/runtime.yaml")[0]["spec"])
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "digits"}}
    pod["spec"] = {"containers": spec["containers"], "volumes": spec["volumes"]}
    for version in KUBERNETES:
        kubernetes_validate.validate(pod, version, strict=True)


@pytest.fixture(scope="module")
def sdk(tmp_path_factory):
    """The code of KServe's SDK: name of a type → its fields as they are written in YAML, and their types."""
    folder = tmp_path_factory.mktemp("kserve")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, f"--dest={folder}", KSERVE], check=True)
    (wheel,) = folder.glob("*.whl")

    def fields(name):
        file = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", re.sub(r"^V1(alpha|beta)1", r"v1\g<1>1_", name)).lower()
        source = zipfile.ZipFile(wheel).read(f"kserve/models/{file}.py").decode()
        (body,) = (node.body for node in ast.parse(source).body if isinstance(node, ast.ClassDef))
        tables = {node.targets[0].id: ast.literal_eval(node.value) for node in body if isinstance(node, ast.Assign)}
        return {key: tables["openapi_types"][field] for field, key in tables["attribute_map"].items()}

    return fields


@pytest.mark.parametrize("file, name", [("runtime", "V1alpha1ServingRuntime"), ("digits", "V1beta1InferenceService")])
def test_kserve_knows_every_field(sdk, file, name):
    def compare(value, name):
        own, many = re.fullmatch(r"(list\[)?(V1(?:alpha|beta)1\w+)\]?", name), isinstance(value, list)
        if own:
            known = sdk(own[2])
            for one in value if many else [value]:
                assert one.keys() <= known.keys(), (own[2], one.keys() - known.keys())
                for key, below in one.items():
                    compare(below, known[key])

    (document,) = documents(f"kserve/{file}.yaml")
    compare(document, name)


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
