"""Entities of one's own, from a file: JSON, one entity a line, or CSV with the same names as columns.

    {"title": "Falcon 7", "aliases": ["Falcon", {"name": "F7", "count": 12}], "description": "A coffee grinder.",
     "examples": ["The Falcon jams.", {"text": "An F7 is loud.", "start": 3, "end": 5}], "url": "https://..."}

    id, title       one of them is needed. An `id` is one more name, by which the entity is found.
    aliases         names. One without a count counts as much as a title. In CSV, `|` stands between them.
    description     what the entity is, in words
    examples        texts that name it, with the place; a plain string names it by its longest name that stands there
    type            `person` marks a person
    url, wikidata   kept for answers

An entity becomes a page: its description is the text. An example becomes a page without an entity, whose link leads to the
one it names. So what follows treats them as it treats a wiki's. Other keys are ignored.
"""

import csv
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from deeped_ray.corpus.priors import MAX_SURFACE, TITLE_COUNT
from deeped_ray.corpus.teaching import is_whole
from deeped_ray.corpus.wikidata_ids import number_of
from deeped_ray.knowledge.strings import hash64
from deeped_ray.storage.compressed import READ_ERRORS, first_content, open_decompressed
from deeped_ray.storage.location import Location
from deeped_ray.text import normalize_mention, normalize_title
from deeped_ray.types import DeepEdError, Link, Page

MAX_LINE_BYTES = 2**25
MAX_ALIASES, MAX_EXAMPLES = 1_000, 1_000
MAX_DESCRIPTION, MAX_EXAMPLE = 200_000, 20_000
LIMITS = f"{MAX_ALIASES:,} aliases, {MAX_EXAMPLES:,} examples, {MAX_DESCRIPTION:,} characters of description"
MAX_COUNT = 1e9
FIRST_PAGE_ID = 2**52
"""Of entities from files: above those of any wiki, and still exact in JavaScript."""
_URL = re.compile(r"(?:https?://|urn:)[^\s<>\"\\^`{|}]+", re.IGNORECASE)
_EXPECTED = 'expected {"title": ..., "aliases": [...], "description": ...}'


class Example(NamedTuple):
    """A text that names the entity at [start, end)."""

    text: str
    start: int
    end: int


@dataclass(frozen=True, kw_only=True)
class OwnEntity:
    title: str
    id: str = ""
    aliases: tuple[tuple[str, float], ...] = ()
    """Names with their counts, the id and the title as it was written among them."""
    description: str = ""
    examples: tuple[Example, ...] = ()
    url: str = ""
    wikidata: str = ""
    is_person: bool = False
    is_shortened: bool = False
    """Whether there was more of something than is kept."""

    def pages(self) -> list[Page]:
        """Its page, a redirect for its id, and a page without an entity for each example."""
        own = Page(page_id_of(self.title), self.title, self.description, is_person=self.is_person)
        redirects = [Page(page_id_of(self.id), self.id, "", redirect=self.title)] if self.id else []
        # `#` is in no title, so that no entity has the name of an example
        texts = [
            Page(-1, f"{self.title}#example {number}", each.text, (Link(each.start, each.end, self.title),))
            for number, each in enumerate(self.examples, start=1)
        ]
        return [own, *redirects, *texts]

    def values(self) -> dict[str, Any]:
        """As JSON has it; `entity_of` makes the same of it."""
        known: dict[str, Any] = {
            "id": self.id,
            "title": self.title,
            "aliases": [{"name": name, "count": count} for name, count in self.aliases],
            "description": self.description,
            "examples": [each._asdict() for each in self.examples],
            "url": self.url,
            "wikidata": self.wikidata,
            "type": "person" if self.is_person else "",
        }
        return {name: value for name, value in known.items() if value}


def page_id_of(title: str) -> int:
    return FIRST_PAGE_ID + (hash64(title) >> 12)


# -- files


