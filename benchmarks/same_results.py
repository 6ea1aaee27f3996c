"""Shows that a refactoring changes no result: the same part ids, files and answers before and after.

    python benchmarks/same_results.py --before f483782
    python benchmarks/same_results.py --before f483782 --dataset aida:testa.tsv.gz --kb KB

Builds the mini encyclopedia at an earlier commit and in this checkout, and compares every file of every part by its
checksum. Then both link the same documents with one knowledge base (the earlier one, or --kb) and their answers are
compared cell by cell. Weights are compared as tensors and history.csv without its `seconds`, which no two runs share.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from deeped_ray.evaluation.datasets import read_dataset

ROOT = Path(__file__).parent.parent
DOCUMENTS = 200
DROPPED = {"corpus/disambiguations.parquet"}
"""Files that an earlier version wrote and nobody read."""
DROPPED_COLUMNS = {"is_list", "num_redirects"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", required=True, help="commit to compare this checkout with")
    parser.add_argument("--dataset", default="mini:test", help=f"documents to link, the first {DOCUMENTS}")
    parser.add_argument("--kb", type=Path, help="knowledge base to link with (default: the mini encyclopedia)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        earlier = work / "checkout"
        subprocess.run(["git", "worktree", "add", "--detach", str(earlier), args.before], cwd=ROOT, check=True)
        try:
            differences = compare(args, earlier, work)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(earlier)], cwd=ROOT, check=True)
    print("\n".join(differences) or "No difference.")
    sys.exit(bool(differences))


def compare(args: argparse.Namespace, earlier: Path, work: Path) -> list[str]:
    checkouts = {"before": earlier, "after": ROOT}
    for name, checkout in checkouts.items():
        run(checkout, "pipeline", "--kb", str(work / name), "--until", "train_linker")
    differences = compare_parts(work / "before", work / "after")
    documents = write_documents(args.dataset, work / "documents.jsonl")
    kb = str(args.kb or work / "before")
    for name, checkout in checkouts.items():
        options = ("--output", str(work / f"answers-{name}"), "--top", "7", "--explain")
        run(checkout, "link_corpus", "--kb", kb, "--input", str(documents), *options)
    return differences + compare_answers(work / "answers-before", work / "answers-after")


def run(checkout: Path, job: str, *options: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    command = [sys.executable, f"jobs/{job}.py", *options]
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{job} failed in {checkout}:\n{done.stderr[-3000:]}")


# -- parts


def compare_parts(before: Path, after: Path) -> list[str]:
    found, expected = (json.loads((kb / "manifest.json").read_text())["parts"] for kb in (after, before))
    differences = []
    for part, record in expected.items():
        folders = before / record["folder"], after / found[part]["folder"]
        same = found[part]["id"] == record["id"]
        print(f"{part}: {record['id']} {'=' if same else '->'} {found[part]['id']}, {len(record['files'])} files")
        names = sorted(record["files"].keys() | found[part]["files"].keys())
        for name in names:
            is_equal = record["files"].get(name) == found[part]["files"].get(name)
            if (
                not is_equal
                and f"{part}/{name}" not in DROPPED
                and not same_content(*(each / name for each in folders))
            ):
                differences.append(f"{part}/{name} differs")
    return differences


def same_content(before: Path, after: Path) -> bool:
    """Of files that differ for a reason that is known."""
    if before.name == "history.csv":
        rows = [list(csv.DictReader(path.open())) for path in (before, after)]
        return [without_seconds(row) for row in rows[0]] == [without_seconds(row) for row in rows[1]]
    if before.name == "curves.png":
        return after.exists()
    if before.name == "entities.arrow":
        tables = [pa.ipc.open_file(pa.memory_map(str(path))).read_all() for path in (before, after)]
        kept = [table.drop_columns([n for n in table.column_names if n in DROPPED_COLUMNS]) for table in tables]
        return bool(kept[0].equals(kept[1]))
    return False


def without_seconds(row: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in row.items() if name != "seconds"}


# -- answers


def write_documents(dataset: str, path: Path) -> Path:
    rows: list[dict[str, Any]] = [
        {"id": document.name, "text": document.text, "spans": [[each.start, each.end] for each in document.mentions]}
        for document in read_dataset(dataset)[:DOCUMENTS]
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def compare_answers(before: Path, after: Path) -> list[str]:
    tables = [
        pa.concat_tables([pq.read_table(file) for file in sorted(folder.glob("part-*.parquet"))])
        for folder in (before, after)
    ]
    num_mentions = sum(map(len, tables[0]["mentions"]))
    print(
        f"answers: {tables[0].num_rows} documents, {num_mentions:,} mentions, candidates, words and supporters included"
    )
    return [] if tables[0].equals(tables[1]) else ["answers differ"]


if __name__ == "__main__":
    main()
