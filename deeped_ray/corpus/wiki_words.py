"""What the larger Wikipedias call their namespaces, disambiguation pages and categories of persons.

The words stand in `wiki_words.txt` and `language_codes.txt`, each with its date. They count in every wiki: no dump says
which words its pages use, and old pages use old ones.
"""

import functools
from pathlib import Path


def _lines(name: str) -> list[str]:
    lines = (Path(__file__).parent / name).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.strip() and not line.startswith("#")]


@functools.cache
def words(section: str) -> frozenset[str]:
    """The entries of a section, in lower case."""
    found, own = [], ""
    for line in _lines("wiki_words.txt"):
        if line.startswith("["):
            own = line.strip("[] ")
        elif own == section:
            found += [entry.strip() for entry in line.split(";")]
    assert found, f"no section {section}"
    return frozenset(filter(None, found))


LANGUAGE_CODES = frozenset(code for line in _lines("language_codes.txt") for code in line.split())
"""Prefixes of links to other Wikipedias. No Wikipedia has articles under them; a title such as `CSI: Miami` has none."""
SHOWN_PREFIXES = words("other wikis")
NAMESPACES = words("files and categories")
