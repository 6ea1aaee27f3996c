"""The columns of spans, compiled: what `span_columns` tells the detector's model, span by span."""

import numpy as np

from deeped_ray.linking.compiling import compiled, compiled_exactly
from deeped_ray.linking.remembered import place_in
from deeped_ray.linking.unit_kernels import APOSTROPHE, BRACKET, COMMA, HYPHEN

NUM_BESIDE, NUM_UNIT = 13, 26
"""Columns of units that are also read before and after a span, and all of them."""
NUM_EDGES, NUM_COUNTED, NUM_FORM, NUM_MEANT = 2 * NUM_UNIT + 3 * NUM_BESIDE, 13, 11, 10
NUM_MARKS = 4


# -- units


@compiled_exactly
def mark(is_capital, is_initial, is_upper, is_lower, is_flat, place, size, marks) -> None:  # type: ignore[no-untyped-def]
    """`span_columns.marks_of`."""
    for i in range(len(is_capital)):
        is_long = size[i] > 1 and not is_upper[i]
        marks[0, i] = is_capital[i] and not is_initial[i] and not is_upper[i]
        marks[1, i] = is_lower[i] and not is_flat[i]
        marks[2, i] = is_long and place[i] == size[i] - 1
        marks[3, i] = is_long and place[i] == 0


@compiled_exactly
def count_marks(words, marks, number, places, owners, totals):  # type: ignore[no-untyped-def]
    """Adds up the marks of words in a table of open places that holds `number` words; returns how many it holds then."""
    for i in range(len(words)):
        place = place_in(words[i], places, owners)
        if places[place] == 0:
            owners[number] = words[i]
            totals[number] = 0
            number += 1
            places[place] = number
        for each in range(NUM_MARKS):
            totals[places[place] - 1, each] += marks[each, i]
    return number


@compiled_exactly
def read_marks(words, places, owners, totals, told) -> None:  # type: ignore[no-untyped-def]
    for i in range(len(words)):
        for each in range(NUM_MARKS):
            told[each, i] = totals[places[place_in(words[i], places, owners)] - 1, each]


@compiled_exactly
def unit_columns(flags, sign, num_characters, sentence, counts, runs, marks, told, table) -> None:  # type: ignore[no-untyped-def]
    """What is known of every unit, [units + 1, NUM_UNIT]. The last row is for what is not there: before and after the text."""
    is_word, is_number, is_capital, is_lower, is_upper, is_stop, is_initial, is_line_start, is_flat = flags
    own, lower, title = counts
    run, place, size = runs
    n = len(is_word)
    table[n] = 0
    start = 0
    while start < n:
        end = start
        words = capitals = uppers = 0
        while end < n and sentence[end] == sentence[start]:
            words += is_word[end]
            capitals += is_capital[end]
            uppers += is_upper[end]
            end += 1
        log_words = np.log1p(words)
        for i in range(start, end):
            row, others = table[i], max(words - 1, 1)
            row[0], row[1], row[2], row[3], row[4] = is_word[i], is_number[i], is_capital[i], is_lower[i], is_upper[i]
            row[5], row[6], row[7] = is_stop[i], num_characters[i] == 1, sign[i] & APOSTROPHE > 0
            row[8], row[9] = sign[i] & BRACKET > 0, sign[i] & COMMA > 0
            row[10] = np.log1p(own[i]) if is_word[i] else 0
            row[11] = np.log((title[i] + 0.5) / (lower[i] + 0.5)) if is_word[i] else 0
            row[12] = is_initial[i]
            row[13], row[14], row[15] = is_line_start[i], is_flat[i], np.log1p(lower[i])
            for each in range(NUM_MARKS):
                row[16 + each] = np.log1p(told[each, i] - marks[each, i])
            row[20], row[21], row[22] = place[i] > 0, run[i] >= 0 and place[i] < size[i] - 1, size[i]
            row[23] = log_words
            row[24] = (capitals - is_capital[i]) / others if words > 1 else 0
            row[25] = (uppers - is_upper[i]) / others if words > 1 else 0
        start = end


# -- spans


@compiled_exactly
def edges(first, length, sentence, units, columns) -> None:  # type: ignore[no-untyped-def]
    """The units at both ends of a span, the mean of all its units, and those before and after it in the sentence."""
    n = len(sentence)
    for row in range(len(first)):
        low, high = first[row], first[row] + length[row]
        before = low - 1 if low > 0 and sentence[low - 1] == sentence[low] else n
        after = high if high < n and sentence[high] == sentence[high - 1] else n
        found = columns[row]
        for each in range(NUM_UNIT):
            found[each], found[NUM_UNIT + each] = units[low, each], units[high - 1, each]
        for each in range(NUM_BESIDE):
            total = np.float32(0)
            for unit in range(low, high):
                total += units[unit, each]
            found[2 * NUM_UNIT + each] = total / np.float32(length[row])
            found[2 * NUM_UNIT + NUM_BESIDE + each] = units[before, each]
            found[2 * NUM_UNIT + 2 * NUM_BESIDE + each] = units[after, each]


