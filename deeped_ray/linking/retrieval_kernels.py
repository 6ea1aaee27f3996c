"""The inner loops of retrieval, compiled: all candidates of a document at once, without a Python object for any of them."""

import numpy as np

from deeped_ray.linking.kernels import compiled

_ANY, _PRIME = np.int64(42), np.int64(1099511628211)


@compiled
def compare_titles(  # type: ignore[no-untyped-def]
    mention, names, name_starts, titles, title_starts, text_words, measures, patterns
) -> None:
    """The measures of `title_evidence`, but for siblings, and a hash of each title's pattern.

    Names and titles are rows of `title_evidence._words`. The pattern is the title with `*` for the words of the mention; 0
    if it has none of them, or no others.
    """
    for row in range(len(mention)):
        own = names[name_starts[mention[row]] : name_starts[mention[row] + 1]]
        title = titles[title_starts[row] : title_starts[row + 1]]
        common = num_rest = rest = in_text = num_shared = pattern = last = np.int64(0)
        for place in range(len(title)):
            word, letters, bare_letters, is_stop = title[place]
            is_shared = False
            for other in range(len(own)):
                if own[other, 0] == word:
                    is_shared = True
                    common += bare_letters if own[other, 2] else 0
            num_shared += is_shared
            if not is_shared and not is_stop:
                num_rest += 1
                rest += letters
                in_text += letters if is_in(word, text_words) else 0
            sign = _ANY if is_shared else word
            if place == 0 or sign != last:
                pattern = (pattern ^ sign) * _PRIME
            last = sign
        if common:
            measures[row, 0] = common / own[:, 2].sum()
            measures[row, 1] = common / title[:, 2].sum()
        if num_rest:
            measures[row, 2] = np.log1p(num_rest) / 2
            measures[row, 3] = in_text / rest
            patterns[row] = pattern if num_shared else 0


@compiled
def shared_letters(near, listed, starts, ends, lengths, mention, letters) -> None:  # type: ignore[no-untyped-def]
    """Adds the length of each mention's word to the entities of `near` that are in the word's list.

    letters is [mentions, near]; both lists of entities rise. The shorter one is looked up in the other.
    """
    for word in range(len(starts)):
        entities, row = listed[starts[word] : ends[word]], letters[mention[word]]
        if len(entities) < len(near):
            for k in range(len(entities)):
                place = place_of(entities[k], near)
                if place < len(near) and near[place] == entities[k]:
                    row[place] += lengths[word]
        else:
            for k in range(len(near)):
                if is_in(near[k], entities):
                    row[k] += lengths[word]


@compiled
def keep_best(mention, prior, scores, by_prior, by_score, kept):  # type: ignore[no-untyped-def]
    """Rows of each mention's best by prior, then of its best by score, as `retrieval._best` says; returns their number.

    Rows come by mention, then by entity. Of equal ones the first comes first.
    """
    best, is_best = np.empty(by_prior + by_score, np.int64), np.zeros(len(mention), np.bool_)
    num_kept = start = 0
    while start < len(mention):
        end = start
        while end < len(mention) and mention[end] == mention[start]:
            end += 1
        num_best = 0
        for row in range(start, end):
            if prior[row] > 0:
                num_best = _insert(row, prior, scores, best, num_best, by_prior)
        for place in range(num_best):
            is_best[best[place]] = True
        room, num_best = by_prior + by_score - num_best, 0
        for row in range(start, end):
            if not is_best[row]:
                num_best = _insert(row, scores, scores, best, num_best, room)
        for place in range(num_best):
            is_best[best[place]] = True
        num_best = 0
        for row in range(start, end):
            if is_best[row]:
                num_best = _insert(row, prior, scores, best, num_best, len(best))
        kept[num_kept : num_kept + num_best] = best[:num_best]
        num_kept, start = num_kept + num_best, end
    return num_kept


@compiled
def _insert(row, first, then, best, num_best, most):  # type: ignore[no-untyped-def]
    """Puts a row in its place among the best, which fall by two keys; returns how many there are, `most` at most."""
    place = num_best
    while place > 0:
        other = best[place - 1]
        if first[other] > first[row] or (first[other] == first[row] and then[other] >= then[row]):
            break
        if place < most:
            best[place] = other
        place -= 1
    if place < most:
        best[place] = row
    return min(num_best + 1, most)


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
def is_in(value, ordered):  # type: ignore[no-untyped-def]
    place = place_of(value, ordered)
    return place < len(ordered) and ordered[place] == value