def read_entities(file: Location, *, is_strict: bool = True) -> Iterator[OwnEntity]:
    """The entities of a file, which may be compressed. The first line that cannot be read is told with its number.

    If it is not strict, a name may come twice: changes of two writers at once cannot be refused any more.
    """
    seen: dict[int, int] = {}
    for number, values in _rows(file):
        entity = entity_of(values, where=f"{file}, line {number}")
        for name in {entity.title, entity.id} - {""} if is_strict else ():
            first = seen.setdefault(hash64(name), number)
            if first != number:
                raise DeepEdError(
                    f"{file}, line {number}: {name!r} is on line {first} already. Tell them apart, as in 'Smith (sales)'."
                )
        yield entity


def _rows(file: Location) -> Iterator[tuple[int, Any]]:
    try:
        start = first_content(file, 2**16).lstrip(b"\xef\xbb\xbf \t\r\n")
        if not start:
            raise DeepEdError(f"{file} is empty; {_EXPECTED}, one a line, or CSV.")
        if start.startswith(b"["):
            raise DeepEdError(f"{file} is one JSON list. Write an entity a line: jq -c '.[]' {file.name} > lines.jsonl")
        yield from _json_rows(file) if start.startswith(b"{") else _csv_rows(file)
    except READ_ERRORS as error:
        raise DeepEdError(f"Cannot read {file}: {getattr(error, 'strerror', None) or error}.") from error


def _lines(file: Location) -> Iterator[str]:
    """With their ends."""
    with open_decompressed(file) as source:
        number = 0
        while line := source.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > MAX_LINE_BYTES:
                raise DeepEdError(f"{file}, line {number} is longer than {MAX_LINE_BYTES // 2**20} MiB.")
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise DeepEdError(
                    f"{file}, line {number} is not UTF-8: {error.reason} at byte {error.start}. Save the file as UTF-8."
                ) from None


def _json_rows(file: Location) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(_lines(file), start=1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError):
                raise DeepEdError(f"{file}, line {number}: found {line.strip()[:60]!r}; {_EXPECTED}.") from None


def _csv_rows(file: Location) -> Iterator[tuple[int, Any]]:
    lines = _lines(file)
    head = next(lines, "")
    mark = max(",;\t", key=head.count)
    columns = [name.strip().lower() for name in next(csv.reader([head], delimiter=mark), [])]
    if not {"id", "title"} & set(columns):
        raise DeepEdError(
            f"{file} is neither JSON lines nor CSV of entities: line 1 is {head.strip()[:60]!r}. Expected a column title or id."
        )
    reader = csv.reader(lines, delimiter=mark)
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                row: dict[str, Any] = dict(zip(columns, cells, strict=False))
                for name in {"aliases", "examples"} & row.keys():
                    row[name] = [each for each in row[name].split("|") if each.strip()]
                yield reader.line_num + 1, row
    except csv.Error as error:
        raise DeepEdError(f"{file}, line {reader.line_num + 1}: {error}.") from None


# -- one entity


