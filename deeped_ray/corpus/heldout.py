"""A small, fixed share of the dump's links, kept out of the words around links: validation data that every dump brings along.

heldout.parquet     mention, entity it leads to, and the vocabulary words of its surroundings
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from deeped_ray.corpus.cooccurrence import Tokens, words_around
from deeped_ray.corpus.pages import Bools, Links, Lot
from deeped_ray.corpus.shuffle import read_merged
from deeped_ray.knowledge.parts import Part
from deeped_ray.knowledge.strings import hash64
from deeped_ray.storage.arrow import read_table
from deeped_ray.storage.location import Location

ONE_OF = 500
CONTEXT_WORDS = 100
_SCHEMA = pa.schema(
    [
        ("page", pa.string()),
        ("start", pa.int64()),
        ("mention", pa.string()),
        ("entity", pa.int32()),
        ("words", pa.list_(pa.int32())),
    ]
)


class HeldOutLink(NamedTuple):
    mention: str
    entity_id: int
    words: npt.NDArray[np.int64]
    """Ids of the corpus vocabulary."""


def are_held_out(lot: Lot, links: Links) -> Bools:
    """By a hash of the place, so that it does not depend on how the dump is cut."""
    places = zip(links.page.tolist(), (links.start - lot.borders[links.page]).tolist(), strict=True)
    return np.array([hash64(f"{lot.titles[page]}\t{start}") % ONE_OF == 0 for page, start in places], dtype=bool)


def rows(lot: Lot, tokens: Tokens, links: Links) -> list[dict[str, Any]]:
    place, words = words_around(tokens, links, window=CONTEXT_WORDS)
    return [
        {
            "page": lot.titles[page],
            "start": start - int(lot.borders[page]),
            "mention": lot.text[start:end],
            "entity": entity,
            "words": words[place == number].tolist(),
        }
        for number, (page, start, end, entity) in enumerate(zip(*(column.tolist() for column in links), strict=True))
    ]


def write(target: Location, rows: Sequence[dict[str, Any]]) -> None:
    with target.writing() as path:
        pq.write_table(pa.Table.from_pylist(rows, schema=_SCHEMA), path)


def join(files: Sequence[Location], folder: Path) -> int:
    """All held-out links in one file, by page and place; returns how many."""
    table = read_merged(files)
    pq.write_table(table.sort_by([("page", "ascending"), ("start", "ascending")]), folder / "heldout.parquet")
    return int(table.num_rows)


def read(corpus: Part) -> list[HeldOutLink]:
    table = read_table(corpus.path / "heldout.parquet", columns=["mention", "entity", "words"]).to_pylist()
    return [HeldOutLink(row["mention"], row["entity"], np.array(row["words"], dtype=np.int64)) for row in table]
