"""Predictions as text."""

from dataclasses import replace

from deeped_ray.linking.views import linked_text
from deeped_ray.running.console import Style
from deeped_ray.types import Candidate, Prediction

TEXT = "Bonn lies on the Rhine, Zork does not."
BONN = Candidate("Bonn", 1, "", 0.25, 0.5, 0.8, 0.3, 0.7)
TEAM = Candidate("Bonn Capitals", 2, "", 0.75, 0.1, 0.2, 0.1, 0.3)
LINKED = Prediction(0, 4, "Bonn", (BONN, TEAM), attended=(("Rhine", 0.6), ("lies", 0.4)))
UNKNOWN = Prediction(24, 28, "Zork", reason="no entity is known by this name")


def test_links_stand_in_the_text_and_reasons_below_it() -> None:
    assert linked_text(TEXT, [LINKED, UNKNOWN]).splitlines() == [
        "[Bonn => Bonn] lies on the Rhine, [Zork => ?] does not.",
        "",
        "mention  entity  probability  usually                       why",
        "-------  ------  -----------  ----------------------------  -------------------------------",
        "Bonn     Bonn          0.700  Bonn Capitals (75% of links)  looked at Rhine, lies",
        "Zork     -                 -                                no entity is known by this name",
    ]


def test_on_a_terminal_mentions_are_in_colour() -> None:
    first, *_ = linked_text(TEXT, [LINKED, UNKNOWN], style=Style(True, 80)).splitlines()
    assert first == "\x1b[1;36mBonn\x1b[0m lies on the Rhine, \x1b[33mZork\x1b[0m does not."


def test_predictions_may_come_in_any_order() -> None:
    assert linked_text(TEXT, [UNKNOWN, LINKED]).startswith("[Bonn => Bonn] lies on the Rhine, [Zork => ?] does")


def test_empty_columns_are_left_out() -> None:
    by_prior = replace(LINKED, candidates=(TEAM, BONN), attended=())
    assert "mention  entity         probability\n" in linked_text(TEXT, [by_prior])


def test_wikidata_ids_have_a_column_if_there_are_any() -> None:
    lines = linked_text(TEXT, [replace(LINKED, candidates=(replace(BONN, wikidata="Q586"),)), UNKNOWN]).splitlines()
    assert [line.split("  ")[0:3:2] for line in lines[2:3]] == [["mention", "wikidata"]]
    assert "Bonn     Bonn    Q586" in lines[4]


def test_a_text_without_mentions_is_shown_as_it_is() -> None:
    assert linked_text(TEXT, []) == TEXT


def test_a_text_gives_the_terminal_no_commands() -> None:
    assert linked_text("\x1b[2JBonn\r", [replace(LINKED, start=4, end=8)]).startswith("\ufffd[2J[Bonn => Bonn]\ufffd\n")
