"""The driver of a refresh is lost, in a pass and right before the switch: the current version stays, the command goes on."""

from pathlib import Path

from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.versions import number_of, version
from deeped_ray.running.faults import Faults
from tests.conftest import copy_of
from tests.corpus.test_update import changed_dump
from tests.faults.nodes import Nodes


def test_a_lost_driver_leaves_the_current_version_and_the_same_command_goes_on(
    mini_kb: KnowledgeBase, nodes: Nodes, faults: Faults, tmp_path: Path
) -> None:
    kb = copy_of(mini_kb, tmp_path / "kb")
    before = kb.manifest()
    dump = changed_dump(tmp_path / "fresh.xml", share=0.03)
    command = ("refresh", "--kb", str(kb), "--dump", str(dump), "--margin", "0.05")

    faults.arm("reduce/driver/1", "reduce/1")  # one CPU: the driver has two tasks in flight, and one runs at a time
    first = nodes.start(*command)
    first.held_at("reduce/driver/1")
    first.kill(orphan=first.held_at("reduce/1"))
    assert kb.manifest() == before

    faults.arm("parse/0", "count/0", "reduce/0")  # finished: made again, they would hold the job forever
    faults.arm("refresh/followed")
    second = nodes.start(*command)
    second.held_at("refresh/followed")
    second.process.kill()
    second.process.wait()
    assert kb.manifest() == before

    faults.arm("embed/0")
    result = nodes.start(*command).result()
    assert (result["version"], result["previous"], number_of(kb)) == (2, 1, 2)
    assert version(kb, 1).manifest()["parts"] == before["parts"]
    kb.check("pages", "corpus", "words", "vectors", "index", "linker")
