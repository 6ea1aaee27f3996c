"""The one tokenizer, stop list and normalizers, shared by ingest, training and serving."""

import re
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

# Differs from the paper's code: Unicode word runs, where deep-ed split at every non-ASCII byte.
_WORD = re.compile(r"\w+")
_SPACES = re.compile(r"[\s_]+")


class Token(NamedTuple):
    start: int
    end: int
    word: str


def tokenize(text: str) -> Iterator[Token]:
    """Maximal runs of Unicode word characters, case kept."""
    for match in _WORD.finditer(text):
        yield Token(match.start(), match.end(), match.group())


def is_content_word(word: str) -> bool:
    """False for stop words, numbers and single characters: they carry no evidence about an entity."""
    return len(word) > 1 and not word.isnumeric() and word.lower() not in STOP_WORDS


def content_words(text: str) -> list[str]:
    return [token.word for token in tokenize(text) if is_content_word(token.word)]


def normalize_title(title: str) -> str:
    """`apple_Inc.` -> `Apple Inc.`: MediaWiki's own rule for page titles, in NFC."""
    title = _SPACES.sub(" ", unicodedata.normalize("NFC", title)).strip()
    return title[:1].upper() + title[1:]


def normalize_mention(surface: str) -> str:
    """Surface strings are compared in NFC with single spaces; case is kept."""
    return _SPACES.sub(" ", unicodedata.normalize("NFC", surface)).strip()


STOP_WORDS = frozenset(
    """
    a about above across after afterwards again against all almost along already also although always am among amongst
    an and another any anyone anything anywhere are aren around as at away back be became because become becomes been
    before beforehand behind being below beside besides best better between beyond both but by came can cannot come
    comes could couldn did didn do does doesn doing don done down due during each either else elsewhere end enough
    especially etc even ever every everyone everything everywhere except far few first followed following for former
    formerly from full further gave get gets give given gives go goes going got had has hasn have haven having he hence
    her here hers herself him himself his how however if in include included includes including indeed instead into is
    isn it its itself just keep kept known last later latter least less let like likely ll made mainly make makes many
    may maybe me meanwhile might mine more moreover most mostly much must my myself name namely named near nearly
    neither never nevertheless new next no nobody none nor not nothing now nowhere of off often on once one ones only
    onto or other others otherwise our ours ourselves out over own part parts per perhaps put quite rather re really
    said same saw say says see seem seemed seems seen several shall she should shouldn since so some someone something
    sometimes somewhere soon still such take taken takes than that the their theirs them themselves then there
    therefore these they thing things this those though three through throughout thus time times to together too took
    toward towards twice two under unless until up upon us use used uses using usually various ve very via was wasn way
    we well went were weren what whatever when whenever where whereas wherever whether which while who whoever whole
    whom whose why will with within without won would wouldn year years yet you your yours yourself
    """.split()
)
