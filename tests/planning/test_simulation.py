"""A simulated cluster against what can be reckoned by hand; `benchmarks/simulate.py` compares it with a real Ray."""

import json

import pytest

from deeped_ray.cli import main
from deeped_ray.planning.simulation import Fleet, Pass, Run, simulate

CALM = Fleet(dispatch_s=0, straggling=0, slow_share=0, losses_per_node_hour=0)


def run(*passes: Pass, nodes: int = 2, cores: int = 2, fleet: Fleet = CALM) -> Run:
    return simulate(passes, nodes=nodes, cores_per_node=cores, fleet=fleet)


def test_equal_tasks_take_rounds_of_all_cores() -> None:
    # 10 tasks of 3 s on 4 cores: 3 rounds; then 2 s of the driver, and a round of 1 s
    found = run(Pass("one", [3.0] * 10), Pass("other", [1.0] * 4, before_s=2.0))
    assert (found.wall_s, found.core_s, found.repeated_tasks) == (12.0, 34.0, 0)
    assert found.bottleneck(4).startswith("cores: 71%")


def test_a_long_task_at_the_end_is_waited_for() -> None:
    assert run(Pass("one", [1.0] * 7 + [9.0])).wall_s == 10.0


def test_one_driver_starts_one_task_at_a_time() -> None:
    fleet = Fleet(**{**CALM.__dict__, "dispatch_s": 0.5})
    found = run(Pass("one", [0.1] * 100), nodes=50, fleet=fleet)
    assert found.wall_s == pytest.approx(50.1)
    assert found.bottleneck(100).startswith("the driver")


def test_storage_gives_all_tasks_together_no_more_than_it_has() -> None:
    fleet = Fleet(**{**CALM.__dict__, "storage_gb_per_s": 1.0, "requests_per_s": 100.0})
    # 100 tasks of 0.2 GB and 30 requests: 20 s for bytes and 30 s for requests
    found = run(Pass("one", [0.1] * 100, task_bytes=2e8, task_requests=30), nodes=50, fleet=fleet)
    assert found.wall_s == pytest.approx(50.1)
    assert found.bottleneck(100).startswith("storage")


def test_lost_nodes_cost_what_ran_on_them_and_nothing_is_left_out() -> None:
    fleet = Fleet(**{**CALM.__dict__, "losses_per_node_hour": 20.0, "replacement_s": 60.0})
    calm, real = (run(Pass("one", [30.0] * 200), nodes=8, fleet=each) for each in (CALM, fleet))
    assert real.lost_nodes > 0
    assert real.repeated_tasks > 0
    assert real.wall_s > calm.wall_s
    assert real.core_s > calm.core_s == 6000
    assert real == run(Pass("one", [30.0] * 200), nodes=8, fleet=fleet)
    assert real != run(Pass("one", [30.0] * 200), nodes=8, fleet=Fleet(**{**fleet.__dict__, "seed": 1}))


def test_more_nodes_help_until_something_else_holds_the_run_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--preset", "enwiki", "--simulate", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["simulation"]
    assert [row["nodes"] for row in rows] == [8, 64, 512]
    assert rows[1]["min"] < rows[0]["min"]
    assert all(row["min, with losses"] >= row["min"] for row in rows)
    assert rows[2]["what holds it up"].startswith("the driver, or one node alone")


def test_an_impossible_fleet_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--pages", "10", "--simulate", "--set", "requests_per_s=0"]) == 2
    assert "must be above 0" in capsys.readouterr().err
