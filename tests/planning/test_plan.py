"""Plans: the arithmetic by hand, what must not happen, and a prediction beside a real run."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from deeped_ray.cli import main
from deeped_ray.planning.coefficients import COEFFICIENTS, Coefficients, Estimate, Fit, measured, total
from deeped_ray.planning.plan import bottleneck, make_plan, sizes_of
from deeped_ray.planning.workload import Cluster, Workload

REPOSITORY = Path(__file__).parent.parent.parent
ENWIKI = Workload(preset="enwiki", documents=1_000_000)
EIGHT = Cluster(nodes=8)


def by_name(work: Workload, cluster: Cluster) -> dict[str, Any]:
    return {stage.name: stage for stage in make_plan(work, cluster).stages}


def test_a_line_is_read_at_another_size() -> None:
    line = Fit(fixed=10.0, units={"words": 2.0, "titles": 0.5}, spread=0.2, largest={"words": 100, "titles": 100})
    found = line.at({"words": 50, "titles": 20})
    # 10 + 2 * 50 + 0.5 * 20, and within what was measured the band is the spread
    assert found.value == 120
    assert found.factor == pytest.approx(1.2)
    # four times the largest size is two doublings, 10% each
    assert line.at({"words": 400, "titles": 20}).factor == pytest.approx(1.2 * 1.1 * 1.1)


def test_a_line_that_has_met_a_larger_wiki_drifts_less() -> None:
    line = Fit(fixed=0.0, units={"words": 2.0}, spread=0.1, largest={"words": 100}, drift=0.05)
    assert line.at({"words": 400}).factor == pytest.approx(1.1 * 1.05 * 1.05)


def test_a_fit_without_residuals_still_has_a_band() -> None:
    assert Fit(1.0, {"words": 1.0}, 0.0, {"words": 10.0}).at({"words": 5}) == Estimate(6.0, 1.1)


def test_errors_of_a_sum_go_the_same_way() -> None:
    found = total(Estimate(10, 2.0), Estimate(30, 1.0))
    assert (found.value, found.high) == (40, 50)


def test_ingest_is_driver_and_workers_and_what_they_read() -> None:
    line = {"fixed": 0.0, "spread": 0.1}

    def fit(**units: float) -> dict[str, Any]:
        return {**line, "units": units, "largest": dict.fromkeys(units, 1e12)}

    stages = json.loads(COEFFICIENTS.read_text())["stages"]
    stages["ingest"] |= {"worker_s": fit(words=1e-6), "driver_s": fit(targets=1e-4)}
    stages |= {
        "reads": {"core_s": fit(reads=1e-3)},
        "markup": {"core_s": fit(markup_bytes=1e-7)},
        "start": {"driver_s": fit(), "worker_s": fit(workers=5.0)},
    }
    known = Coefficients({**json.loads(COEFFICIENTS.read_text()), "stages": stages, "bytes_per_word": 2.0})
    # 1,000 pages of 1,000 words, 3 GB: 2 MB of these are text; 716 shards of 4 MiB; 4 * 3e9 / 137 MiB makes 84
    # partitions of 16 ranges, and the files of each range become 3
    work = Workload(pages=1000, redirects=500, words_per_page=1000.0, dump_gb=3.0, targets=2000)
    cluster = Cluster(nodes=2, cores_per_node=4)
    ingest = make_plan(work, cluster, known).stages[0]
    assert sizes_of(work, cluster, known)["reads"] == 7 * (16 * 716 + 84 * 3)
    assert ingest.driver_s.value == pytest.approx(2000 * 1e-4)
    assert ingest.shared_s.value == pytest.approx(1 + 81.956 + 299.8)
    assert ingest.core_s.value == pytest.approx(0.2 + 382.756 + 8 * 5)
    assert ingest.wall_s.value == pytest.approx(0.2 + (382.756 + 40) / 8)


def test_more_work_never_costs_less() -> None:
    small, large = (by_name(Workload(pages=pages, documents=pages), EIGHT) for pages in (100_000, 1_000_000))
    for name in ("ingest", "entity vectors", "index", "linking a corpus"):
        assert large[name].core_s.value > small[name].core_s.value
        assert large[name].wall_s.high > small[name].wall_s.high
    assert large["ingest"].driver_gib.value > small["ingest"].driver_gib.value
    assert large["ingest"].disk_gb.value > small["ingest"].disk_gb.value


def test_more_nodes_shorten_what_can_be_shared() -> None:
    one, eight = by_name(ENWIKI, Cluster(nodes=1)), by_name(ENWIKI, EIGHT)
    assert eight["ingest"].wall_s.value < one["ingest"].wall_s.value
    assert eight["index"].wall_s.value == one["index"].wall_s.value


def test_the_band_grows_with_the_distance_from_what_was_measured() -> None:
    factors = [
        by_name(Workload(pages=pages), EIGHT)["ingest"].core_s.factor for pages in (10_000, 1_000_000, 10_000_000)
    ]
    assert factors[0] < factors[1] < factors[2]


def test_a_faster_machine_takes_less_time_and_as_much_memory() -> None:
    slow, fast = (by_name(ENWIKI, Cluster(speed=speed))["ingest"] for speed in (1.0, 2.0))
    assert fast.core_s.value == pytest.approx(slow.core_s.value / 2)
    assert fast.worker_gib == slow.worker_gib


def test_more_memory_for_workers_makes_fewer_pieces() -> None:
    known = measured()
    small, large = (sizes_of(ENWIKI, Cluster(memory_gib=memory), known) for memory in (2.0, 8.0))
    assert large["reads"] < small["reads"]
    assert large["partition_bytes"] > small["partition_bytes"]


def test_a_head_that_is_too_small_is_named() -> None:
    plan = make_plan(ENWIKI, Cluster(nodes=8, memory_per_node_gib=1.0))
    assert any(line.startswith("index: the driver needs") and "a node has 1" in line for line in plan.warnings)
    assert any("may not fit" in line for line in plan.warnings)


def test_gpus_are_not_promised_anything() -> None:
    assert any(line.startswith("GPUs: none") for line in make_plan(ENWIKI, Cluster(gpus=4)).warnings)


def test_the_bottleneck_is_the_longest_stage() -> None:
    stages = make_plan(ENWIKI, EIGHT).stages
    longest = max(stages, key=lambda stage: stage.wall_s.value)
    assert bottleneck(stages).startswith(longest.name)


def test_coefficients_name_their_benchmark() -> None:
    made = measured().made
    assert made["by"].startswith("benchmarks/scale.py --write ")
    assert {"on", "machine", "probe_s", "dimension"} <= set(made)
    assert "/" not in made["by"].removeprefix("benchmarks/")


def test_plan_as_text_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--preset", "enwiki", "--nodes", "8", "--documents", "1000000"]) == 0
    text = capsys.readouterr().out
    assert "Bottleneck: " in text
    assert "linking a corpus" in text
    assert main(["plan", "--pages", "1000", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    ingest = data["stages"][0]
    assert ingest["core_s"]["low"] < ingest["core_s"]["value"] < ingest["core_s"]["high"]
    assert (ingest["stage"], ingest["gpu_hours"]) == ("ingest", None)
    assert data["workload"]["num_entities"] == 1200


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Give --pages, or --preset enwiki"),
        (["--pages", "-1"], "must not be negative"),
        (["--pages", "10", "--nodes", "0"], "`nodes` must be at least 1"),
        (["--pages", "10", "--set", "speed=0"], "`speed` must be above 0"),
    ],
)
def test_impossible_sizes_are_refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.data
def test_a_real_run_costs_what_was_planned(shared_data: Path, tmp_path: Path) -> None:
    """A slice of the sample dump whose size no coefficient was fitted to. Memory and disk by 30% either way."""
    command = [
        *(sys.executable, "benchmarks/scale.py", "--shares", "0.01", "--workers", "2", "--kb", str(tmp_path / "none")),
        *("--dump", str(shared_data / "wiki" / "samplewiki-pages-articles-multistream.xml.bz2")),
        *("--word-vectors", str(shared_data / "words" / "wiki-cased-300d.bin.gz")),
        *("--json", str(tmp_path / "rows.json"), "--work", str(tmp_path)),
    ]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True)
    rows = {row["stage"]: row for row in json.loads((tmp_path / "rows.json").read_text())["rows"]}
    ingest, embedding = rows["ingest"], rows["embedding"]
    articles = ingest["titles"] - ingest["redirects"]
    work = Workload(
        pages=articles,
        redirects=ingest["redirects"],
        words_per_page=ingest["words"] / articles,
        dump_gb=ingest["dump_mb"] / 1000,
        targets=ingest["targets"],
        entities=ingest["entities"],
        file_words=rows["words"]["file_words"],
    )
    planned = by_name(work, Cluster(nodes=1, cores_per_node=2))
    found = {
        "GiB of a worker": (ingest["worker_gib"], planned["ingest"].worker_gib.value),
        "GiB of the driver": (ingest["driver_gib"], planned["ingest"].driver_gib.value),
        "MB of pages and corpus": (ingest["pages_mb"] + ingest["corpus_mb"], 1000 * planned["ingest"].disk_gb.value),
        "MB of entity vectors": (embedding["part_mb"], 1000 * planned["entity vectors"].disk_gb.value),
    }
    errors = {name: plan / real - 1 for name, (real, plan) in found.items()}
    assert all(abs(error) < 0.3 for error in errors.values()), (errors, found)
    # seconds as they would have been on the machine of the coefficients; neighbours still make them more, or fewer
    usual_s = measured().made["probe_s"]
    core_s = sum(rows[name]["core_s"] * usual_s / rows[name]["probe_s"] for name in ("ingest", "words", "embedding"))
    stages = [planned[name] for name in ("ingest", "word vectors", "entity vectors")]
    assert 1 / 3 < sum(stage.driver_s.value + stage.shared_s.value for stage in stages) / core_s < 3