@compiled_exactly
def counted(rows, pages, linked_pages, columns) -> None:  # type: ignore[no-untyped-def]
    """How often the dump has and links a span, as written, in usual case and in lower case."""
    num_pages = np.empty(3, np.int64)
    for span in range(rows.shape[1]):
        found = columns[span]
        for form in range(3):
            row = rows[form, span]
            num_pages[form] = pages[row] if row >= 0 else 0
            num_linked = np.int64(linked_pages[row]) if row >= 0 else 0
            found[form], found[3 + form] = row >= 0, np.log1p(num_pages[form])
            # a string that never occurs in running text counts as linked once in ten times
            found[6 + form] = np.log((num_linked + 0.2) / (num_pages[form] - num_linked + 1.8))
            found[9 + form] = np.log1p(num_linked)
        names = num_pages[0] + num_pages[1]
        found[12] = (names + 0.5) / (names + num_pages[2] + 1)


@compiled_exactly
def form(found, starts, ends, is_word, is_spaced, script, sign, columns) -> None:  # type: ignore[no-untyped-def]
    """How long a span is, whether it goes on beyond its ends, and whether it lies in a longer one that the table knows."""
    first, length, trimmed, own, headline = found
    n = len(starts)
    reach = np.zeros(n + 1, np.int64)
    for span in range(len(first)):
        if length[span] > 1 and (own[span] >= 0 or headline[span] >= 0):
            reach[first[span]] = max(reach[first[span]], first[span] + length[span])
    so_far, at = np.int64(0), 0
    for span in range(len(first)):
        low, high = first[span], first[span] + length[span]
        while at < low:  # those that begin before the span
            so_far = max(so_far, reach[at])
            at += 1
        num_words = 0
        for unit in range(low, high):
            num_words += is_word[unit]
        row = columns[span]
        row[0], row[1], row[2] = num_words == 1, num_words == 2, num_words
        row[3], row[4] = np.log(ends[high - 1] - starts[low] - trimmed[span]), trimmed[span]
        row[5], row[6] = _joined(low, -1, is_word, is_spaced, script, sign)
        row[7], row[8] = _joined(high - 1, 1, is_word, is_spaced, script, sign)
        begins = reach[low] > high
        row[9], row[10] = so_far >= high or begins, begins


@compiled_exactly
def _joined(edge, step, is_word, is_spaced, script, sign):  # type: ignore[no-untyped-def]
    """Whether a hyphen leads to another word beside the span, and whether its script goes on there without a space."""
    beside, beyond = edge + step, edge + 2 * step
    if not 0 <= beside < len(is_word) or is_spaced[max(edge, beside)]:
        return False, False
    is_hyphen = sign[beside] & HYPHEN > 0 and 0 <= beyond < len(is_word) and is_word[beyond]
    return is_hyphen, is_word[beside] and script[beside] == script[edge]


@compiled_exactly
def meant(rows, offsets, entities, priors, num_links, is_person, most, candidates, shares, columns) -> None:  # type: ignore[no-untyped-def]
    """What the table says of the candidates of a span, of which the first few are written to `candidates`."""
    for span in range(rows.shape[1]):
        row = rows[0, span] if rows[0, span] >= 0 else rows[1, span] if rows[1, span] >= 0 else rows[2, span]
        start = offsets[row] if row >= 0 else 0
        count = offsets[row + 1] - start if row >= 0 else 0
        for rank in range(most):
            candidates[span, rank] = entities[start + rank] if rank < count else -1
            shares[span, rank] = priors[start + rank] if rank < count else 0
        best = candidates[span, 0]
        found = columns[span]
        found[0], found[1] = shares[span, 0], np.log1p(count)
        found[2] = np.log1p(num_links[best]) if best >= 0 else 0
        found[3] = is_person[best] if best >= 0 else 0


@compiled
def add_up(vectors, rows, running) -> None:  # type: ignore[no-untyped-def]
    """running[i] is the sum of the vectors of the first i rows."""
    for place in range(len(rows)):
        for each in range(vectors.shape[1]):
            running[place + 1, each] = running[place, each] + vectors[rows[place], each]


@compiled
def fitting(fits, shares, columns) -> None:  # type: ignore[no-untyped-def]
    """How well the candidates fit each context: the expected cosine, and the largest."""
    for span in range(fits.shape[1]):
        whole = np.float32(0)
        for rank in range(fits.shape[2]):
            whole += shares[span, rank]
        for c in range(len(fits)):
            total, largest = np.float32(0), fits[c, span, 0]
            for rank in range(fits.shape[2]):
                total += fits[c, span, rank] * shares[span, rank]
                largest = max(largest, fits[c, span, rank])
            columns[span, c] = total / max(whole, np.float32(1e-6))
            columns[span, len(fits) + c] = largest


@compiled
def standardise(columns, mean, spread, standard) -> None:  # type: ignore[no-untyped-def]
    """What is not known counts as the mean."""
    for row in range(len(columns)):
        for each in range(columns.shape[1]):
            value = columns[row, each]
            standard[row, each] = (value - mean[each]) / spread[each] if value == value else np.float32(0)
