from deeped_ray.evaluation.metrics import Outcome, Result
from deeped_ray.evaluation.report import Case, Report
from deeped_ray.evaluation.tables import report_table, report_text
from deeped_ray.types import Candidate, Prediction

ANSWER = Prediction(
    3, 7, "Bonn", (Candidate("Bonn", 1, "", 0.9, 0.5, 0.8, 0.3, 0.7),), attended=(("Rhine", 0.6), ("city", 0.4))
)
RESULT = Result([[Outcome(True, True, None, 0.9, 12)], [Outcome(False, False, "unknown_name", None, 3)]])
REPORT = Report("jsonl:/a/b.jsonl", "global", RESULT, "abc", 0.5, (Case("d", "Bonn", True, ANSWER),))


def test_one_row_a_linker_and_data_set() -> None:
    *_, row = report_table([REPORT]).splitlines()
    # 2 mentions, 1 answered, 1 right: F1 = 2 / (1 + 2) over mentions, (1 + 0) / 2 over documents
    assert row.split() == ["b.jsonl", "global", "2", "50.0", "0.0-100.0", "66.7", "50.0", "50.0", "50.0", "4"]


def test_the_text_says_where_mentions_were_lost_and_why_one_was_not() -> None:
    text = report_text([REPORT, REPORT])
    for part in ("unknown name", "21-50", "100.0 (1)", "candidates of b.jsonl: sha256 abc"):
        assert part in text
    assert text.count("b.jsonl   global") == 2 * 7
    assert "document 'd', gold Bonn: right\n'Bonn' [3:7] -> Bonn\n  attended words: Rhine 0.60, city 0.40" in text
