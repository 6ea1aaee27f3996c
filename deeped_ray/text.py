"""The one tokenizer, stop list and normalizers, shared by ingest, training and serving.

A text has two kinds of tokens. Both come from one table that says what each character is.

    word    a run of Unicode word characters with their combining marks. Words are the evidence about entities, so they are what vocabularies hold.
    unit    a word, or a single other character. Mentions consist of units: `U.S.` has four.

Some scripts put no spaces between words. There every character is a unit, so that a name is found inside a run. A word ends
where the script changes, and runs are cut: Han into pairs of characters, Thai, Lao, Khmer and Burmese into fours.

`words_of` and `tokenize` are the plain form. `word_spans` and `unit_spans` are the bulk form: a text becomes arrays,
with no Python object for a token, in about a tenth of the time.
"""

import functools
import re
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

# Differs from the paper's code: Unicode word runs, where deep-ed split at every non-ASCII byte.
STOP_WORDS = frozenset((Path(__file__).parent / "stop_words.txt").read_text(encoding="utf-8").split())
_HAN = r"\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_HIRAGANA = r"\u3041-\u3096\u309d-\u309f"
_KATAKANA = r"\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\uff66-\uff9f"
_SOUTH_EAST = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\ua9e0-\ua9ff\uaa60-\uaa7f"
UNSPACED = _HAN + _HIRAGANA + _KATAKANA + _SOUTH_EAST
HAN_PIECE, SOUTH_EAST_PIECE = 2, 4
"""Characters of a word where no space ends it."""
_PIECES = {_HAN: HAN_PIECE, _SOUTH_EAST: SOUTH_EAST_PIECE}
# Vowel signs of Devanagari, points of Hebrew and Arabic, accents apart from their letters (NFD). Python does not count
# them among word characters, so that words would fall apart at them.
_MARKS = "".join(
    sign
    for sign in map(chr, [*range(0x300, 0x3000), *range(0xA600, 0xAC00), *range(0xFE20, 0xFE30)])
    if unicodedata.category(sign)[0] == "M" and not re.match(f"[{UNSPACED}]", sign)
)
_WORD = re.compile(
    rf"(?:(?![{UNSPACED}])\w)+(?:[{_MARKS}]+(?:(?![{UNSPACED}])\w)*)*|(?:(?=\w)[{_HIRAGANA}])+|(?:(?=\w)[{_KATAKANA}])+"
    + "".join(rf"|(?:(?=\w)[{script}]){{1,{size}}}" for script, size in _PIECES.items())
)
_ASCII_WORDS = "".join(sign if re.match(r"\w", sign) else " " for sign in map(chr, range(128)))
_SPELLED_WORD = re.compile(r"[\w'’]+")
_HEADLINE_WORD = re.compile(r"\w+(?:['’]\w+)?")
_QUALIFIER = re.compile(r"(?<=\S)(?:\s*\([^()]*\)|,[^,]*)$")
MAX_MARKS = 30
_ASSIGNED = 0x40000
"""From here on there are no letters: nothing is assigned but tags and private use."""
_CASED = 0x1F000
"""No code point from here on has case."""
GAP_KIND, WORD_KIND, _SINGLE_KIND, MARK_KIND, FIRST_UNSPACED_KIND, KATAKANA_KIND, HAN_KIND, SOUTH_EAST_KIND = range(8)
_KINDS = {
    WORD_KIND: r"\w+",
    FIRST_UNSPACED_KIND: rf"(?:(?=\w)[{_HIRAGANA}])+",
    KATAKANA_KIND: rf"(?:(?=\w)[{_KATAKANA}])+",
    HAN_KIND: rf"(?:(?=\w)[{_HAN}])+",
    SOUTH_EAST_KIND: rf"(?:(?=\w)[{_SOUTH_EAST}])+",
    GAP_KIND: r"\s+",
    _SINGLE_KIND: r"[\n\r\v\f\x85\u2028\u2029]+",
    MARK_KIND: f"[{_MARKS}]+",
}
"""What a character is to a token, by rising precedence; any other character is a single one."""
HASH_BASE = np.uint64(0xA0761D6478BD642F)
HASH_OFFSET = np.uint64(0xD1B54A32D192ED03)

Hashes = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


# -- words, one at a time


class Token(NamedTuple):
    start: int
    end: int
    word: str


