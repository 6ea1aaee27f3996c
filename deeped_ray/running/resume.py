"""Where a stage keeps unfinished work, so that the same command goes on after a kill."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.running.config import FLAG
from deeped_ray.storage.location import Location
from deeped_ray.types import DeepEdError


@dataclass(frozen=True, kw_only=True)
class ResumeConfig:
    """Where unfinished work is kept; the same pair of names takes it up again."""

    storage_path: Annotated[
        str | None,
        "folder for unfinished work; default: runs/ in the knowledge base. All nodes must reach it.",
        FLAG,
    ] = None
    run_name: Annotated[
        str | None,
        "folder of this run in there. The same pair of folder and name takes up unfinished work; without a name, stages tell runs apart by themselves.",
        FLAG,
    ] = None

    def __post_init__(self) -> None:
        if self.run_name is not None and (
            Path(self.run_name).name != self.run_name or self.run_name in ("", ".", "..") or "\0" in self.run_name
        ):
            raise DeepEdError(
                f"--run-name {self.run_name!r} must be a plain name: it becomes one folder below --storage-path."
            )

    def folder(self, kb: KnowledgeBase, stage: str, identity: object) -> Location:
        """The stage's own folder; its name holds a hash of all that the work depends on, so that no run takes up another's."""
        key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:12]
        storage = Location(self.storage_path) if self.storage_path else kb.location / "runs"
        folder = storage / (self.run_name or "") / f"{stage}-{key}"
        folder.make_folder()
        return folder


NEW_RUN = ResumeConfig()
