"""`deeped pack`: a knowledge base as one file to give away."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deeped_ray.commands.options import Answer, add_kb_first, kb_of
from deeped_ray.corpus.folded import Folded
from deeped_ray.knowledge.archive import PARTS, packed_manifest, write_archive
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.changes import ChangeLog
from deeped_ray.storage.location import Location
from deeped_ray.training.history import best_by_seed, models_of, read_history
from deeped_ray.types import DeepEdError

_WIKIPEDIA = "CC BY-SA 4.0 and GFDL: the text of Wikipedia"
_SCORES = ("dataset", "model", "mentions", "accuracy", "micro_f1", "gold_recall")


def add_options(parser: argparse.ArgumentParser) -> None:
    add_kb_first(parser)
    parser.add_argument("out", metavar="OUT.tar", help="file to write, or an address such as s3://bucket/kb.tar")
    parser.add_argument(
        "--scores", type=Path, metavar="FILE", help="what `deeped evaluate --json FILE` wrote, for the card"
    )
    parser.add_argument("--licence", help="licence of the text, for the card (default: Wikipedia's, if it is one)")


def run(args: argparse.Namespace) -> Answer:
    kb = kb_of(args)
    if not args.out.endswith(".tar"):
        raise DeepEdError(f"{args.out} must end with .tar, so that others see what it is.")
    for name in ("corpus", "words", "vectors", "index", "linker"):
        kb.open(name)  # what is missing or stale is told now
    folded = Folded.read(kb.open("corpus")).files
    if pending := [each for each in ChangeLog(kb.home).read_new() if each.file not in folded]:
        raise DeepEdError(f"{kb} has {len(pending):,} changes beside its parts. Run `deeped compact --kb {kb}` first.")
    manifest = packed_manifest(kb.manifest())
    card = card_of(kb, scores=_read_scores(args.scores) if args.scores else [], licence=args.licence)
    written = write_archive(Location(args.out), kb.home, manifest, card)
    told = f"{args.out}: {', '.join(name for name in PARTS if name in manifest['parts'])}, {written['bytes']:,} bytes\nsha256 {written['sha256']}"
    return {"archive": args.out, **written, "parts": list(manifest["parts"])}, told


def _read_scores(file: Path) -> list[dict[str, Any]]:
    try:
        found = json.loads(file.read_text())
        rows = found if isinstance(found, list) else [found]
        return [{name: row[name] for name in _SCORES} for row in rows]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DeepEdError(
            f"Cannot read scores from {file} ({error!r}). Expected what `deeped evaluate --json` writes."
        ) from error


def card_of(kb: KnowledgeBase, *, scores: list[dict[str, Any]], licence: str | None) -> str:
    """What those need to know who are given the archive."""
    parts = kb.manifest()["parts"]
    summary = kb.open("corpus").summary()
    dumps = ", ".join(dump["file"] for dump in parts.get("pages", {}).get("config", {}).get("dumps", [])) or "unknown"
    articles = summary.get("articles", "")
    training = parts["linker"]["config"]["training"]
    licence = licence or (_WIKIPEDIA if ".wikipedia.org/" in articles else "not stated: ask whoever packed it")
    facts = {
        "source": f"{dumps} ({articles})",
        "made": f"{parts['linker']['created']}, with deeped-ray {parts['linker']['deeped_ray']}",
        "entities": f"{summary['entities']:,}, {summary['entities_without_page']:,} of them without a page",
        "names": f"{summary['mentions']:,}",
        "Wikidata ids": f"{kb.open('wikidata').summary()['wikidata_ids']:,}" if "wikidata" in parts else "none",
        "word vectors": f"{kb.open('vectors').array('vectors').shape[1]} dimensions",
        "taught by": f"{_names(training['train'])}; seeds: {training['seeds']}",
        "validation accuracy": f"{_validated(kb)}, on {_names(training['dev'])}",
        "licence of the text": licence,
    }
    lines = ["# A knowledge base for entity linking", "", "```", 'deeped link --kb THIS_FILE.tar "a text"', "```", ""]
    lines += ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in facts.items()), "", "## Scores", ""]
    if scores:
        lines += [f"| {' | '.join(_SCORES)} |", f"|{'---|' * len(_SCORES)}", *(_row(row) for row in scores), ""]
    else:
        lines += ["None were given. `deeped evaluate --kb THIS_FILE.tar --dataset ...` measures them.", ""]
    return "\n".join([*lines, "The settings of every stage stand in `manifest.json`.", ""])


def _names(datasets: Sequence[Any]) -> str:
    """Of data sets as the manifest has them: names or fingerprints, some with a weight."""
    plain = (each[0] if isinstance(each, list) else each for each in datasets)
    return ", ".join(str(each["file"] if isinstance(each, dict) else each).rpartition("/")[2] for each in plain)


def _validated(kb: KnowledgeBase) -> str:
    """Best accuracies while the linker was trained, on data that chose among its epochs."""
    path = kb.open("linker").path / "history.csv"
    history = read_history(path) if path.exists() else []
    best = {model: max(best_by_seed(history, model).values()) for model in models_of(history)}
    return (
        ", ".join(f"{model} {accuracy:.1%}" for model, accuracy in best.items()) or "nothing: it answers by the prior"
    )


def _row(row: dict[str, Any]) -> str:
    shown = (f"{value:.3f}" if isinstance(value, float) else str(value).rpartition("/")[2] for value in row.values())
    return f"| {' | '.join(shown)} |"
