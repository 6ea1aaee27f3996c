"""`deeped info`: what a knowledge base holds."""

import argparse
from typing import Any

from deeped_ray.commands.options import Answer, add_kb_first, kb_of
from deeped_ray.knowledge.parts import ArtifactError
from deeped_ray.running.console import stdout_style, table
from deeped_ray.types import DeepEdError


def add_options(parser: argparse.ArgumentParser) -> None:
    add_kb_first(parser)
    parser.add_argument("--verify", action="store_true", help="read every file and compare it with its checksum")


def run(args: argparse.Namespace) -> Answer:
    kb = kb_of(args)
    manifest = kb.manifest()
    if not manifest["parts"]:
        raise DeepEdError(f"{kb} holds no parts. Run jobs/build_corpus.py --kb {kb} first.")
    problems = kb.verify() if args.verify else {}
    rows, details = [], []
    for name, record in sorted(manifest["parts"].items(), key=lambda item: item[1]["created"]):
        size = sum(file["bytes"] for file in record["files"].values())
        problem = problems.get(name) or _problem(kb, name)
        state = problem or ("verified" if args.verify else "ready")
        mib = f"{size / 2**20:.1f} MiB"
        rows.append((name, record["id"], len(record["files"]), mib, record["created"], record["made_by"], state))
        details.append({"part": name, "bytes": size, "problem": problem, **record})
    summary = _summary(kb)
    columns = ["part", "id", "files", "size", "made", "by", "state"]
    lines = [f"{kb}, format {manifest['format']}", "", table(columns, rows, style=stdout_style())]
    if summary:
        lines += ["", table(["holds", "number"], list(summary.items()))]
    return {"root": str(kb), "format": manifest["format"], "holds": summary, "parts": details}, "\n".join(lines)


def _problem(kb: Any, name: str) -> str | None:
    try:
        kb.open(name)
    except ArtifactError as error:
        return str(error)
    return None


def _summary(kb: Any) -> dict[str, Any]:
    """What ingest counted, of the parts that can be read."""
    summary: dict[str, Any] = {}
    for name in ("pages", "corpus", "wikidata"):
        if name in kb and _problem(kb, name) is None:
            summary |= kb.open(name).summary()
    return {key: len(value) if isinstance(value, list) else value for key, value in summary.items()}
