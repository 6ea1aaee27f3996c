"""Files entities under keys of their names, so that no name has to be compared with all others (`name_index` looks them up).

Names are the mentions of the corpus: titles, redirects and anchors. An entity is filed under all letters of a name, under
its words and initials, with a weight. A word of many entities is not read whole: its list has a head, the entities with
most links, and words that are frequent are also filed in pairs (`name_lists`).

    names.keys.npy, names.offsets.npy          64-bit hashes of keys, in order; the list of each
    names.entities.npy, names.weights.npy      entities of a list, rising; how well each fits the key, 1 to 255
    names.halves.npy, names.halves_rows.npy    hashes of halves of names, in order; the row of each in the mention table
    names.endings.json                         endings that links exchange, most frequent first
"""

import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from deeped_ray.corpus.priors import MentionTable
from deeped_ray.embeddings.name_forms import (
    ACRONYM_LENGTHS,
    LONGEST_NAME,
    LOWER_LENGTHS,
    MIN_TYPO_LENGTH,
    Form,
    endings_of,
    fold,
    form_of,
    halves,
    initials_of,
    lower_initials_of,
    squeeze,
)
from deeped_ray.embeddings.name_lists import Buckets, Filed, Ints, num_buckets, write_halves, write_lists
from deeped_ray.knowledge.strings import hashes_of
from deeped_ray.text import bare_title

MIN_SHARE = 0.1
"""Of a name's links must lead to an entity for the name to be the entity's."""
MIN_EXCHANGES, MAX_ENDINGS = 8, 64
MOST = 255
"""The highest weight."""
_BLOCK = 100_000


@runtime_checkable
class Entities(Protocol):
    """What filing asks of a catalogue."""

    num_links: npt.NDArray[np.int64]
    is_person: npt.NDArray[np.bool_]

    def titles(self, entity_ids: Ints) -> list[str]: ...


def write_name_index(folder: Path, names: MentionTable, catalogue: Entities) -> int:
    """File all names of a corpus; returns their number."""
    exchanges = Counter[tuple[str, str]]()
    with tempfile.TemporaryDirectory(dir=folder) as name:
        work, count = Path(name), num_buckets(len(names))
        lists, by_half = Buckets(work / "lists", count), Buckets(work / "by_half", count)
        for first in range(0, max(len(names), 1), _BLOCK):
            rows = np.arange(first, min(first + _BLOCK, len(names)))
            strings = [name[:LONGEST_NAME] for name in names.take(rows)]
            forms = [form_of(bare_title(name)) for name in strings]
            pairs = names.entities_of(rows, min_share=MIN_SHARE)
            lists.add_by_key(_file_block(strings, forms, pairs.place, pairs.entity, pairs.prior, catalogue.is_person))
            by_half.add_by_key(_file_halves(forms, rows))
            exchanges.update(_exchanges(forms, pairs.place, catalogue.titles(pairs.entity)))
        write_lists(folder, work, lists, catalogue.num_links)
        write_halves(folder, work, by_half)
    endings = [pair for pair, count in exchanges.most_common(MAX_ENDINGS) if count >= MIN_EXCHANGES]
    (folder / "names.endings.json").write_text(json.dumps(endings))
    return len(names)


def _file_block(
    strings: Sequence[str],
    forms: Sequence[Form],
    place: Ints,
    entity: Ints,
    prior: npt.NDArray[np.float32],
    is_person: npt.NDArray[np.bool_],
) -> Filed:
    """Entities under the keys of their names. `place` says which name of the block an entity has.

    Persons are not filed under initials: few are called by them, and those by links.
    """
    keys, owners, letters = [], [], []
    for number, (string, form) in enumerate(zip(strings, forms, strict=True)):
        own = [f"={form.squeezed}"] if form.squeezed else []
        if bare_title(string) != string:
            own.append(f"={squeeze(fold(string))}")
        if len(initials := initials_of(bare_title(string))) in ACRONYM_LENGTHS:
            own.append(f"i{initials}")
        if len(initials := lower_initials_of(bare_title(string))) in LOWER_LENGTHS:
            own.append(f"l{initials}")
        keys += own
        keys += [f"w{word}" for word in form.words]
        letters += [0] * len(own) + [form.num_letters] * len(form.words)
        owners += [number] * (len(own) + len(form.words))
    hashes, owner, num_letters = hashes_of(keys), np.array(owners, np.int64), np.array(letters, np.int64)
    # every key of a name goes to every entity of it
    counts = np.bincount(place, minlength=len(strings))
    starts = np.append(0, np.cumsum(counts))[:-1]
    times = counts[owner]
    which = np.repeat(np.arange(len(owner)), times)
    within = np.arange(len(which)) - np.repeat(np.append(0, np.cumsum(times))[:-1], times)
    chosen = starts[owner[which]] + within
    is_initials = np.array([key[0] in "il" for key in keys], bool)
    kept = ~(is_initials[which] & is_person[entity[chosen]])
    which, chosen = which[kept], chosen[kept]
    is_word = num_letters[which] > 0
    by_share = np.clip(np.round(prior[chosen] * MOST), 1, MOST)
    by_length = np.clip(MOST + 1 - num_letters[which], 1, MOST)
    weights = np.where(is_word, by_length, by_share).astype(np.uint8)
    return Filed(hashes[which], entity[chosen].astype(np.int32), weights, is_word)


# -- endings


def _exchanges(forms: Sequence[Form], place: Ints, titles: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(ending of a link's text, ending of its title) for single words that begin alike: `Kurdish`, `Kurds`."""
    for number, title in zip(place.tolist(), titles, strict=True):
        form = forms[number]
        if len(form.words) != 1 or form.words[0] != form.squeezed:
            continue
        other = form_of(bare_title(title))
        if len(other.words) == 1 and (pair := endings_of(form.squeezed, other.squeezed)):
            yield pair


# -- typing errors


def _file_halves(forms: Sequence[Form], rows: Ints) -> Filed:
    """Names under both of their halves: a typing error leaves one of them as it was."""
    long = [number for number, form in enumerate(forms) if len(form.squeezed) >= MIN_TYPO_LENGTH]
    keys = [key for number in long for key in halves(forms[number].squeezed)]
    num_rows = 2 * len(long)
    owners = np.repeat(rows[long], 2).astype(np.int32)
    return Filed(hashes_of(keys), owners, np.zeros(num_rows, np.uint8), np.zeros(num_rows, bool))
