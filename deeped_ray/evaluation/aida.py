"""Annotated documents in the AIDA-YAGO2 TSV layout: `-DOCSTART-`, one token a line, mentions in columns 2 to 6."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from deeped_ray.storage.compressed import read_lines
from deeped_ray.text import normalize_title
from deeped_ray.types import DeepEdError, Document, Mention

NOT_IN_WIKIPEDIA = "--NME--"


def read_aida(path: Path, *, with_unlinked: bool = False) -> Iterator[Document]:
    """Documents with their linked mentions; those marked as outside Wikipedia are left out, or have no gold title."""
    name: str | None = None
    builder = _DocumentBuilder(with_unlinked)
    for number, line in enumerate(read_lines(path), start=1):
        if line.startswith("-DOCSTART-"):
            if name is not None:
                yield builder.finish(name)
            name, builder = line.removeprefix("-DOCSTART-").strip().strip("()"), _DocumentBuilder(with_unlinked)
        elif name is None and line.strip():
            raise DeepEdError(
                f"{path}, line {number}: expected '-DOCSTART- (name)', found {line[:40]!r}. Is this an AIDA-YAGO2 file?"
                " Other layouts are read as wned: or jsonl:."
            )
        elif line.strip():
            builder.add(line.split("\t"), where=f"{path}, line {number}")
        else:
            builder.end_sentence()
    if name is not None:
        yield builder.finish(name)


class _DocumentBuilder:
    """Joins tokens by spaces and sentences by line breaks, and keeps the places of mentions."""

    def __init__(self, with_unlinked: bool) -> None:
        self._with_unlinked = with_unlinked
        self._pieces: list[str] = []
        self._length = 0
        self._mentions: list[Mention] = []
        self._open: tuple[int, str | None, int | None] | None = None
        self._separator = ""
        self._number = -1

    def add(self, cells: list[str], *, where: str) -> None:
        token, tag = cells[0], cells[1] if len(cells) > 1 else ""
        if tag != "I":
            self._close()
        self._append(token)
        if tag == "B":
            self._number += 1
            page_id = int(cells[5]) if len(cells) > 5 and cells[5].isdigit() else None
            self._open = (self._length - len(token), _gold_title(cells, where), page_id)
        elif tag not in ("", "I"):
            raise DeepEdError(f"{where}: expected B or I in the second column, found {tag!r}.")

    def end_sentence(self) -> None:
        """Start a new line; a mention may go on there, since the sentences of AIDA were split by machine."""
        self._separator = "\n" if self._pieces else ""

    def finish(self, name: str) -> Document:
        self._close()
        return Document(name, "".join(self._pieces), tuple(self._mentions))

    def _append(self, token: str) -> None:
        self._pieces += [self._separator, token]
        self._length += len(self._separator) + len(token)
        self._separator = " "

    def _close(self) -> None:
        if self._open and (self._open[1] is not None or self._with_unlinked):
            start, title, page_id = self._open
            self._mentions.append(Mention(start, self._length, title, page_id, self._number))
        self._open = None


def _gold_title(cells: list[str], where: str) -> str | None:
    """Title of the annotated page, from the URL; None for a mention that has none."""
    if len(cells) == 4 and cells[3] == NOT_IN_WIKIPEDIA:
        return None
    if len(cells) < 5 or "/wiki/" not in cells[4]:
        raise DeepEdError(
            f"{where}: a mention needs 5 or more columns with a Wikipedia URL in the fifth, or {NOT_IN_WIKIPEDIA} in the fourth."
        )
    return normalize_title(unquote(cells[4].partition("/wiki/")[2]))
