"""The one tokenizer, stop list and normalizers, shared by ingest, training and serving."""

import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

# Differs from the paper's code: Unicode word runs, where deep-ed split at every non-ASCII byte.
STOP_WORDS = frozenset((Path(__file__).parent / "stop_words.txt").read_text(encoding="utf-8").split())
_WORD = re.compile(r"\w+")
_QUALIFIER = re.compile(r"(?<=\S)(?:\s*\([^()]*\)|,[^,]*)$")


class Token(NamedTuple):
    start: int
    end: int
    word: str


def tokenize(text: str) -> Iterator[Token]:
    """Maximal runs of Unicode word characters, case kept."""
    for match in _WORD.finditer(text):
        yield Token(*match.span(), match.group())


def is_content_word(word: str) -> bool:
    """False for stop words, numbers and single characters: they carry no evidence about an entity."""
    return len(word) > 1 and not word.isnumeric() and word.lower() not in STOP_WORDS


def words_of(text: str) -> list[str]:
    """The words of `tokenize` without their places, in a fraction of the time."""
    return _WORD.findall(text)


def content_words(text: str) -> list[str]:
    return [word for word in words_of(text) if is_content_word(word)]


def normalize_title(title: str) -> str:
    """`apple_Inc.` -> `Apple Inc.`: MediaWiki's own rule for page titles, in NFC."""
    title = " ".join(unicodedata.normalize("NFC", title).replace("_", " ").split())
    if "A" <= title[:1] <= "Z":  # nearly all
        return title
    first = title[:1].upper()
    # some letters have no single capital (ß), and Georgian is not capitalised in titles
    return title if len(first) != 1 or "\u10d0" <= title[:1] <= "\u10ff" else first + title[1:]


def normalize_mention(surface: str) -> str:
    """Surface strings are compared in NFC with single spaces; case is kept."""
    text = surface if surface.isascii() else unicodedata.normalize("NFC", surface)
    return " ".join(text.replace("_", " ").split())


def capitalize_words(text: str) -> str:
    """`QUEEN'S PARK` -> `Queen's Park`, for headlines."""
    return re.sub(r"\w+(?:['’]\w+)?", lambda match: match.group().capitalize(), text)


def bare_title(title: str) -> str:
    """`Apple (fruit)` -> `Apple`, `Paris, Texas` -> `Paris`: a title without what tells it from its namesakes."""
    return _QUALIFIER.sub("", title)
