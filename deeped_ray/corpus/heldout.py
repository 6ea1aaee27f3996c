"""A small, fixed share of the dump's links, kept out of the words around links: validation data that every dump brings along.

heldout.parquet     mention, entity it leads to, and the vocabulary words of its surroundings
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from deeped_ray.corpus.cooccurrence import Ids, TokenizedText, link_words
from deeped_ray.knowledge.parts import Part
from deeped_ray.knowledge.strings import hash64
from deeped_ray.storage.arrow import read_table
from deeped_ray.storage.location import Location
from deeped_ray.types import Link, Page

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


class Row(NamedTuple):
    page: str
    start: int
    mention: str
    entity: int
    words: list[int]


class HeldOutLink(NamedTuple):
    mention: str
    entity_id: int
    words: npt.NDArray[np.int64]
    """Ids of the corpus vocabulary."""


def is_held_out(title: str, link: Link) -> bool:
    """By a hash of the place, so that it does not depend on how the dump is cut."""
    return hash64(f"{title}\t{link.start}") % ONE_OF == 0


def rows_of(
    page: Page, tokens: TokenizedText, links: Sequence[Link], entities: Ids, is_out: npt.NDArray[np.bool_]
) -> list[Row]:
    chosen = np.flatnonzero(is_out).tolist()
    held_out = [links[place] for place in chosen]
    position, words = link_words(tokens, held_out, window=CONTEXT_WORDS) if held_out else (np.zeros(0), np.zeros(0))
    return [
        Row(
            page.title,
            link.start,
            page.text[link.start : link.end],
            int(entities[place]),
            words[position == number].tolist(),
        )
        for number, (place, link) in enumerate(zip(chosen, held_out, strict=True))
    ]


def write(target: Location, rows: Sequence[Row]) -> None:
    with target.writing() as path:
        pq.write_table(pa.Table.from_pylist([row._asdict() for row in rows], schema=_SCHEMA), path)


def join(files: Sequence[Location], folder: Path) -> int:
    """All held-out links in one file, by page and place; returns how many."""
    table = pa.concat_tables([file.reading(read_table) for file in files])
    pq.write_table(table.sort_by([("page", "ascending"), ("start", "ascending")]), folder / "heldout.parquet")
    return int(table.num_rows)


def read(corpus: Part) -> list[HeldOutLink]:
    table = read_table(corpus.path / "heldout.parquet", columns=["mention", "entity", "words"]).to_pylist()
    return [HeldOutLink(row["mention"], row["entity"], np.array(row["words"], dtype=np.int64)) for row in table]
