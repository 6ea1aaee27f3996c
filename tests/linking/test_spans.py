"""Which spans of a text may be mentions."""

import numpy as np
import pytest

from deeped_ray.corpus.occurrences import MAX_UNITS
from deeped_ray.linking.spans import MAX_RUN, _block_keys
from deeped_ray.linking.units import MAX_PREFIX, read_units


def blocks(text: str) -> list[str]:
    units = read_units(text)
    firsts, lengths = np.divmod(np.sort(_block_keys(units)) // (MAX_PREFIX + 1), MAX_UNITS + 1)
    return [
        text[units.starts[first] : units.ends[first + length - 1]]
        for first, length in zip(firsts, lengths, strict=True)
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("東京都である。", ["東京都"]),
        ("ジョン・スチュアート・ミルの本", ["ジョン・スチュアート・ミル"]),
        ("社会システム理論", ["社会", "社会システム", "社会システム理論", "システム", "システム理論", "理論"]),
        ("東京・大阪", ["東京・大阪"]),
        ("Windows版", ["Windows版"]),
        ("東京 大阪", ["東京", "大阪"]),
        ("は、の。", []),
        ("Tokyo is big, U.S. too.", []),
        ("", []),
    ],
)
def test_stretches_of_a_script_are_spans_where_no_spaces_are(text: str, expected: list[str]) -> None:
    assert blocks(text) == expected


def test_blocks_in_a_row_are_bounded() -> None:
    found = blocks("東京テレビ" * 200)
    assert len(found) <= MAX_RUN * 400
    assert max(map(len, found)) <= MAX_UNITS
