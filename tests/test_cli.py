"""The `deeped` command, run in-process."""

import json
import shutil
from pathlib import Path

import pytest

from deeped_ray.cli import main
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.serving.schemas import LinkedMention
from tests.conftest import copy_of

TEXT = "Montreal met Toronto in the Stanley Cup; Boston lead the National Hockey League after scoring on the ice."


@pytest.fixture
def kb(mini_kb: KnowledgeBase) -> str:
    return str(mini_kb.root)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def rows_of(table: str, start: str) -> list[str]:
    """Rows that begin with these cells, however wide the columns are."""
    return [line for line in table.splitlines() if " ".join(line.split()).startswith(start)]


def test_link_shows_answer_words_and_parts(kb: str, capsys: pytest.CaptureFixture[str]) -> None:
    spans = ("--spans", "0:8,13:20,41:47")
    code, out, _ = run(capsys, "link", "--kb", kb, *spans, TEXT)
    assert code == 0
    assert "[Boston => Boston Bruins]" in out
    assert "looked at" in out
    _, out, _ = run(capsys, "link", "--kb", kb, *spans, "--candidates", TEXT)
    assert "'Boston' [41:47] -> Boston Bruins" in out
    assert "coherence" in out


def test_link_as_json(kb: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "link", "--kb", kb, "--spans", "0:8,13:20,41:47", "--json", TEXT)
    assert code == 0
    answers = json.loads(out)
    assert answers[2]["entity"] == answers[2]["candidates"][0]
    assert (answers[2]["entity"]["title"], answers[2]["reason"]) == ("Boston Bruins", None)
    assert all(LinkedMention.model_validate(each, extra="forbid") for each in answers)  # as `POST /link` answers


def test_link_of_an_unknown_name_says_why(kb: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "link", "--kb", kb, "--spans", "0:8", "Zorblatt won.")
    assert out.startswith("[Zorblatt => ?] won.")
    assert "no entity is known by this name, or by one that resembles it" in out


def test_detect_finds_mentions_or_scores_them(kb: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "detect", "--kb", kb, "--json", TEXT)
    found = json.loads(out)
    assert {"start": 28, "end": 39, "mention": "Stanley Cup"} in found
    assert all(TEXT[row["start"] : row["end"]] == row["mention"] for row in found)
    _, out, _ = run(capsys, "detect", "--kb", kb, "--json", "--mentions", "all", TEXT)
    assert len(json.loads(out)) >= len(found)
    code, out, _ = run(capsys, "detect", "--kb", kb, "--dataset", "mini:test")
    assert code == 0
    assert "mini:test  linked, others ignored" in out


def test_mention_lists_candidates_with_priors(kb: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "mention", "--kb", kb, "--json", "Apple")
    found = json.loads(out)
    assert (found["mention"], found["rule"], found["candidates"][0]["title"]) == ("Apple", "exact", "Apple Inc.")
    assert sum(row["prior"] for row in found["candidates"]) == pytest.approx(1, abs=1e-3)
    assert "'Apple' (lower-cased), " in run(capsys, "mention", "--kb", kb, "aPPle")[1]
    assert "never a link or a title" in run(capsys, "mention", "--kb", kb, "Zorblatt")[1]


def test_wikidata_ids_are_in_answers_and_tables(kb: str, capsys: pytest.CaptureFixture[str]) -> None:
    linked = json.loads(run(capsys, "link", "--kb", kb, "--json", TEXT)[1])
    assert linked[0]["entity"]["wikidata"] == "Q188143"
    assert rows_of(run(capsys, "link", "--kb", kb, TEXT)[1], "Montreal Montreal Canadiens Q188143")
    assert rows_of(run(capsys, "mention", "--kb", kb, "Apple")[1], "Apple Inc. Q312")
    assert "wikidata" not in run(capsys, "mention", "--kb", kb, "Stanley Cup")[1]
    assert json.loads(run(capsys, "neighbors", "--kb", kb, "--json", "Q172")[1])[0].keys() >= {"title", "wikidata"}


