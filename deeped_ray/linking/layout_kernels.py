"""From rows of candidates to the arrays of an `EncodedGroup`, compiled; sorting, and searching in what rises."""

import numpy as np

from deeped_ray.linking.compiling import compiled

MENTIONS, CONTEXTS, CELLS, WORDS, ENTITIES, PAIRS = range(6)
"""Columns of the layout of an `EncodedGroup`: where what belongs to a window begins."""
_RUN = 16
"""Values that are sorted one by one."""


@compiled
def lay_out(bounds, row_bounds, rows, known, sides, spread, num_sources, num_evidence, gold):  # type: ignore[no-untyped-def]
    """The arrays of an `EncodedGroup`, from the candidates of all mentions and the rows of word vectors of the text.

    `sides` are those of `KnownWords.contexts`. `gold` has entities, and gets their places among the candidates.
    """
    mention, entity, all_evidence = rows
    num_windows, num_mentions = len(bounds) - 1, len(sides)
    layout, widths = np.zeros((num_windows + 1, 6), np.int64), np.ones((num_windows, 2), np.int64)
    num_words, num_candidates = np.zeros(num_mentions, np.int64), np.zeros(num_mentions, np.int64)
    words, entities = list_of_distinct(bounds, row_bounds, entity, known, sides, layout)
    for w in range(num_windows):
        n = bounds[w + 1] - bounds[w]
        for row in range(row_bounds[w], row_bounds[w + 1]):
            num_candidates[bounds[w] + mention[row]] += 1
        for i in range(bounds[w], bounds[w + 1]):
            num_words[i] = sides[i, 1] - sides[i, 0] + sides[i, 3] - sides[i, 2]
            widths[w, 0], widths[w, 1] = max(widths[w, 0], num_words[i]), max(widths[w, 1], num_candidates[i])
        layout[w + 1, MENTIONS] = bounds[w + 1]
        layout[w + 1, CONTEXTS] = layout[w, CONTEXTS] + n * widths[w, 0]
        layout[w + 1, CELLS] = layout[w, CELLS] + n * widths[w, 1]
        layout[w + 1, PAIRS] = layout[w, PAIRS] + n * n
    num_cells = layout[-1, CELLS]
    context, candidates = np.zeros(layout[-1, CONTEXTS], np.int64), np.zeros(num_cells, np.int64)
    prior, sources = np.zeros(num_cells, np.float32), np.zeros(num_cells, np.int8)
    evidence = np.zeros(num_cells * num_evidence, np.float32)
    for w in range(num_windows):
        own_words = words[layout[w, WORDS] : layout[w + 1, WORDS]]
        own_entities = entities[layout[w, ENTITIES] : layout[w + 1, ENTITIES]]
        row, at, cell = row_bounds[w], layout[w, CONTEXTS], layout[w, CELLS]
        for i in range(bounds[w], bounds[w + 1]):
            k = at
            for side in range(0, 4, 2):
                for place in range(sides[i, side], sides[i, side + 1]):
                    context[k] = place_of(known[place], own_words)
                    k += 1
            place, s = -1, 0
            while row < row_bounds[w + 1] and bounds[w] + mention[row] == i:
                candidates[cell + s] = place_of(entity[row], own_entities)
                prior[cell + s] = all_evidence[row, 0]
                for each in range(num_evidence):
                    evidence[(cell + s) * num_evidence + each] = all_evidence[row, each + 1] / spread[each + 1]
                for source in range(num_sources - 1, -1, -1):
                    sources[cell + s] = source if all_evidence[row, source] > 0 else sources[cell + s]
                place = s if entity[row] == gold[i] else place
                row, s = row + 1, s + 1
            gold[i] = place
            at, cell = at + widths[w, 0], cell + widths[w, 1]
    of_words = layout, widths, words, entities, context, num_words
    return of_words + (candidates, num_candidates, prior, evidence, sources, gold)  # noqa: RUF005


