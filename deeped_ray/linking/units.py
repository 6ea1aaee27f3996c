"""The units of a text as detection sees them: case, place in the sentence, script. Arrays, one entry per unit.

No list of words of a language but the stop words decides anything here, and those are only one column of many.
"""

import functools
import unicodedata
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from deeped_ray.linking import unit_kernels as kernels
from deeped_ray.linking.unit_kernels import APOSTROPHE, BRACKET, COMMA, FULL_STOP, HYPHEN, JOINER, LINE_END
from deeped_ray.text import (
    STOP_WORDS,
    Bools,
    Hashes,
    Ints,
    character_kinds,
    codes_of,
    compose,
    hash_tokens,
    letters,
)

Codes = npt.NDArray[np.uint32]
BREAK = hash_tokens(["\n"])[0]
"""No mention has it."""
MAX_PREFIX = 2
_STOP_HASHES = np.sort(hash_tokens(sorted(STOP_WORDS)))
_SIGNS = {
    LINE_END: "\n\r\v\f\x85\u2028\u2029",
    FULL_STOP: ".!?:;\u3002\uff01\uff1f\uff1a\uff0e\u0964\u061f\u06d4\u055e\u1362",
    JOINER: "-'’&‐‑·.",
    APOSTROPHE: "'’",
    HYPHEN: "-‐‑–",
    BRACKET: "()",
    COMMA: ",、，،",
}
_PREFIXED = np.array(
    [(0x590, 0x5FF), (0x600, 0x6FF)]
)  # Hebrew, Arabic: short words are written together with the next one


@functools.cache
def _signs() -> npt.NDArray[np.uint8]:
    """Code point -> what it is as a sign, in bits."""
    table = np.zeros(2**16, np.uint8)
    for bit, signs in _SIGNS.items():
        table[codes_of(signs)] |= bit
    return table


class Units(NamedTuple):
    """The units of a piece of text."""

    starts: Ints
    ends: Ints
    code: Codes
    """The first character."""
    sign: npt.NDArray[np.uint8]
    """What it is as a sign, in bits."""
    script: npt.NDArray[np.uint8]
    num_characters: Ints
    own: Hashes
    lower: Hashes
    title: Hashes
    is_spaced: Bools
    is_word: Bools
    is_number: Bools
    is_capital: Bools
    is_lower: Bools
    is_upper: Bools
    """Two letters or more, all of them capitals."""
    is_stop: Bools
    is_initial: Bools
    """First word of a sentence or line."""
    is_line_start: Bools
    sentence: Ints
    is_flat: Bools
    """In a sentence without any capital."""
    prefixed: npt.NDArray[np.uint64]
    """Hashes without the first letter, and without the first two, of scripts that have such prefixes: no rows if none has."""


def read_units(text: str) -> Units:
    codes = codes_of(text)
    starts, ends = np.empty((2, len(codes)), np.int64)
    number = kernels.find_units(codes, character_kinds(), starts, ends)
    starts, ends = starts[:number], ends[:number]
    heads, tails = starts, ends
    if not text.isascii() and not unicodedata.is_normalized("NFC", text):
        strings = [compose(text[start:end]) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        codes = codes_of("".join(strings))
        tails = np.cumsum([len(string) for string in strings])
        heads = np.append(0, tails)[:-1]
    flags, hashes = np.empty((kernels.CASED + 1, number), np.bool_), np.empty((3 + MAX_PREFIX, number), np.uint64)
    first, (sign, script) = np.empty(number, np.uint32), np.empty((2, number), np.uint8)
    sentence = np.empty(number, np.int64)
    tables = character_kinds(), tuple(letters()), _signs(), _STOP_HASHES
    kernels.describe_units(codes, heads, tails, starts, ends, *tables, flags, hashes, first, sign, script, sentence)
    has_prefixes = not text.isascii() and kernels.without_prefixes(codes, heads, tails, _PREFIXED, BREAK, hashes[3:])
    return Units(
        starts=starts,
        ends=ends,
        code=first,
        sign=sign,
        script=script,
        num_characters=tails - heads,
        own=hashes[kernels.OWN],
        lower=hashes[kernels.LOWERED],
        title=hashes[kernels.TITLED],
        is_spaced=flags[kernels.SPACED],
        is_word=flags[kernels.WORD],
        is_number=flags[kernels.NUMBER],
        is_capital=flags[kernels.CAPITAL],
        is_lower=flags[kernels.LOWER],
        is_upper=flags[kernels.UPPER],
        is_stop=flags[kernels.STOP],
        is_initial=flags[kernels.INITIAL],
        is_line_start=flags[kernels.LINE_START],
        sentence=sentence,
        is_flat=flags[kernels.FLAT],
        prefixed=hashes[3:] if has_prefixes else hashes[3:3],
    )


class Runs(NamedTuple):
    """Capitalised words in a row. Of every unit: its run (-1 for none), its place in it among the words, and the run's words."""

    run: Ints
    place: Ints
    size: Ints


def runs_of(units: Units) -> Runs:
    n = len(units.starts)
    runs = Runs(np.full(n, -1), np.zeros(n, np.int64), np.zeros(n, np.int64))
    kernels.find_runs(units.is_capital, units.is_spaced, units.code, units.sign, units.num_characters, *runs)
    return runs
