"""Annotated documents in our own layout: JSON, one document a line.

    {"name": "d1", "text": "Scotland beat Australia.", "mentions": [{"start": 0, "end": 8, "title": "Scotland"}]}

`start` and `end` count characters, end exclusive, as in `deeped link --spans` and in the endpoint's `spans`. A `title` of
null marks a mention of something outside Wikipedia. Other keys are ignored, and `"entity": {"title": ...}`
works as a title. So an answer of `POST /link`, with the text added and its mistakes corrected, is a training document.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deeped_ray.storage.compressed import read_lines
from deeped_ray.storage.location import Location
from deeped_ray.text import normalize_title
from deeped_ray.types import DeepEdError, Document, Mention

FEEDBACK = "feedback"
"""Folder of a knowledge base with corrections that clients sent, in this layout."""
_EXPECTED = 'expected {"name": ..., "text": ..., "mentions": [{"start": ..., "end": ..., "title": ...}]}'


def read_jsonl(path: Path, *, with_unlinked: bool = False) -> Iterator[Document]:
    """Documents with their linked mentions, or with all; one without a name is called by its line number."""
    for number, line in enumerate(read_lines(path), start=1):
        if line.strip():
            where = f"{path}, line {number}"
            yield _document(line, name=str(number), where=where, with_unlinked=with_unlinked)


def gathered(folder: Location) -> list[dict[str, Any]]:
    """The rows of all files in a folder, one for each text. What was said last of a mention holds."""
    texts: dict[str, dict[str, Any]] = {}
    for file in folder.glob("*.jsonl"):
        for line in file.read_bytes().splitlines():
            row = json.loads(line)
            held = texts.setdefault(row["text"], {**row, "mentions": []})
            for mention in row["mentions"]:
                held["mentions"] = [
                    *(each for each in held["mentions"] if not _overlap(each, mention)),
                    mention,
                ]
    for row in texts.values():
        row["mentions"].sort(key=lambda mention: mention["start"])
    return [*texts.values()]


def _overlap(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return bool(one["start"] < other["end"] and other["start"] < one["end"])


def _document(line: str, *, name: str, where: str, with_unlinked: bool) -> Document:
    try:
        row = json.loads(line)
        name, text, rows = str(row.get("name", name)), row["text"], row["mentions"]
        mentions = [(mention["start"], mention["end"], _title(mention)) for mention in rows]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        problem = f"missing {error}" if isinstance(error, KeyError) else f"found {line[:60]!r}"
        raise DeepEdError(f"{where}: {problem}; {_EXPECTED}.") from error
    if not isinstance(text, str):
        raise DeepEdError(f"{where}: found text {str(text)[:40]!r}, which is not a string; {_EXPECTED}.")
    for start, end, title in mentions:
        if type(start) is not int or type(end) is not int or not 0 <= start < end <= len(text):
            raise DeepEdError(
                f"{where}: mention {start!r} to {end!r} does not lie within the text, which has {len(text)} characters."
            )
        if title is not None and not (isinstance(title, str) and normalize_title(title)):
            raise DeepEdError(
                f"{where}: mention {start} to {end} has title {title!r}, expected a page's title or null."
            )
    found = (Mention(start, end, None if title is None else normalize_title(title)) for start, end, title in mentions)
    return Document(name, text, tuple(each for each in found if with_unlinked or each.gold is not None))


def _title(mention: dict[str, Any]) -> Any:
    if "title" not in mention and "entity" in mention:
        return mention["entity"] and mention["entity"]["title"]
    return mention["title"]
