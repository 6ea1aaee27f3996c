"""Changes to single entities (`knowledge.changes`) that were folded into the parts.

    folded.json     in the parts `pages` and `corpus`: the files of changes that they hold; in `pages` also the changes

A knowledge base that is built anew, from a newer dump for instance, keeps them.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from deeped_ray.corpus.entity_files import OwnEntity, entity_of
from deeped_ray.knowledge.changes import Recorded
from deeped_ray.knowledge.parts import Part
from deeped_ray.knowledge.strings import hash64
from deeped_ray.storage.location import Location
from deeped_ray.text import normalize_title

FILE = "folded.json"


class Folded(NamedTuple):
    files: tuple[str, ...] = ()
    rows: Mapping[str, Mapping[str, Any] | None] = {}
    """The last change of each id: an entity, or None if it was taken off."""

    @classmethod
    def read(cls, part: Part | None) -> "Folded":
        if part is None or FILE not in part.record.get("files", {}):
            return cls()
        content = (part.location / FILE).read_json()
        return cls(tuple(content["files"]), content.get("rows", {}))

    def joined(self, changes: Sequence[Recorded]) -> "Folded":
        """With later changes, the last of each id."""
        files = {*self.files, *(each.file for each in changes)}
        return Folded(tuple(sorted(files)), {**self.rows, **{each.change.id: each.change.entity for each in changes}})

    @property
    def identity(self) -> str:
        return f"{hash64(json.dumps([self.files, self.rows], sort_keys=True)):016x}"

    @property
    def removed(self) -> list[str]:
        return [normalize_title(name) for name, entity in self.rows.items() if entity is None]

    def entities(self) -> list[OwnEntity]:
        """Of two ids with one title, the later change has it: see `linking.live`."""
        found = [
            entity_of({"id": name, **entity}, where=f"the change of {name!r}")
            for name, entity in self.rows.items()
            if entity is not None
        ]
        return [*{entity.title: entity for entity in found}.values()]

    def write(self, folder: Path, *, with_rows: bool) -> None:
        if self.files:
            rows = {"rows": self.rows} if with_rows else {}
            Location(folder / FILE).write_json({"files": self.files, **rows})
