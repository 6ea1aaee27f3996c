import json
from dataclasses import replace
from pathlib import Path

import pytest

from deeped_ray.evaluation.report import EvaluationConfig, Report, SeedScores, evaluate, write_json
from deeped_ray.evaluation.tables import report_text
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.types import DeepEdError

KEYS = {"dataset", "mentions", "accuracy", "micro_f1", "macro_f1", "gold_recall", "mentions_per_s", "model"}


@pytest.fixture(scope="module")
def reports(mini_kb: KnowledgeBase) -> list[Report]:
    return evaluate(mini_kb, EvaluationConfig(dataset=("mini:dev",), explain=3))


def test_the_json_says_what_was_measured_on_what(reports: list[Report]) -> None:
    for report in reports:
        written = json.loads(json.dumps(report.to_json(), allow_nan=False))
        assert written.keys() >= KEYS | {"candidates_sha256", "intervals", "errors", "by_gold_links", "by_gold_prior"}
        assert written["mentions"] - round(written["accuracy"] * written["mentions"]) == sum(written["errors"].values())
        assert written["intervals"]["accuracy"][0] < written["accuracy"] < written["intervals"]["accuracy"][1]


def test_pruning_loses_gold_entities_only_where_there_is_pruning(reports: list[Report]) -> None:
    prior, local, _ = reports
    assert prior.to_json()["gold_recall_kept"] is None
    assert local.gold_recall_kept is not None
    assert local.gold_recall_kept <= local.result.gold_recall


def test_other_sources_add_candidates_to_those_of_the_prior(reports: list[Report]) -> None:
    prior, local, _ = reports
    assert local.result.gold_recall > prior.result.gold_recall
    assert local.gold_recall_kept == local.result.gold_recall_kept > 0


def test_the_hash_tells_candidates_apart_not_models(mini_kb: KnowledgeBase, reports: list[Report]) -> None:
    assert len({report.candidates_sha256 for report in reports}) == 1
    (other,) = evaluate(mini_kb, EvaluationConfig(dataset=("mini:test",), model="prior"))
    assert other.candidates_sha256 != reports[0].candidates_sha256


def test_hard_cases_are_solved_and_missed_ones_in_turn(reports: list[Report]) -> None:
    local = reports[1]
    assert [case.is_correct for case in local.cases] == [True, False, True]
    for case in local.cases:
        titles = [candidate.title for candidate in case.prediction.candidates]
        assert (titles[0] == case.gold) == case.is_correct
        assert case.prediction.attended


def test_one_report_is_an_object_and_several_are_a_list(reports: list[Report], tmp_path: Path) -> None:
    write_json(reports[:1], tmp_path / "one.json")
    write_json(reports, tmp_path / "all.json")
    assert json.loads((tmp_path / "one.json").read_text())["model"] == "prior"
    assert [row["model"] for row in json.loads((tmp_path / "all.json").read_text())] == ["prior", "local", "global"]


def test_gold_may_be_wikidata_ids(mini_kb: KnowledgeBase, corpus_kb: KnowledgeBase, tmp_path: Path) -> None:
    text = "Montreal met Toronto in the Stanley Cup on the ice."
    mentions = [{"start": 0, "end": 8, "title": "Q188143"}, {"start": 13, "end": 20, "title": "Q42"}]
    (tmp_path / "ids.jsonl").write_text(json.dumps({"text": text, "mentions": mentions}))
    config = EvaluationConfig(dataset=(f"jsonl:{tmp_path / 'ids.jsonl'}",), model="prior")
    (report,) = evaluate(mini_kb, config)
    assert (report.result.mentions, report.result.gold_recall, report.result.errors["outside_kb"]) == (2, 0.5, 1)
    with pytest.raises(DeepEdError, match="names entities by Wikidata ids, which this knowledge base does not have"):
        evaluate(corpus_kb, config)


def test_a_negative_number_of_cases_is_refused() -> None:
    with pytest.raises(DeepEdError, match="`explain` must be at least 0"):
        EvaluationConfig(explain=-1)


def test_seeds_have_their_own_accuracy_and_certainty(reports: list[Report]) -> None:
    seeds = (SeedScores(0.70, 0.02, 0.90), SeedScores(0.72, 0.04, 0.94))
    report = replace(reports[2], by_seed=seeds)
    written = report.to_json()
    assert (written["accuracy_by_seed"], written["auroc_by_seed"]) == ([0.70, 0.72], [0.90, 0.94])
    # Student's t for two values: 12.706 times the standard error, 0.01
    assert "; over seeds 0.030 ± 0.127" in report_text([report])


def test_all_seeds_of_a_run_are_scored(mini_kb: KnowledgeBase, reports: list[Report]) -> None:
    (report,) = evaluate(mini_kb, EvaluationConfig(dataset=("mini:dev",), model="global", all_seeds=True))
    ((accuracy, ece, auroc),) = report.by_seed
    assert accuracy == reports[2].result.scores.accuracy
    assert (ece, auroc) == (reports[2].certainty["ece"], reports[2].certainty["auroc"])