def tokenize(text: str) -> Iterator[Token]:
    """The words of a text with their places, case kept."""
    for match in _WORD.finditer(text):
        yield Token(*match.span(), match.group())


def words_of(text: str) -> list[str]:
    """The words of `tokenize` without their places, in a fraction of the time."""
    if text.isascii():  # a tenth of the time of the expression
        return text.translate(_ASCII_WORDS).split()
    return _WORD.findall(text)


def spelled_words(text: str) -> list[str]:
    """Words with their apostrophes, `O'Neill` as one: initials are taken from these."""
    return _SPELLED_WORD.findall(text)


def is_content_word(word: str) -> bool:
    """False for stop words, numbers and single characters: they carry no evidence about an entity."""
    return len(word) > 1 and not word.isnumeric() and word.lower() not in STOP_WORDS


def content_words(text: str) -> list[str]:
    return [word for word in words_of(text) if is_content_word(word)]


# -- words and units, all of a text at once


class Spans(NamedTuple):
    """Places of tokens in a text, and a hash of what stands there."""

    starts: Ints
    ends: Ints
    hashes: Hashes

    @property
    def is_spaced(self) -> Bools:
        """Whether white space stands before each unit."""
        is_spaced = np.ones(len(self.starts), dtype=bool)
        is_spaced[1:] = self.starts[1:] > self.ends[:-1]
        return is_spaced


def word_spans(text: str) -> Spans:
    """The words of `tokenize`."""
    codes = codes_of(text)
    kinds = _with_marks(character_kinds()[codes])
    if kinds.max(initial=0) < FIRST_UNSPACED_KIND:
        return _spans(codes, kinds == WORD_KIND)
    is_start = np.append(True, kinds[1:] != kinds[:-1])
    places = np.arange(len(kinds))
    within = places - np.maximum.accumulate(np.where(is_start, places, 0))
    for kind, size in ((HAN_KIND, HAN_PIECE), (SOUTH_EAST_KIND, SOUTH_EAST_PIECE)):
        is_start |= (kinds == kind) & (within % size == 0)
    is_word = (kinds == WORD_KIND) | (kinds >= FIRST_UNSPACED_KIND)
    starts = np.flatnonzero(is_start & is_word)
    ends = np.flatnonzero(np.append(is_start[1:], True) & is_word) + 1
    return Spans(starts, ends, hash_stretches(codes, starts, ends))


def unit_spans(text: str) -> Spans:
    """As `(\\w[\\w MARKS]*|[^\\w\\s]|LINE END)` would find them, but for scripts without spaces."""
    codes = codes_of(text)
    kinds = character_kinds()[codes]
    kinds = _with_marks(np.where(kinds >= FIRST_UNSPACED_KIND, _SINGLE_KIND, kinds))
    return _spans(codes, kinds == WORD_KIND, kinds == _SINGLE_KIND)


