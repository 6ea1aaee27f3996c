"""Tables for people."""

import sys

import pytest

from deeped_ray.running.console import PLAIN, Style, stdout_style, table


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Stdout as a terminal that shows colours."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    return monkeypatch


def test_numbers_stand_to_the_right_and_text_to_the_left() -> None:
    lines = table(["name", "n"], [("a", 1), ("bcdef", 2000), ("c", None)]).splitlines()
    assert lines == ["name       n", "-----  -----", "a          1", "bcdef  2,000", "c          -"]


def test_a_table_without_rows_is_its_head() -> None:
    assert table(["name", "n"], []) == "name  n\n----  -"


def test_files_and_pipes_get_plain_text() -> None:
    assert stdout_style() == PLAIN
    assert "\x1b" not in table(["name"], [("a",)], style=PLAIN)


def test_a_terminal_gets_colours_and_its_width(terminal: pytest.MonkeyPatch) -> None:
    terminal.setenv("COLUMNS", "99")
    assert stdout_style() == Style(True, 99)
    assert table(["name"], [("a",)], style=Style(True)) == "\x1b[1mname\x1b[0m\n\x1b[2m----\x1b[0m\na"


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colours_can_be_refused(name: str, value: str, terminal: pytest.MonkeyPatch) -> None:
    terminal.setenv(name, value)
    assert not stdout_style().is_coloured


def test_long_text_is_wrapped_to_the_width() -> None:
    rows = [("one two three four five six seven", 1), ("eight", 22)]
    assert table(["words", "n"], rows, style=Style(width=20)).splitlines() == [
        "words              n",
        "----------------  --",
        "one two three      1",
        "four five six",
        "seven",
        "eight             22",
    ]


def test_columns_are_not_wrapped_beyond_reading() -> None:
    lines = table(["words", "n"], [("one two three four", 1)], style=Style(width=3)).splitlines()
    assert max(map(len, lines)) == 15
