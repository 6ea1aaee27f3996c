"""Schemas of KubeRay's resources (schemas/) and of Kubernetes' own (kubernetes-validate), both strict."""

import json
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from referencing import Registry, Resource

ROOT = Path(__file__).parent.parent.parent
MANIFESTS = ROOT / "deploy" / "kuberay"
# the oldest that we say works
KUBERNETES = "v1.34.0"

Manifest = dict[str, Any]
Check = Callable[[Manifest], list[str]]


def manifests(name: str) -> list[Manifest]:
    return list(yaml.safe_load_all((MANIFESTS / name).read_text()))


def only(name: str, kind: str) -> Manifest:
    """The spec of the one resource of a kind in a file."""
    (found,) = (manifest["spec"] for manifest in manifests(name) if manifest["kind"] == kind)
    spec: Manifest = found
    return spec


@cache
def registry() -> Registry[Any]:
    kubernetes = files("kubernetes_validate") / "kubernetes-json-schema" / f"{KUBERNETES}-local-strict"
    kuberay = yaml.safe_load((Path(__file__).parent / "schemas" / "kuberay-1.7.yaml").read_text())
    schemas = [kuberay, json.loads((kubernetes / "_definitions.json").read_text())]
    found: Registry[Any] = Registry().with_resources(
        (schema["$id"], Resource.from_contents(schema)) for schema in schemas
    )
    return found


def reference(manifest: Manifest) -> str:
    group, kind = manifest["apiVersion"].rpartition("/")[0], manifest["kind"]
    if group == "ray.io":
        return f"https://deeped-ray.example/kuberay-1.7.yaml#/$defs/{kind}"
    group = group.removesuffix(".k8s.io") or "core"
    return f"https://kubernetes.io/api/_definitions.json#/$defs/io.k8s.api.{group}.v1.{kind}"


@pytest.fixture(scope="session")
def problems() -> Check:
    """What is wrong with a manifest, by its schema."""

    def check(manifest: Manifest) -> list[str]:
        validator = Draft202012Validator({"$ref": reference(manifest)}, registry=registry())
        return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(manifest)]

    return check