def test_wikidata_adds_ids_and_names_conflicts(
    mini_kb: KnowledgeBase, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kb, file = str(copy_of(mini_kb, tmp_path / "kb")), tmp_path / "ids.tsv"
    file.write_text("title\tqid\nApple\tQ89\nApple\tQ90\n")
    code, out, _ = run(capsys, "wikidata", "--kb", kb, "--wikidata", str(file))
    assert (code, out.splitlines()[-1]) == (0, "conflict: Apple: Q89, then Q90")
    assert json.loads(run(capsys, "info", "--json", kb)[1])["holds"]["wikidata_ids"] == 1
    assert run(capsys, "wikidata", "--kb", kb)[2].startswith("error: Give --page-props FILE")


def test_a_packed_knowledge_base_answers_as_the_folder_does(
    kb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEEPED_CACHE", str(tmp_path / "cache"))
    archive, scores = str(tmp_path / "kb.tar"), str(tmp_path / "scores.json")
    run(capsys, "evaluate", "--kb", kb, "--dataset", "mini:dev", "--model", "prior", "--json", scores)
    code, out, _ = run(capsys, "pack", kb, archive, "--scores", scores, "--licence", "ours")
    assert (code, "corpus, words, vectors, index, linker, wikidata" in out) == (0, True)
    assert run(capsys, "link", "--kb", archive, TEXT) == run(capsys, "link", "--kb", kb, TEXT)
    (card,) = (tmp_path / "cache").glob("archives/*/kb/README.md")
    told = card.read_text()
    assert "| source | miniwiki-pages-articles.xml (https://en.wikipedia.org/wiki/) |" in told
    assert "| licence of the text | ours |" in told
    assert "| mini:dev | prior | " in told
    assert run(capsys, "pack", kb, "kb.zip")[2].startswith("error: kb.zip must end with .tar")


@pytest.mark.parametrize("command", ["info", "versions"])
def test_a_knowledge_base_may_be_named_with_or_without_kb(
    kb: str, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, command, kb) == run(capsys, command, "--kb", kb)
    assert run(capsys, command)[2] == "error: Give a knowledge base: --kb KB.\n"


def test_an_archive_is_named_with_or_without_kb(kb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed = [str(tmp_path / name) for name in ("a.tar", "b.tar")]
    assert run(capsys, "pack", kb, packed[0])[0] == run(capsys, "pack", "--kb", kb, packed[1])[0] == 0
    assert Path(packed[0]).read_bytes() == Path(packed[1]).read_bytes()


def test_entities_are_added_to_a_knowledge_base_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "own.csv").write_text("title\nFalcon\n")
    code, _, err = run(capsys, "entities", "--kb", str(tmp_path / "kb"), "add", str(tmp_path / "own.csv"))
    assert (code, "No corpus part" in err or "No knowledge base" in err) == (2, True)
    assert not (tmp_path / "kb").exists()


def test_what_is_left_out_of_an_added_entity_is_told(
    kb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = copy_of(KnowledgeBase(kb), tmp_path / "kb")
    (tmp_path / "own.jsonl").write_text(json.dumps({"title": "Falcon", "description": "grinds " * 40_000}))
    _, out, _ = run(capsys, "entities", "--kb", str(own.root), "add", str(tmp_path / "own.jsonl"))
    assert out.startswith("Entities added or changed: 1.")
    assert "so the rest was left out: Falcon." in out


def test_neighbors_are_entities_or_words(kb: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, entities, _ = run(capsys, "neighbors", "--kb", kb, "--count", "5", "--json", "Apple Inc.")
    assert len(json.loads(entities)) == 5
    assert "Apple Inc." not in [row["title"] for row in json.loads(entities)]
    _, words, _ = run(capsys, "neighbors", "--kb", kb, "--words", "Apple Inc.")
    assert "Apple" in words


def test_neighbors_of_a_mix_and_of_a_text(kb: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "neighbors", "--kb", kb, "--json", "Apple Inc.", "Stanley Cup")
    mixed = {row["title"] for row in json.loads(out)}
    assert not mixed & {"Apple Inc.", "Stanley Cup"}
    _, text, _ = run(
        capsys, "neighbors", "--kb", kb, "--count", "5", "--text", "the goalkeeper scoring on the ice, hockey"
    )
    assert "hockey" in text.lower()


def test_evaluate_prints_a_table_and_writes_json(kb: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out_file = tmp_path / "out.json"
    code, out, _ = run(
        capsys, "evaluate", "--kb", kb, "--dataset", "mini:dev", "--model", "prior", "--json", str(out_file)
    )
    assert code == 0
    assert "gold recall" in out
    written = json.loads(out_file.read_text())
    assert written["dataset"] == "mini:dev"
    assert 0 < written["accuracy"] < written["gold_recall"] <= 1


def test_evaluate_compares_data_sets_and_explains(kb: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    document = {"name": "own", "text": TEXT, "mentions": [{"start": 41, "end": 47, "title": "Boston Bruins"}]}
    (tmp_path / "own.jsonl").write_text(json.dumps(document))
    sets = ["--dataset", "mini:dev", "--dataset", f"jsonl:{tmp_path / 'own.jsonl'}"]
    code, out, _ = run(capsys, "evaluate", "--kb", kb, *sets, "--model", "local", "--explain", "1")
    assert code == 0
    assert "mini:dev   local" in out
    assert "own.jsonl, local, document 'own', gold Boston Bruins: right" in out


def test_info_lists_parts_and_verifies_them(kb: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "info", "--verify", kb)
    assert out.count("verified") == 7
    _, out, _ = run(capsys, "info", "--json", kb)
    assert json.loads(out)["holds"]["entities"] == 226


def test_info_shows_what_is_damaged_or_stale(
    mini_kb: KnowledgeBase, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(mini_kb.root, tmp_path / "kb")
    kb = KnowledgeBase(tmp_path / "kb")
    (kb.open("index").path / "entities.faiss").write_bytes(b"x")
    with kb.write("words", config={}, parents=()) as folder:
        (folder / "x").write_text("x")
    code, out, _ = run(capsys, "info", str(kb.root))
    assert code == 0
    assert "entities.faiss has 1 bytes" in out
    assert "made from an older words part" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["link", "--kb", "{kb}", "--spans", "0:99", "short"], "Span 0:99 does not lie within the text"),
        (["link", "--kb", "{kb}", "--spans", "0:3,2:5", "short"], "overlap"),
        (["neighbors", "--kb", "{kb}", "Appel"], "No entity 'Appel'"),
        (["neighbors", "--kb", "{kb}"], "Give the title of an entity"),
        (["mention", "--kb", "nowhere", "Apple"], "No knowledge base at"),
        (["info", "."], "holds no parts"),
        (["detect", "--kb", "{kb}"], "Give either a text or --dataset"),
        (
            ["detect", "--kb", "{kb}", "--set", "mention_threshold=2", "x"],
            "`mention_threshold` must lie between 0 and 1",
        ),
        (["detect", "--kb", "{kb}", "--dataset", "aida:nowhere"], "nowhere: "),
        (["evaluate", "--kb", "{kb}", "--dataset", "aida:nowhere"], "nowhere: "),
        (
            ["evaluate", "--kb", "{kb}", "--json", "/nowhere/out.json", "--model", "prior"],
            "Cannot write /nowhere/out.json",
        ),
    ],
)
def test_errors_are_one_line_with_exit_code_2(
    kb: str, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    code, out, err = run(capsys, *(argument.format(kb=kb) for argument in arguments))
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert message in err
    assert len(err.splitlines()) == 1


def test_malformed_spans_are_explained(kb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["link", "--kb", kb, "--spans", "0-5", "text"])
    assert exit_.value.code == 2
    assert "START:END" in capsys.readouterr().err


def test_help_of_jobs_says_what_each_reads_and_makes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["job", "--help"]) == 0
    assert "build_index      The search index. Reads corpus, vectors. Makes index." in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["job", "train_linker", "--help"])
    assert "Training the linker. Reads corpus, words, vectors, index. Makes linker." in capsys.readouterr().out
