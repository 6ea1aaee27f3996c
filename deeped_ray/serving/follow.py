"""A service that follows its knowledge base: it is given another version, replica by replica.

Each replica opens one version when it starts, `KB/versions/3`, and serves it until it ends. So a replica never holds two,
and its replies come from one. Ray Serve starts a replica of the next version, then stops one of the version before
(`max_surge_percent`); parts that both versions have are mapped into memory once per node.
"""

from collections.abc import Callable
from typing import Any

from deeped_ray.knowledge import versions
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.serving.deploy import Serve, deploy
from deeped_ray.storage.location import Location
from deeped_ray.types import DeepEdError

APP = "deeped_ray.serving.app:build"


def follow(kb: KnowledgeBase, number: int, *, address: str, say: Callable[[str], None] = lambda _: None) -> list[str]:
    """Give a version to the applications of a cluster that serve this knowledge base; returns their names.

    If a replica cannot start with it, the version before goes on, and an error is raised.
    """
    return follow_on(Serve.from_environment(address), kb, number, say=say)


def follow_on(
    serve: Serve, kb: KnowledgeBase, number: int, *, say: Callable[[str], None] = lambda _: None
) -> list[str]:
    config = serve.config()
    mine = [each for each in config["applications"] if _serves(each, kb)]
    if not mine:
        names = ", ".join(each["name"] for each in config["applications"]) or "nothing"
        raise DeepEdError(f"No application at {serve.address} serves {kb.home}: it runs {names}.")
    wanted = versions.address_of(kb, number)
    if any(each["args"]["kb"] != wanted for each in mine):
        for each in mine:
            each["args"] = {**each["args"], "kb": wanted}
        deploy(serve, config, say=say)
    return [each["name"] for each in mine]


def _serves(application: dict[str, Any], kb: KnowledgeBase) -> bool:
    address = application.get("args", {}).get("kb")
    if application.get("import_path") != APP or address is None:
        return False
    served = Location(address)
    return served == kb.home or (served.parent.name == "versions" and served.parent.parent == kb.home)