def _with_marks(kinds: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Marks belong to the word before them. Without one they are single characters."""
    is_mark = kinds == MARK_KIND
    if not is_mark.any():
        return kinds
    places = np.maximum.accumulate(np.where(is_mark, 0, np.arange(len(kinds))))
    marks = np.where(kinds[places] == WORD_KIND, WORD_KIND, _SINGLE_KIND)
    return np.where(is_mark, marks, kinds).astype(np.uint8)


def hash_tokens(strings: Sequence[str]) -> Hashes:
    """The hashes that `Spans` has for these strings."""
    ends = np.cumsum(np.fromiter(map(len, strings), dtype=np.int64, count=len(strings)))
    return hash_stretches(codes_of("".join(strings)), np.append(0, ends)[:-1], ends)


def codes_of(text: str) -> npt.NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)


@functools.cache
def character_kinds() -> npt.NDArray[np.uint8]:
    """Code point -> kind of character."""
    characters = np.arange(_ASSIGNED, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")
    kinds = np.full(sys.maxunicode + 1, _SINGLE_KIND, dtype=np.uint8)
    for kind, pattern in _KINDS.items():
        for run in re.finditer(pattern, characters):
            kinds[run.start() : run.end()] = kind
    return kinds


def _spans(codes: npt.NDArray[np.uint32], is_word: Bools, is_single: Bools | np.bool_ = np.False_) -> Spans:
    """A token for every run of word characters and for every single one."""
    framed = np.concatenate([[False], is_word, [False]])
    starts = np.flatnonzero(is_single | (is_word & ~framed[:-2]))
    ends = np.flatnonzero(is_single | (is_word & ~framed[2:])) + 1
    return Spans(starts, ends, hash_stretches(codes, starts, ends))


def hash_stretches(codes: npt.NDArray[np.uint32], starts: Ints, ends: Ints) -> Hashes:
    """sum over characters c_k of a stretch: mixed(c_k) * HASH_BASE ** k, modulo 2 ** 64, mixed again.

    Not `hash64`, which reads one string at a time: here the sum of any stretch is the difference of two running sums
    over the text, moved to its start by the inverse of HASH_BASE, which is odd and therefore has one.
    """
    powers, inverses = _powers(1 << max(len(codes).bit_length(), 16))  # most texts share one table
    running = np.append(np.uint64(0), np.cumsum(mix64(codes.astype(np.uint64) + HASH_OFFSET) * powers[: len(codes)]))
    return mix64((running[ends] - running[starts]) * inverses[starts])


@functools.lru_cache(maxsize=2)
def _powers(count: int) -> tuple[Hashes, Hashes]:
    """Powers of HASH_BASE and of its inverse."""
    inverse = pow(int(HASH_BASE), -1, 2**64)
    bases = (np.full(count, base, dtype=np.uint64) for base in (int(HASH_BASE), inverse))
    up, down = (np.append(np.uint64(1), np.cumprod(base[1:])) for base in bases)
    return up, down


def mix64(values: Hashes) -> Hashes:
    """Every bit of the result depends on every bit of the value (splitmix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


class Letters(NamedTuple):
    """What code points are as letters, and in other case. Letters beyond these tables have no case."""

    lower: npt.NDArray[np.uint32]
    upper: npt.NDArray[np.uint32]
    is_upper: Bools
    is_lower: Bools
    is_digit: Bools


@functools.cache
def letters() -> Letters:
    characters = [chr(code) for code in range(_CASED)]
    lower, upper = (
        [each if len(each) == 1 else own for own, each in zip(characters, map(case, characters), strict=True)]
        for case in (str.lower, str.upper)
    )
    return Letters(
        codes_of("".join(lower)),
        codes_of("".join(upper)),
        np.array([each.isupper() or each.istitle() for each in characters]),
        np.array([each.islower() for each in characters]),
        np.array([each.isdigit() for each in characters]),
    )


# -- titles and mentions


def compose(text: str) -> str:
    """NFC, in linear time."""
    return text if text.isascii() else unicodedata.normalize("NFC", without_excess_marks(text))


def without_excess_marks(text: str) -> str:
    """At most 30 combining marks in a row, as Unicode's stream-safe format has it: no language writes more.

    Normal forms sort the marks of a letter, and Python does so in quadratic time: 5 s for 80,000 marks.
    """
    return _excess_marks().sub(r"\1", text) if len(text) > MAX_MARKS else text


@functools.cache
def _excess_marks() -> re.Pattern[str]:
    # also characters that are no marks, but decompose into marks: some Tibetan vowels, half-width voiced sound marks
    letters = map(chr, [*range(0x300, 0xD800), *range(0xF900, 0x20000)])
    marks = "".join(each for each in letters if unicodedata.combining(unicodedata.normalize("NFKD", each)[0]))
    return re.compile(f"([{marks}]{{{MAX_MARKS}}})[{marks}]+")


def normalize_title(title: str) -> str:
    """`apple_Inc.` -> `Apple Inc.`: MediaWiki's own rule for page titles, in NFC."""
    title = " ".join(compose(title).replace("_", " ").split())
    if "A" <= title[:1] <= "Z":  # nearly all
        return title
    first = title[:1].upper()
    # some letters have no single capital (ß), and Georgian is not capitalised in titles
    return title if len(first) != 1 or "\u10d0" <= title[:1] <= "\u10ff" else first + title[1:]


def normalize_mention(surface: str) -> str:
    """Surface strings are compared in NFC with single spaces; case is kept."""
    return " ".join(compose(surface).replace("_", " ").split())


def capitalize_words(text: str) -> str:
    """`QUEEN'S PARK` -> `Queen's Park`, for headlines."""
    return _HEADLINE_WORD.sub(lambda match: match.group().capitalize(), text)


def bare_title(title: str) -> str:
    """`Apple (fruit)` -> `Apple`, `Paris, Texas` -> `Paris`: a title without what tells it from its namesakes."""
    return _QUALIFIER.sub("", title)
