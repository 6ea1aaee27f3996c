"""Before the first task: whether every node reaches the folder that tasks read and write.

A path that only the head has, a file system that is mounted read-only, a bucket that the nodes have no key for: without
this, each shows only when a task fails, perhaps hours later.
"""

import functools
import os
import uuid

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from deeped_ray.storage.location import Location
from deeped_ray.types import DeepEdError


@functools.lru_cache(maxsize=64)  # stages have many passes, and one folder
def require_reach(folder: Location) -> None:
    """Raise unless each node can read there what this one writes, and write beside it. A cluster of one is not asked."""
    here = ray.get_runtime_context().get_node_id()
    others = [node for node in ray.nodes() if node["Alive"] and node["NodeID"] != here and node["Resources"].get("CPU")]
    if not others:
        return
    token = uuid.uuid4().hex
    folder.make_folder()
    mark = folder / f".reach-{token}"
    mark.write_bytes(token.encode())
    try:
        for node, answer in zip(others, [_ask(node["NodeID"], mark, token) for node in others], strict=True):
            if why := _told(answer):
                raise DeepEdError(
                    f"Node {node['NodeManagerAddress']} cannot use {folder}: {why}"
                    " All nodes read and write there. Give a folder that they share, or an address such as s3://bucket/kb."
                )
    finally:
        mark.remove()


def _ask(node_id: str, mark: Location, token: str) -> "ray.ObjectRef[str]":
    where = NodeAffinitySchedulingStrategy(node_id, soft=True)  # a node may be lost meanwhile
    asking: ray.ObjectRef[str] = (
        ray.remote(num_cpus=0)(trouble_with).options(scheduling_strategy=where).remote(mark, token)
    )
    return asking


def _told(answer: "ray.ObjectRef[str]") -> str:
    try:
        return ray.get(answer)
    except (ray.exceptions.NodeDiedError, ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError):
        return ""  # the node is gone: that is no matter of reach, and tasks are repeated elsewhere


def trouble_with(mark: Location, token: str) -> str:
    """On a node: what stands against reading the mark and writing beside it; empty if nothing does."""
    try:
        if not mark.exists():
            return f"there is no {mark.name}, which the driver has just written."
        if mark.read_bytes() != token.encode():
            return f"{mark.name} holds something else than the driver has just written."
        own = mark.parent / f"{mark.name}-{os.getpid()}"
        own.write_bytes(b"")
        own.remove()
    except (OSError, DeepEdError) as error:
        return f"{error}"
    return ""
