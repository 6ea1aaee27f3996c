"""The units of a text as detection sees them: case, place in the sentence, script. Arrays, one entry per unit.

No list of words of a language but the stop words decides anything here, and those are only one column of many.
"""

import functools
import unicodedata
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from deeped_ray.text import (
    STOP_WORDS,
    Bools,
    Hashes,
    Ints,
    codes_of,
    compose,
    hash_stretches,
    hash_tokens,
    letters,
    scripts_of,
    unit_spans,
)

Codes = npt.NDArray[np.uint32]
BREAK = hash_tokens(["\n"])[0]
"""No mention has it."""
MAX_PREFIX = 2
_STOP_HASHES = np.sort(hash_tokens(sorted(STOP_WORDS)))
LINE_END, FULL_STOP, JOINER, APOSTROPHE, HYPHEN, BRACKET, COMMA = (1 << bit for bit in range(7))
_SIGNS = {
    LINE_END: "\n\r\v\f\x85\u2028\u2029",
    FULL_STOP: ".!?:;\u3002\uff01\uff1f\uff1a\uff0e\u0964\u061f\u06d4\u055e\u1362",
    JOINER: "-'’&‐‑·.",
    APOSTROPHE: "'’",
    HYPHEN: "-‐‑–",
    BRACKET: "()",
    COMMA: ",、，،",
}
_PREFIXED = ((0x590, 0x5FF), (0x600, 0x6FF))  # Hebrew, Arabic: short words are written together with the next one


@functools.cache
def _signs() -> npt.NDArray[np.uint8]:
    """Code point -> what it is as a sign, in bits."""
    table = np.zeros(2**16, np.uint8)
    for bit, signs in _SIGNS.items():
        table[codes_of(signs)] |= bit
    return table


def _within(hashes: Hashes, ordered: Hashes) -> Bools:
    rows = np.minimum(ordered.searchsorted(hashes), len(ordered) - 1)
    is_within: Bools = ordered[rows] == hashes
    return is_within


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
    prefixed: tuple[Hashes, ...]
    """Hashes without the first letter, and without the first two, of scripts that have such prefixes."""


def read_units(text: str) -> Units:
    spans = unit_spans(text)
    starts, ends = spans.starts, spans.ends
    if not text.isascii() and not unicodedata.is_normalized("NFC", text):
        strings = [compose(text[start:end]) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        codes = codes_of("".join(strings))
        tails = np.cumsum([len(string) for string in strings])
        heads = np.append(0, tails)[:-1]
    else:
        codes, heads, tails = codes_of(text), starts, ends
    table = letters()
    rows = table.rows(codes)
    first = codes[heads]
    script = scripts_of(first)
    is_word = (script > 0) & (first != ord("_"))
    is_upper_letter, is_lower_letter = table.is_upper[rows], table.is_lower[rows]
    num_upper, num_lower = (np.append(0, np.cumsum(each)) for each in (is_upper_letter, is_lower_letter))
    upper, lower = num_upper[tails] - num_upper[heads], num_lower[tails] - num_lower[heads]
    lowered = table.lowered(codes)
    titled = lowered.copy()
    titled[heads] = np.where(first < len(table.upper), table.upper[rows[heads]], first)
    low = hash_stretches(lowered, heads, tails)
    is_capital = is_word & is_upper_letter[heads]
    places = np.arange(len(starts))
    sign = _signs()[np.minimum(first, 2**16 - 1)]
    is_line_end = sign & LINE_END > 0
    # the full stop of U.S. and J. Smith ends no sentence
    is_letter_before = np.append(False, (is_capital & (tails - heads == 1))[:-1]) & ~spans.is_spaced
    is_end = is_line_end | ((sign & FULL_STOP > 0) & ~((first == ord(".")) & is_letter_before))
    word_before = np.append(-1, np.maximum.accumulate(np.where(is_word, places, -1)))[:-1]
    end_before = np.maximum.accumulate(np.where(is_end, places, -1))
    line_before = np.maximum.accumulate(np.where(is_line_end, places, -1))
    sentence = np.cumsum(is_end) - is_end
    size = int(sentence[-1]) + 1 if len(sentence) else 0
    num_capitals, num_cased = (np.bincount(sentence, each, size) for each in (is_capital | (upper > 0), lower > 0))
    is_flat = ((num_capitals == 0) & (num_cased > 1))[sentence] if size else np.zeros(0, bool)
    prefixed = (
        tuple(_without_prefix(codes, heads, tails, count) for count in range(1, MAX_PREFIX + 1))
        if _has_prefixes(first).any()
        else ()
    )
    return Units(
        starts=starts,
        ends=ends,
        code=first,
        sign=sign,
        script=script,
        num_characters=tails - heads,
        own=hash_stretches(codes, heads, tails),
        lower=low,
        title=hash_stretches(titled, heads, tails),
        is_spaced=spans.is_spaced,
        is_word=is_word,
        is_number=is_word & table.is_digit[rows[heads]],
        is_capital=is_capital,
        is_lower=is_word & is_lower_letter[heads],
        is_upper=is_word & (upper > 1) & (lower == 0),
        is_stop=_within(low, _STOP_HASHES),
        is_initial=is_word & (word_before <= end_before),
        is_line_start=is_word & (word_before <= line_before),
        sentence=sentence,
        is_flat=is_flat,
        prefixed=prefixed,
    )


def _has_prefixes(codes: Codes) -> Bools:
    found = np.zeros(len(codes), bool)
    for low, high in _PREFIXED:
        found |= (codes >= low) & (codes <= high)
    return found


def _without_prefix(codes: Codes, heads: Ints, tails: Ints, count: int) -> Hashes:
    is_long = (tails - heads > count + 1) & _has_prefixes(codes[heads])
    return np.where(is_long, hash_stretches(codes, np.where(is_long, heads + count, heads), tails), BREAK)


class Runs(NamedTuple):
    """Capitalised words in a row. Of every unit: its run (-1 for none), its place in it among the words, and the run's words."""

    run: Ints
    place: Ints
    size: Ints


def runs_of(units: Units) -> Runs:
    n = len(units.starts)
    words = np.flatnonzero(units.is_capital)
    run, place, size = np.full(n, -1), np.zeros(n, np.int64), np.zeros(n, np.int64)
    if not len(words):
        return Runs(run, place, size)
    gap = words[1:] - words[:-1]
    middle = np.minimum(words[:-1] + 1, n - 1)
    is_and, is_stop = (units.code[middle] == ord(sign) for sign in "&.")
    is_joiner = (units.sign[middle] & JOINER > 0) & (~units.is_spaced[middle] | is_and)
    is_joiner &= ~is_stop | (units.num_characters[words[:-1]] == 1)
    is_joiner &= is_stop | is_and | ~units.is_spaced[words[1:]]
    is_new = np.append(True, ~((gap == 1) | ((gap == 2) & is_joiner)))
    number = np.cumsum(is_new) - 1
    firsts = np.flatnonzero(is_new)
    run[words] = number
    place[words] = np.arange(len(words)) - firsts[number]
    size[words] = np.bincount(number)[number]
    return Runs(run, place, size)
