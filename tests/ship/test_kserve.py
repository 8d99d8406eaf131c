"""The runtime for KServe and a service on it, by the types of KServe's SDK, whose code is read and not run."""

import ast
import copy
import re
import subprocess
import sys
import zipfile

import kubernetes_validate
import pytest
from manifests import KUBERNETES, bytes_of, checked, documents

KSERVE = "kserve==0.21.0"


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
