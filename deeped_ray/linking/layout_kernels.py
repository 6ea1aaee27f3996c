"""From rows of candidates to the arrays of an `EncodedDocument`, compiled; and searching in what rises."""

from deeped_ray.linking.compiling import compiled


@compiled
def lay_out(  # type: ignore[no-untyped-def]
    known,
    sides,
    mention,
    entity,
    all_evidence,
    spread,
    num_sources,
    words,
    entities,
    context,
    candidates,
    prior,
    evidence,
    sources,
    gold,
):
    """Fills the rows of an `EncodedDocument`, and makes rising words and entities distinct; returns how many these are.

    `gold` has entities, and gets their places among the candidates.
    """
    num_words, num_entities = _distinct(words), _distinct(entities)
    for i in range(len(sides)):
        at = 0
        for side in range(0, 4, 2):
            for place in range(sides[i, side], sides[i, side + 1]):
                context[i, at] = place_of(known[place], words[:num_words])
                at += 1
    row = 0
    for i in range(len(sides)):
        place, s = -1, 0
        while row < len(mention) and mention[row] == i:
            candidates[i, s] = place_of(entity[row], entities[:num_entities])
            prior[i, s] = all_evidence[row, 0]
            for each in range(evidence.shape[2]):
                evidence[i, s, each] = all_evidence[row, each + 1] / spread[each + 1]
            for source in range(num_sources - 1, -1, -1):
                sources[i, s] = source if all_evidence[row, source] > 0 else sources[i, s]
            place = s if entity[row] == gold[i] else place
            row, s = row + 1, s + 1
        gold[i] = place
    return num_words, num_entities


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
