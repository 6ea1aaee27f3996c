"""Text for people: in colour and to the width of a terminal, plain for files and pipes."""

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from textwrap import wrap
from typing import NamedTuple

BOLD, DIM, LINK, NO_LINK = "1", "2", "1;36", "33"
"""Codes of SGR, which all terminals know."""
_GAP = "  "
_NARROWEST = 12
"""Columns are not wrapped to fewer characters."""


class Style(NamedTuple):
    """How text is shown. The default is plain: no colour, lines of any length."""

    is_coloured: bool = False
    width: int | None = None

    def paint(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.is_coloured else text


PLAIN = Style()


def stdout_style() -> Style:
    """Plain unless stdout is a terminal. NO_COLOR and TERM=dumb turn colours off (no-color.org)."""
    if not sys.stdout.isatty():
        return PLAIN
    is_colourless = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return Style(not is_colourless, shutil.get_terminal_size().columns)


def table(headers: Sequence[str], rows: Sequence[Sequence[object]], *, style: Style = PLAIN) -> str:
    """Aligned columns: text to the left, numbers to the right. Text is wrapped where the style has a width."""
    is_number = [
        bool(rows) and all(isinstance(row[i], int | float | None) for row in rows) for i in range(len(headers))
    ]
    cells = [list(headers), *([_cell(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    if style.width is not None:
        widths = _fit(widths, is_number, style.width)

    def line(values: Sequence[str]) -> str:
        columns = zip(values, widths, is_number, strict=True)
        return _GAP.join(each.rjust(width) if right else each.ljust(width) for each, width, right in columns).rstrip()

    head, *body = ("\n".join(map(line, _wrapped(row, widths))) for row in cells)
    return "\n".join([style.paint(head, BOLD), style.paint(line(["-" * width for width in widths]), DIM), *body])


def _fit(widths: list[int], is_number: Sequence[bool], most: int) -> list[int]:
    """Narrow the widest columns of text until a line has at most this many characters."""
    widths = list(widths)
    for _ in range(sum(widths) + len(_GAP) * (len(widths) - 1) - most):
        widest = max(range(len(widths)), key=lambda i: 0 if is_number[i] else widths[i])
        if is_number[widest] or widths[widest] <= _NARROWEST:
            break
        widths[widest] -= 1
    return widths


def _wrapped(row: Sequence[str], widths: Sequence[int]) -> Iterator[tuple[str, ...]]:
    """The lines of one row."""
    columns = [[cell] if len(cell) <= width else wrap(cell, width) for cell, width in zip(row, widths, strict=True)]
    return zip_longest(*columns, fillvalue="")


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
