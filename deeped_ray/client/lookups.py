"""Look-ups over HTTP: the records that `Lookup` gives for a knowledge base in this process."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, TypeVar
from urllib.parse import quote

from deeped_ray.client.asking import Asking, Steps
from deeped_ray.types import EntityDetails, Name, NamedEntity, RelatedEntity, Sense

Record = TypeVar("Record", EntityDetails, NamedEntity, RelatedEntity, Sense)


def entity(asking: Asking, title: str) -> Steps[EntityDetails]:
    return asking.ask(lambda told: _record(EntityDetails, told), "GET", f"/entities/{_part(title)}")


def mention(asking: Asking, surface: str) -> Steps[Name]:
    def read(told: Any) -> Name:
        return Name(told["mention"], told["rule"], tuple(_record(Sense, each) for each in told["candidates"]))

    return asking.ask(read, "GET", f"/mentions/{_part(surface)}")


def resembling(asking: Asking, name: str, count: int) -> Steps[list[NamedEntity]]:
    def read(told: Any) -> list[NamedEntity]:
        return [_record(NamedEntity, each) for each in told["resembling"]]

    return asking.ask(read, "POST", "/search", {"name": name, "count": count})


def related(asking: Asking, titles: str | Sequence[str], text: str, count: int) -> Steps[list[RelatedEntity]]:
    def read(told: Any) -> list[RelatedEntity]:
        return [_record(RelatedEntity, each) for each in told["related"]]

    listed = [titles] if isinstance(titles, str) else [*titles]
    return asking.ask(read, "POST", "/search", {"titles": listed, "text": text, "count": count})


def relatedness(asking: Asking, title: str, other: str) -> Steps[float]:
    def read(told: Any) -> float:
        return float(told["similarities"][0])

    return asking.ask(read, "POST", "/relatedness", {"pairs": [[title, other]]})


def version(asking: Asking) -> Steps[dict[str, Any]]:
    return asking.ask(lambda told: dict(told), "GET", "/version")


def _part(name: str) -> str:
    """A name as one part of a path. Dots too: `..` would lead elsewhere."""
    return quote(name, safe="").replace(".", "%2E")


def _record(kind: type[Record], told: dict[str, Any]) -> Record:
    """Keys that this version does not know are left out."""
    return kind(**{field.name: told[field.name] for field in fields(kind)})
