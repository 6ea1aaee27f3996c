import time
from collections.abc import Sequence
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deeped_ray.corpus.priors import PriorCandidate, Senses
from deeped_ray.linking import coreference
from deeped_ray.linking.coreference import CoreferenceRule, share_person_candidates

BILL, HILLARY, TOWN, PARIS, HILTON = range(5)
IS_PERSON = np.array([True, True, False, False, True])
RULES: tuple[CoreferenceRule, ...] = ("words", "substring")

Mentions = Sequence[tuple[str, list[PriorCandidate]]]


def candidates(**priors: float) -> list[PriorCandidate]:
    """`candidates(BILL=0.9)`, by falling prior as the mention table has them; ten times the prior stands behind each."""
    return [PriorCandidate(globals()[name], prior, 10 * prior) for name, prior in priors.items()]


CLINTON = ("Clinton", candidates(TOWN=0.6, BILL=0.4))
BILL_CLINTON = ("Bill Clinton", candidates(BILL=0.9, TOWN=0.1))
HILLARY_CLINTON = ("Hillary Clinton", candidates(HILLARY=1.0))


def share(mentions: Mentions, rule: CoreferenceRule = "words") -> list[Senses]:
    return share_person_candidates([m for m, _ in mentions], [Senses.of(own) for _, own in mentions], IS_PERSON, rule)


@pytest.mark.parametrize("rule", RULES)
def test_a_short_name_takes_the_candidates_of_the_whole_one(rule: CoreferenceRule) -> None:
    assert share([CLINTON, BILL_CLINTON], rule) == [BILL_CLINTON[1], BILL_CLINTON[1]]


@pytest.mark.parametrize("rule", RULES)
def test_priors_are_averaged_over_the_whole_names_and_support_added(rule: CoreferenceRule) -> None:
    mentions = [BILL_CLINTON, CLINTON, HILLARY_CLINTON]
    # Hillary (0 + 1) / 2, Bill (0.9 + 0) / 2, the town (0.1 + 0) / 2
    expected = [PriorCandidate(HILLARY, 0.5, 10), PriorCandidate(BILL, 0.45, 9), PriorCandidate(TOWN, 0.05, 1)]
    assert share(mentions, rule) == [BILL_CLINTON[1], expected, HILLARY_CLINTON[1]]


def test_a_city_inside_a_persons_name_is_taken_for_the_person() -> None:
    paris, hilton = candidates(PARIS=1.0), candidates(HILTON=0.8, PARIS=0.2)
    assert share([("Paris", paris), ("Paris Hilton", hilton)]) == [hilton, hilton]
    hotel = candidates(PARIS=0.8, HILTON=0.2)  # no person by its best candidate
    assert share([("Paris", paris), ("Paris Hilton", hotel)]) == [paris, hotel]


def test_a_mention_without_candidates_gets_those_of_the_whole_name() -> None:
    assert share([("Clinton", []), BILL_CLINTON]) == [BILL_CLINTON[1], BILL_CLINTON[1]]


@pytest.mark.parametrize("rule", RULES)
def test_mentions_that_are_equal_but_for_case_leave_each_other_alone(rule: CoreferenceRule) -> None:
    shouted = ("BILL CLINTON", candidates(HILLARY=1.0))
    assert share([BILL_CLINTON, shouted, BILL_CLINTON], rule) == [BILL_CLINTON[1], shouted[1], BILL_CLINTON[1]]
    # and together they count once, as the first says
    assert share([CLINTON, BILL_CLINTON, shouted], rule)[0] == BILL_CLINTON[1]
    assert share([CLINTON, shouted, BILL_CLINTON], rule)[0] == shouted[1]


def test_case_and_the_way_accents_are_written_do_not_matter() -> None:
    whole = ("René  DESCARTES", candidates(BILL=1.0))
    assert share([("rene\u0301", candidates(TOWN=1.0)), whole])[0] == whole[1]


def test_decisions_are_made_on_the_candidates_as_they_were() -> None:
    # "Bill Clinton" gets a person only by sharing, so "Clinton" has nothing from it
    town = ("Bill Clinton", candidates(TOWN=1.0))
    whole = ("William Bill Clinton", candidates(BILL=1.0))
    assert share([("Bill", candidates(PARIS=1.0)), town, whole]) == [whole[1]] * 3
    averaged = share([("Bill", []), BILL_CLINTON, whole])
    assert averaged == [[PriorCandidate(BILL, 0.95, 19), PriorCandidate(TOWN, 0.05, 1)], whole[1], whole[1]]


def test_documents_without_persons_stay_as_they_are() -> None:
    mentions = [("Clinton", candidates(TOWN=1.0)), ("Clinton Paris", candidates(PARIS=1.0)), ("Nobody", []), ("--", [])]
    assert share(mentions) == share(mentions, "substring") == [own for _, own in mentions]
    assert share([]) == []


