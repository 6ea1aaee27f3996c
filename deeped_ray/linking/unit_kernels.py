"""The units of a text, compiled: where they stand, and what `units` says of each. One pass over the characters."""

import numpy as np

from deeped_ray.linking.compiling import compiled
from deeped_ray.linking.layout_kernels import is_in
from deeped_ray.linking.text_kernels import mix
from deeped_ray.text import FIRST_UNSPACED_KIND, GAP_KIND, HASH_BASE, HASH_OFFSET, MARK_KIND, WORD_KIND

_ONE, _ZERO = np.uint64(1), np.uint64(0)
_UNDERSCORE, _DOT, _AND = (np.uint32(ord(sign)) for sign in "_.&")
LINE_END, FULL_STOP, JOINER, APOSTROPHE, HYPHEN, BRACKET, COMMA = (1 << bit for bit in range(7))
"""What a character is as a sign, in bits."""
SPACED, WORD, NUMBER, CAPITAL, LOWER, UPPER, STOP, INITIAL, LINE_START, FLAT, CASED = range(11)
"""Rows of `flags`; the last one is for `describe_units` alone: whether a unit has a lower-case letter."""
OWN, LOWERED, TITLED = range(3)
"""Rows of `hashes`; then come those without prefixes."""


@compiled
def find_units(codes, kinds, starts, ends):  # type: ignore[no-untyped-def]
    """`text.unit_spans`; returns how many there are."""
    number = at = 0
    while at < len(codes):
        kind = kinds[codes[at]]
        at += 1
        if kind == GAP_KIND:
            continue
        starts[number] = at - 1
        while kind == WORD_KIND and at < len(codes) and kinds[codes[at]] in (WORD_KIND, MARK_KIND):
            at += 1
        ends[number] = at
        number += 1
    return number


@compiled
def describe_units(  # type: ignore[no-untyped-def]
    codes, heads, tails, starts, ends, kinds, letters, signs, stop_words, flags, hashes, first, sign, script, sentence
) -> None:
    """Letters are those of `text.letters`; a unit's characters are codes[heads:tails], and stand at starts:ends."""
    lower, upper, is_upper, is_lower, is_digit = letters
    last_row = np.uint32(len(lower) - 1)
    last_word = last_end = last_line_end = -1
    number = 0
    for i in range(len(heads)):
        head = codes[heads[i]]
        num_upper = num_lower = 0
        own = lowered = titled = _ZERO
        power = _ONE
        for at in range(heads[i], tails[i]):
            code = codes[at]
            row = min(code, last_row)
            low = lower[row] if code <= last_row else code
            num_upper += is_upper[row]
            num_lower += is_lower[row]
            here = mix(np.uint64(code) + HASH_OFFSET) * power
            small = here if low == code else mix(np.uint64(low) + HASH_OFFSET) * power
            own += here
            lowered += small
            if at > heads[i] or code > last_row:
                titled += small
            else:
                titled += mix(np.uint64(upper[row]) + HASH_OFFSET) * power
            power *= HASH_BASE
        hashes[OWN, i], hashes[LOWERED, i], hashes[TITLED, i] = mix(own), mix(lowered), mix(titled)
        kind, row = kinds[head], min(head, last_row)
        first[i], sign[i] = head, signs[min(head, np.uint32(len(signs) - 1))]
        script[i] = kind if kind == WORD_KIND or kind >= FIRST_UNSPACED_KIND else 0
        is_word = script[i] > 0 and head != _UNDERSCORE
        is_spaced = i == 0 or starts[i] > ends[i - 1]
        # the full stop of U.S. and J. Smith ends no sentence
        is_of_letter = (
            head == _DOT and i > 0 and not is_spaced and flags[CAPITAL, i - 1] and tails[i - 1] - heads[i - 1] == 1
        )
        is_line_end = sign[i] & LINE_END > 0
        is_end = is_line_end or (sign[i] & FULL_STOP > 0 and not is_of_letter)
        flags[SPACED, i], flags[WORD, i] = is_spaced, is_word
        flags[NUMBER, i] = is_word and is_digit[row]
        flags[CAPITAL, i] = is_word and is_upper[row]
        flags[LOWER, i] = is_word and is_lower[row]
        flags[UPPER, i] = is_word and num_upper > 1 and num_lower == 0
        flags[STOP, i] = is_in(hashes[LOWERED, i], stop_words)
        flags[INITIAL, i] = is_word and last_word <= last_end
        flags[LINE_START, i] = is_word and last_word <= last_line_end
        flags[CASED, i] = num_lower > 0
        flags[FLAT, i] = num_upper > 0  # for now: any capital
        sentence[i] = number
        last_word = i if is_word else last_word
        last_end = i if is_end else last_end
        last_line_end = i if is_line_end else last_line_end
        number += is_end
    _flatten(sentence, flags)


@compiled
def _flatten(sentence, flags) -> None:  # type: ignore[no-untyped-def]
    """FLAT becomes whether a unit stands in a sentence without capitals, but with several words that could have some."""
    start = 0
    while start < len(sentence):
        end, has_capital, num_cased = start, False, 0
        while end < len(sentence) and sentence[end] == sentence[start]:
            has_capital = has_capital or flags[FLAT, end]
            num_cased += flags[CASED, end]
            end += 1
        flags[FLAT, start:end] = not has_capital and num_cased > 1
        start = end


@compiled
def without_prefixes(codes, heads, tails, ranges, nothing, hashes):  # type: ignore[no-untyped-def]
    """Hashes of units without their first letter, without their first two; returns whether any has such a prefix."""
    is_any = False
    for i in range(len(heads)):
        code, has_prefix = codes[heads[i]], False
        for place in range(len(ranges)):
            has_prefix = has_prefix or ranges[place, 0] <= code <= ranges[place, 1]
        is_any = is_any or has_prefix
        for count in range(1, len(hashes) + 1):
            total, power = _ZERO, _ONE
            for at in range(heads[i] + count, tails[i]):
                total += mix(np.uint64(codes[at]) + HASH_OFFSET) * power
                power *= HASH_BASE
            hashes[count - 1, i] = mix(total) if has_prefix and tails[i] - heads[i] > count + 1 else nothing
    return is_any


@compiled
def find_runs(is_capital, is_spaced, code, sign, num_characters, run, place, size) -> None:  # type: ignore[no-untyped-def]
    """`units.runs_of`: run, place and size are -1, 0 and 0 before."""
    number, before, start = -1, -1, 0
    for i in range(len(is_capital)):
        if not is_capital[i]:
            continue
        if before < 0 or not _goes_on(before, i, is_spaced, code, sign, num_characters):
            number, start = number + 1, 0
        else:
            start += 1
        run[i], place[i], before = number, start, i
    last = -1
    for i in range(len(is_capital) - 1, -1, -1):
        if run[i] >= 0:
            last = i if last < 0 or run[last] != run[i] else last
            size[i] = place[last] + 1


@compiled
def _goes_on(before, i, is_spaced, code, sign, num_characters):  # type: ignore[no-untyped-def]
    """Whether two capitalised words belong to one run: nothing is between them, or a sign that joins them."""
    middle = before + 1
    if i - before != 2:
        return i - before == 1
    is_and, is_stop = code[middle] == _AND, code[middle] == _DOT
    is_joiner = sign[middle] & JOINER > 0 and (not is_spaced[middle] or is_and)
    is_joiner = is_joiner and (not is_stop or num_characters[before] == 1)
    return is_joiner and (is_stop or is_and or not is_spaced[i])