def entity_of(values: Any, *, where: str) -> OwnEntity:
    """Checked and normalised: what is too much is shortened, what is wrong is refused, with `where` it stands."""
    if not isinstance(values, Mapping):
        raise DeepEdError(f"{where}: found {str(values)[:60]!r}; {_EXPECTED}.")

    def text(name: str) -> str:
        value = values.get(name)
        if value is None or isinstance(value, str):
            return _readable(value or "").strip()
        if name == "id" and type(value) is int:
            return str(value)
        raise DeepEdError(f"{where}: {name} is {str(value)[:40]!r}, expected text.")

    own_id, written, url, wikidata = text("id"), text("title"), text("url"), text("wikidata")
    title = _title(written or own_id, where)
    if url and not _URL.fullmatch(url):
        raise DeepEdError(f"{where}: url is {url[:60]!r}, expected http://, https:// or urn:.")
    if wikidata and number_of(wikidata) is None:
        raise DeepEdError(f"{where}: wikidata is {wikidata[:40]!r}, expected Q and a number, as in Q64.")
    known_as = normalize_title(own_id) if own_id else ""
    names = {name: TITLE_COUNT for name in map(normalize_mention, (written, own_id)) if name not in ("", title)}
    aliases = _aliases(values.get("aliases") or [], where)
    kept = sorted(aliases.items(), key=lambda item: (-item[1], item[0]))[:MAX_ALIASES]
    description = text("description")
    examples = _list(values.get("examples") or [], "examples", where)
    spelled = [normalize_mention(written), title, own_id, *(name for name, _ in kept)]
    found = tuple(_example(each, spelled, where) for each in examples[:MAX_EXAMPLES])
    return OwnEntity(
        title=title,
        id=known_as if known_as != title else "",
        aliases=tuple({**names, **dict(kept)}.items()),
        description=description[:MAX_DESCRIPTION],
        examples=found,
        url=url,
        wikidata=f"Q{number_of(wikidata)}" if wikidata else "",
        is_person=text("type").lower() == "person",
        is_shortened=len(aliases) > MAX_ALIASES or len(examples) > MAX_EXAMPLES or len(description) > MAX_DESCRIPTION,
    )


def _readable(text: str) -> str:
    """Without halves of characters, which JSON can hold and UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode()


def _title(written: str, where: str) -> str:
    title = normalize_title(written.replace("#", " "))
    if not title:
        raise DeepEdError(f"{where}: no title; {_EXPECTED}.")
    if len(title) > MAX_SURFACE:
        raise DeepEdError(f"{where}: the title has {len(title):,} characters, expected at most {MAX_SURFACE:,}.")
    return title


def _list(value: Any, name: str, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise DeepEdError(f"{where}: {name} is {str(value)[:40]!r}, expected a list.")
    return value


def _aliases(given: Any, where: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for each in _list(given, "aliases", where):
        name, count = (
            (each.get("name"), each.get("count", TITLE_COUNT)) if isinstance(each, dict) else (each, TITLE_COUNT)
        )
        if not isinstance(name, str) or type(count) not in (int, float) or not 0 < count <= MAX_COUNT:
            raise DeepEdError(
                f'{where}: alias {str(each)[:60]!r}, expected a name or {{"name": ..., "count": ...}} with a count above 0.'
            )
        name = normalize_mention(_readable(name))
        if name and len(name) <= MAX_SURFACE:
            found[name] = max(found.get(name, 0.0), float(count))
    return found


def _example(given: Any, names: Sequence[str], where: str) -> Example:
    if isinstance(given, str):
        return _named_example(_readable(given)[:MAX_EXAMPLE], names, where)
    marked = given if isinstance(given, dict) else {}
    text, start, end = marked.get("text"), marked.get("start"), marked.get("end")
    if not isinstance(text, str) or type(start) is not int or type(end) is not int or not 0 <= start < end <= len(text):
        raise DeepEdError(
            f'{where}: example {str(given)[:60]!r}, expected a text or {{"text": ..., "start": ..., "end": ...}} within it.'
        )
    cut = max(min(start - MAX_EXAMPLE // 2, len(text) - MAX_EXAMPLE), 0)
    return Example(_readable(text)[cut : cut + MAX_EXAMPLE], start - cut, min(end - cut, MAX_EXAMPLE))


def _named_example(text: str, names: Sequence[str], where: str) -> Example:
    """At the longest name that stands in the text as a whole."""
    for name in sorted({*names} - {""}, key=lambda each: (-len(each), each)):
        start = text.find(name)
        while start >= 0 and not is_whole(text, start, start + len(name)):
            start = text.find(name, start + 1)
        if start >= 0:
            return Example(text, start, start + len(name))
    raise DeepEdError(f"{where}: the example {text[:60]!r} has none of the entity's names. Add it to the aliases.")