@pytest.mark.parametrize(
    ("short", "whole", "by_words", "by_substring"),
    [
        ("Ann", "Anna Smith", False, False),
        ("Smith", "Anna Smithson", False, True),  # a space before
        ("a Smith", "Anna Smith Jones", False, True),  # a space after
        ("Anna Jones", "Anna Smith Jones", False, False),
        ("Claude", "Jean-Claude Juncker", True, True),
        ("Jean", "Jean-Claude Juncker", True, False),  # a hyphen is no space
        ("Smith, Anna", "Dame Smith Anna", True, False),
        ("Smith Anna", "Smith, Anna", False, False),  # all the words
    ],
)
def test_the_rules_differ_in_what_a_name_may_be_part_of(
    short: str, whole: str, by_words: bool, by_substring: bool
) -> None:
    mentions = [(short, candidates(TOWN=1.0)), (whole, candidates(BILL=1.0))]
    assert [share(mentions, rule)[0] == candidates(BILL=1.0) for rule in RULES] == [by_words, by_substring]


def test_a_hundred_candidates_are_kept_in_order_of_prior_and_id() -> None:
    people = np.ones(300, dtype=bool)
    own = [[PriorCandidate(entity, 1 / 150, 1) for entity in range(start, start + 150)] for start in (150, 0)]
    shared = share_person_candidates(["Ann", "Ann A", "Ann B"], [*map(Senses.of, [[], *own])], people, "words")[0]
    assert [candidate.entity_id for candidate in shared] == list(range(100))


def test_thousands_of_mentions_take_little_time() -> None:
    surfaces = [f"John {'Fitzgerald ' * (number % 3)}Smith{number}" for number in range(5_000)]
    own = [Senses.of(candidates(BILL=1.0))] * len(surfaces)
    start = time.process_time()
    for rule in RULES:
        share_person_candidates([*surfaces, "John"], [*own, Senses.of([])], IS_PERSON, rule)
    assert time.process_time() - start < 5


def plain_loops(mentions: Mentions, rule: CoreferenceRule) -> list[list[PriorCandidate]]:
    """The rule as it is written down."""
    first: dict[str, list[PriorCandidate]] = {}
    for surface, own in mentions:
        first.setdefault(surface.lower(), own)
    result = []
    for surface, own in mentions:
        m, holders = surface.lower(), []
        for M, others in sorted(first.items()):
            if not others or not IS_PERSON[min(others, key=lambda each: (-each.prior, each.entity_id)).entity_id]:
                continue
            short, whole = m.split(), M.split()
            runs = [whole[at : at + len(short)] for at in range(len(whole))]
            is_inside = short in runs and len(short) < len(whole)
            if is_inside if rule == "words" else m != M and (f" {m}" in M or f"{m} " in M):
                holders.append(others)
        totals: dict[int, list[float]] = {}
        for candidate in (candidate for others in holders for candidate in others):
            total = totals.setdefault(candidate.entity_id, [0.0, 0.0])
            total[0], total[1] = total[0] + candidate.prior, total[1] + candidate.support
        merged = [PriorCandidate(entity, prior / len(holders), count) for entity, (prior, count) in totals.items()]
        result.append(sorted(merged, key=lambda each: (-each.prior, each.entity_id)) if holders else own)
    return result


SURFACES = st.lists(st.sampled_from(["ann", "Ann", "anna", "n", "É", "ЖАН"]), min_size=1, max_size=4).map(" ".join)
CANDIDATES = st.dictionaries(st.integers(0, 4), st.sampled_from([0.1, 0.2, 0.5, 1.0]), max_size=3).map(
    lambda priors: [PriorCandidate(entity, prior, 10 * prior) for entity, prior in priors.items()]
)


@given(
    mentions=st.lists(st.tuples(SURFACES, CANDIDATES), max_size=8),
    rule=st.sampled_from(RULES),
    few=st.sampled_from([0, 2000]),  # pairs that are all compared
)
def test_sharing_is_what_plain_loops_give(mentions: Mentions, rule: CoreferenceRule, few: int) -> None:
    with mock.patch.object(coreference, "_FEW_PAIRS", few):
        assert share(mentions, rule) == plain_loops(mentions, rule)


@given(mentions=st.lists(st.tuples(SURFACES, CANDIDATES), max_size=8, unique_by=lambda mention: mention[0].lower()))
def test_the_order_of_mentions_does_not_matter(mentions: Mentions) -> None:
    for rule in RULES:
        assert share(mentions[::-1], rule) == share(mentions, rule)[::-1]
