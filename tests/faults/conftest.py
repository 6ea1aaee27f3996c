"""One cluster for all tests of faults. Its storage is S3, and its spaCy dies of some texts."""

import os
from collections.abc import Iterator

import pytest

from deeped_ray.running.faults import Faults
from tests.faults.nodes import ROOT, Nodes
from tests.s3 import S3

SPACY = '''
import os, re

def load(name):
    """Stands for a spaCy pipeline: finds capitalized words, and dies of deadly texts."""
    def pipeline(text):
        if "deadly" in text:
            os._exit(1)
        return type("Doc", (), {"ents": [Entity(match) for match in re.finditer("[A-Z][a-z]+", text)]})
    return pipeline

class Entity:
    label_ = "ORG"
    def __init__(self, match):
        self.start_char, self.end_char = match.span()
'''


@pytest.fixture(scope="package")
def cluster(s3_server: S3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "spacy").mkdir()
    (folder / "spacy" / "__init__.py").write_text(SPACY)
    environment = {
        **s3_server.environment,
        "DEEPED_LEASE_S": "1",
        "DEEPED_STORAGE_PATIENCE_S": "60",
        "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}",
    }
    nodes = Nodes(folder, environment)
    try:
        yield nodes
    finally:
        nodes.shutdown()


@pytest.fixture
def nodes(cluster: Nodes) -> Iterator[Nodes]:
    """The cluster as it began: a head with one CPU and nothing else."""
    try:
        yield cluster
    finally:
        cluster.clear()


@pytest.fixture
def faults(nodes: Nodes) -> Faults:
    return nodes.faults
