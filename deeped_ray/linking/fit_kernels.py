"""How well entities fit the context, the document and what the other names seem to mean, compiled."""

import numpy as np

from deeped_ray.linking.choice_kernels import choose
from deeped_ray.linking.compiling import compiled, compiled_exactly
from deeped_ray.linking.memory_kernels import fetch_ahead

LANES = 64
"""Numbers that compiled loops take at once."""
_HALF_SIGN, _HALF_REST, _HALF_SCALE = np.uint32(0x8000), np.uint32(0x7FFF), np.float32(2.0**112)


@compiled
def unit(vector, result) -> None:  # type: ignore[no-untyped-def]
    total = np.float32(0)
    for each in range(len(vector)):
        total += vector[each] * vector[each]
    scale = np.float32(1) / np.sqrt(total) if total > 0 else np.float32(0)
    for each in range(len(vector)):
        result[each] = vector[each] * scale


@compiled
def rest_of(x):  # type: ignore[no-untyped-def]
    """The last LANES numbers, with zeros for those that stand in whole LANES from the beginning.

    A loop over whole LANES and one over these leave no numbers over that would be taken one by one.
    """
    rest, d = np.zeros(LANES, np.float32), len(x)
    for each in range(d - d % LANES, d):
        if d >= LANES:
            rest[each - d + LANES] = x[each]
    return rest


@compiled
def two_products(own, extra, entity, number, x, y, with_x, with_y) -> None:  # type: ignore[no-untyped-def]
    """Of the vectors of the first entities with x and y: each is read once."""
    x_rest, y_rest, d = rest_of(x), rest_of(y), len(x)
    whole = d - d % LANES if d >= LANES else d
    for row in range(number):
        fetch_ahead(own, entity, row, number)
        vector = own[entity[row]] if entity[row] < len(own) else extra[entity[row] - len(own)]
        first = second = np.float32(0)
        for each in range(whole):
            first += vector[each] * x[each]
            second += vector[each] * y[each]
        if whole < d:
            last = vector[d - LANES :]
            for each in range(LANES):
                first += last[each] * x_rest[each]
                second += last[each] * y_rest[each]
        with_x[row], with_y[row] = first, second


@compiled
def products(own, extra, entity, number, x, with_x) -> None:  # type: ignore[no-untyped-def]
    """Of the vectors of the first entities with x."""
    rest = rest_of(x)
    for row in range(number):
        with_x[row] = dot(own, extra, entity[row], x, rest)


@compiled
def dot(own, extra, row, x, x_rest):  # type: ignore[no-untyped-def]
    return _dot(own[row], x, x_rest) if row < len(own) else _dot(extra[row - len(own)], x, x_rest)


@compiled
def _dot(vector, x, x_rest):  # type: ignore[no-untyped-def]
    d = len(vector)
    whole = d - d % LANES if d >= LANES else d
    total = np.float32(0)
    for each in range(whole):
        total += vector[each] * x[each]
    if whole < d:
        last = vector[d - LANES :]
        for each in range(LANES):
            total += last[each] * x_rest[each]
    return total


@compiled
def add(own, extra, row, share, sums) -> None:  # type: ignore[no-untyped-def]
    if row < len(own):
        for each in range(own.shape[1]):
            sums[each] += share * own[row, each]
    else:
        for each in range(own.shape[1]):
            sums[each] += share * extra[row - len(own), each]


@compiled
def consult(mention, entity, evidence, scores, name, vectors, fit_at, weights, by_prior, by_score, kept):  # type: ignore[no-untyped-def]
    """Compare each entity with what the other names of the document seem to mean; keeps the best, returns their number.

    Rows come by mention. A name must not speak for itself, wherever it stands.
    """
    own, extra = vectors
    others = np.zeros((name.max() + 1, own.shape[1]), np.float32)
    shares = np.empty(len(mention), np.float32)
    shares_of(mention, scores, shares)
    for row in range(len(mention)):
        fetch_ahead(own, entity, row, len(mention))
        add(own, extra, entity[row], shares[row], others[name[mention[row]]])
    _of_others(others)
    rests = np.empty((len(others), LANES), np.float32)
    for each in range(len(others)):
        rests[each] = rest_of(others[each])
    for row in range(len(mention)):
        fetch_ahead(own, entity, row, len(mention))
        number = name[mention[row]]
        evidence[row, fit_at + 1] = dot(own, extra, entity[row], others[number], rests[number])
    return choose(mention, entity, evidence, scores, weights, by_prior, by_score, kept)


@compiled
def relate(mention, entity, evidence, scores, name, halves, at, shares) -> None:  # type: ignore[no-untyped-def]
    """The same by hyperlinks: `halves` are the bits of float16. Entities beyond them have no such vector."""
    vectors = np.zeros((len(mention), halves.shape[1]), np.float32)
    others = np.zeros((name.max() + 1, halves.shape[1]), np.float32)
    shares_of(mention, scores, shares)
    for row in range(len(mention)):
        fetch_ahead(halves, entity, row, len(mention))
        if entity[row] < len(halves):
            _widen(halves, entity[row], vectors[row])
    # a loop of its own: within the other, the compiler may scale the product instead, and round it twice
    for row in range(len(mention)):
        add(vectors, vectors, row, shares[row], others[name[mention[row]]])
    _of_others(others)
    for row in range(len(mention)):
        total = np.float32(0)
        for each in range(halves.shape[1]):
            total += vectors[row, each] * others[name[mention[row]], each]
        evidence[row, at] = total


@compiled
def _widen(halves, row, result) -> None:  # type: ignore[no-untyped-def]
    """float16 to float32: the bits are those of a number that is 2 ** 112 times too small."""
    for each in range(halves.shape[1]):
        half = np.uint32(halves[row, each])
        value = np.uint32((half & _HALF_REST) << np.uint32(13)).view(np.float32) * _HALF_SCALE
        result[each] = -value if half & _HALF_SIGN else value


@compiled_exactly
def shares_of(mention, scores, shares) -> None:  # type: ignore[no-untyped-def]
    """Softmax over the rows of each mention."""
    start = 0
    while start < len(mention):
        end, highest = start, scores[start]
        while end < len(mention) and mention[end] == mention[start]:
            highest = max(highest, scores[end])
            end += 1
        total = np.float32(0)
        for row in range(start, end):
            shares[row] = np.exp(scores[row] - highest)
            total += shares[row]
        for row in range(start, end):
            shares[row] /= total
        start = end


@compiled
def _of_others(sums) -> None:  # type: ignore[no-untyped-def]
    """For each row the sum of all other rows, of unit length."""
    total = np.zeros(sums.shape[1], np.float32)
    for row in range(len(sums)):
        total += sums[row]
    for row in range(len(sums)):
        for each in range(len(total)):
            sums[row, each] = total[each] - sums[row, each]
        unit(sums[row], sums[row])
