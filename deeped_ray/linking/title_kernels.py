"""Titles beside mentions, compiled: the measures of `title_evidence`."""

import numpy as np

from deeped_ray.linking.compiling import compiled
from deeped_ray.linking.layout_kernels import is_in
from deeped_ray.linking.remembered import place_in

_ANY, _PRIME = np.int64(42), np.int64(1099511628211)


@compiled
def compare_titles(  # type: ignore[no-untyped-def]
    mention, own_words, own_places, titles, title_places, text_words, name_of, shares, measures
) -> None:
    """Words of mentions and titles are rows of `title_evidence.words_of_name`; those of each begin and end at its places.

    The pattern of a title is the title with `*` for the words of the mention; 0 if it has none of them, or no others.
    """
    patterns = np.zeros(len(mention), np.int64)
    for row in range(len(mention)):
        own = own_words[own_places[mention[row], 0] : own_places[mention[row], 1]]
        title = titles[title_places[row, 0] : title_places[row, 1]]
        common = num_rest = rest = in_text = num_shared = pattern = last = np.int64(0)
        for place in range(len(title)):
            word, letters, bare_letters, is_stop = title[place, 0], title[place, 1], title[place, 2], title[place, 3]
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
    _count_siblings(mention, patterns, name_of, shares, measures[:, 4])


@compiled
def _count_siblings(mention, patterns, name_of, shares, siblings) -> None:  # type: ignore[no-untyped-def]
    """log(1 + sum over other names of the largest share among their candidates with this pattern)."""
    num_places = 16
    while num_places < 2 * len(mention):
        num_places *= 2
    places, kinds = np.zeros(num_places, np.int64), np.empty(len(mention), np.int64)
    kind_of = np.full(len(mention), -1)
    number = 0
    for row in range(len(mention)):
        if patterns[row]:
            place = place_in(patterns[row], places, kinds)
            if places[place] == 0:
                kinds[number] = patterns[row]
                number += 1
                places[place] = number
            kind_of[row] = places[place] - 1
    largest = np.zeros((number, name_of.max() + 1), np.float32)
    for row in range(len(mention)):
        if patterns[row]:
            kind, name = kind_of[row], name_of[mention[row]]
            largest[kind, name] = max(largest[kind, name], shares[row])
    for row in range(len(mention)):
        if patterns[row]:
            total = np.float32(0)
            for name in range(largest.shape[1]):
                if name != name_of[mention[row]]:
                    total += largest[kind_of[row], name]
            siblings[row] = np.log1p(total)