@compiled
def list_of_distinct(bounds, row_bounds, entity, known, sides, layout):  # type: ignore[no-untyped-def]
    """The distinct words and entities of each window, rising; without any, one that nobody refers to."""
    num_windows = len(bounds) - 1
    starts, ends, most = np.empty(num_windows, np.int64), np.empty(num_windows, np.int64), 0
    for w in range(num_windows):
        starts[w], ends[w] = len(known), 0
        for i in range(bounds[w], bounds[w + 1]):
            starts[w], ends[w] = min(starts[w], sides[i, 0]), max(ends[w], sides[i, 3])
        most += max(ends[w] - starts[w], 1)
    words, entities = np.empty(most, np.int64), np.empty(len(entity) + num_windows, np.int64)
    for w in range(num_windows):
        layout[w + 1, WORDS] = add_distinct(known[starts[w] : ends[w]], words, layout[w, WORDS])
        layout[w + 1, ENTITIES] = add_distinct(entity[row_bounds[w] : row_bounds[w + 1]], entities, layout[w, ENTITIES])
    return words[: layout[-1, WORDS]], entities[: layout[-1, ENTITIES]]


@compiled
def add_distinct(values, target, at):  # type: ignore[no-untyped-def]
    """Appends the distinct values, rising, or a 0 if there are none; returns where they end."""
    ordered = target[at : at + len(values)]
    for place in range(len(values)):
        ordered[place] = values[place]
    sort(ordered)
    number = _distinct(ordered)
    if number == 0:
        target[at] = 0
        number = 1
    return at + number


@compiled
def sort(values) -> None:  # type: ignore[no-untyped-def]
    """Lowest first, by merging. numba takes seconds to compile its own."""
    number = len(values)
    for start in range(0, number, _RUN):
        for place in range(start + 1, min(start + _RUN, number)):
            value, before = values[place], place - 1
            while before >= start and values[before] > value:
                values[before + 1] = values[before]
                before -= 1
            values[before + 1] = value
    spare, width = np.empty_like(values), _RUN
    while width < number:
        for start in range(0, number, 2 * width):
            i, j, middle, end = start, start + width, min(start + width, number), min(start + 2 * width, number)
            for place in range(start, end):
                is_left = i < middle and (j >= end or values[i] <= values[j])
                spare[place] = values[i if is_left else j]
                i, j = (i + 1, j) if is_left else (i, j + 1)
        for place in range(number):
            values[place] = spare[place]
        width *= 2


@compiled
def _distinct(values):  # type: ignore[no-untyped-def]
    """Without repetitions, at the beginning of a rising list; returns how many there are."""
    number = 0
    for place in range(len(values)):
        if place == 0 or values[place] != values[place - 1]:
            # what stands there was read before
            values[number] = values[place]
            number += 1
    return number


@compiled
def place_of(value, ordered):  # type: ignore[no-untyped-def]
    """Binary search: where the value stands, or would stand."""
    low, high = 0, len(ordered)
    while low < high:
        middle = (low + high) // 2
        if ordered[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def place_from(start, value, ordered):  # type: ignore[no-untyped-def]
    """`place_of` for a value that stands at `start` or behind it: the nearer, the sooner it is found."""
    low = high = start
    step = 1
    while high < len(ordered) and ordered[high] < value:
        low, high, step = high + 1, high + step, 2 * step
    high = min(high, len(ordered))
    while low < high:
        middle = (low + high) // 2
        if ordered[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def is_in(value, ordered):  # type: ignore[no-untyped-def]
    place = place_of(value, ordered)
    return place < len(ordered) and ordered[place] == value


@compiled
def window_of(group, w):  # type: ignore[no-untyped-def]
    """Candidates, their number, context, its lengths, prior and evidence of a window, as an `EncodedDocument` has them."""
    layout, widths, _, context, num_words, candidates, num_candidates, prior, evidence = group
    first, end = layout[w, MENTIONS], layout[w + 1, MENTIONS]
    cell, cells = layout[w, CELLS], layout[w + 1, CELLS]
    n, K, S, F = end - first, widths[w, 0], widths[w, 1], len(evidence) // max(len(prior), 1)
    return (
        candidates[cell:cells].reshape((n, S)),
        num_candidates[first:end],
        context[layout[w, CONTEXTS] : layout[w + 1, CONTEXTS]].reshape((n, K)),
        num_words[first:end],
        prior[cell:cells].reshape((n, S)),
        evidence[F * cell : F * cells].reshape((n, S, F)),
    )
