"""A cluster at work, event by event: what a plan's stages take with stragglers, lost nodes, and limits of storage and driver.

A stage is one or more passes, one after the other. A task of a pass goes through

    the driver     which starts one task at a time, and has two for each core under way
    the storage    which all nodes share: bytes and requests of all tasks follow each other at its rates
    a core         for the task's processor time; some tasks take longer, and some nodes are slower

Nodes are lost at random. What ran on one is started again once Ray has noticed, and another node comes later. The same seed
gives the same run. Real tasks read while they compute, and storage serves many at once: a queue that is never longer than
the work behind it costs nothing here either, and one that grows is the bottleneck in both.
"""

import heapq
import math
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

from deeped_ray.planning.plan import Plan, make_plan
from deeped_ray.planning.workload import GB, Cluster
from deeped_ray.running.console import PLAIN, Style, table
from deeped_ray.types import DeepEdError, require_at_least

SIZES = (8, 64, 512)
_TASK_S = 5.0
"""What a shard of 4 MB takes."""
_REQUESTS_A_TASK = 30
"""A read, a receipt, and the pieces and files of a shard: without what reducers read, which the plan counts."""


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """What the simulation knows of nodes and storage beside their number."""

    seed: Annotated[int, "seed of the simulation"] = 0
    dispatch_s: Annotated[float, "simulation: the driver's time to start a task and to take its result"] = 0.004
    straggling: Annotated[float, "simulation: spread of the time that equal tasks take, as sigma of a lognormal"] = 0.2
    slow_share: Annotated[float, "simulation: share of the nodes that take 1.5 times as long"] = 0.03
    losses_per_node_hour: Annotated[float, "simulation: how often a node is lost, as spot nodes are"] = 0.05
    notice_s: Annotated[float, "simulation: until Ray notices that a node is lost"] = 18.0
    replacement_s: Annotated[float, "simulation: until another node is there"] = 180.0
    storage_gb_per_s: Annotated[float, "simulation: what the storage delivers to all nodes together"] = 12.5
    requests_per_s: Annotated[float, "simulation: requests that the storage answers"] = 5500.0
    price_per_node_hour: Annotated[float, "simulation: price of a node"] = 0.3

    def __post_init__(self) -> None:
        require_at_least(0, self, "dispatch_s", "straggling", "slow_share", "losses_per_node_hour", "notice_s")
        if min(self.storage_gb_per_s, self.requests_per_s, self.replacement_s) <= 0:
            raise DeepEdError("`storage_gb_per_s`, `requests_per_s` and `replacement_s` must be above 0.")


class Pass(NamedTuple):
    """Equal tasks, of which each waits for nothing but what came before the pass."""

    name: str
    task_s: Sequence[float]
    """Processor time of each."""
    task_bytes: float = 0.0
    task_requests: float = 0.0
    before_s: float = 0.0
    """Of the driver alone, before the first task."""


class Run(NamedTuple):
    """What a simulated run took."""

    wall_s: float
    core_s: float
    """Of tasks, those that were lost included."""
    lost_nodes: int
    repeated_tasks: int
    driver_s: float
    """How long the driver was busy, or one node with what cannot be spread."""
    storage_s: float
    """How long the storage was busy."""

    def bottleneck(self, cores: int) -> str:
        shares = {
            "the driver, or one node alone": self.driver_s / self.wall_s,
            "storage": self.storage_s / self.wall_s,
            "cores": self.core_s / (cores * self.wall_s),
        }
        most = max(shares, key=shares.__getitem__)
        return f"{most}: {shares[most]:.0%} of the time"


@dataclass
class _State:
    nodes: int
    fleet: Fleet
    cores_per_node: int
    draw: random.Random
    """Of nodes and tasks."""
    losses: random.Random
    """Apart from the other, so that runs with losses and without differ in nothing else."""
    now: float = 0.0
    driver_free: float = 0.0
    storage_free: float = 0.0
    core_s: float = 0.0
    driver_s: float = 0.0
    storage_s: float = 0.0
    lost: int = 0
    repeated: int = 0
    events: list[tuple[float, int, str, int, int]] = field(default_factory=list)
    """(time, number, kind, node, task)"""
    count: int = 0

    def at(self, time: float, kind: str, node: int, task: int = -1) -> None:
        self.count += 1
        heapq.heappush(self.events, (time, self.count, kind, node, task))


def simulate(passes: Sequence[Pass], *, nodes: int, cores_per_node: int, fleet: Fleet) -> Run:
    """The passes on a cluster of fresh nodes."""
    state = _State(nodes, fleet, cores_per_node, random.Random(fleet.seed), random.Random(f"{fleet.seed} losses"))
    slowness = [1.5 if state.draw.random() < fleet.slow_share else 1.0 for _ in range(nodes)]
    free = [cores_per_node] * nodes
    for node in range(nodes):
        _plan_loss(state, node)
    for each in passes:
        _simulate_pass(state, each, free, slowness)
    return Run(
        state.now,
        state.core_s,
        state.lost,
        state.repeated,
        min(state.driver_s, state.now),
        min(state.storage_s, state.now),
    )


def _plan_loss(state: _State, node: int) -> None:
    if state.fleet.losses_per_node_hour:
        state.at(state.now + state.losses.expovariate(state.fleet.losses_per_node_hour / 3600), "lost", node)


def _simulate_pass(state: _State, work: Pass, free: list[int], slowness: Sequence[float]) -> None:
    fleet, draw = state.fleet, state.draw
    state.now += work.before_s
    state.driver_s += work.before_s
    state.driver_free = state.storage_free = max(state.now, state.driver_free)
    waiting = list(range(len(work.task_s) - 1, -1, -1))
    running: dict[int, tuple[int, float, float]] = {}  # task -> node, when it began to compute, its time
    ready = deque[tuple[int, float]]()  # tasks that the driver has started, and when they have what they read
    ended: dict[int, float] = {}  # task -> end of its last attempt, to tell events of lost attempts
    usable = [node for node in range(state.nodes) for _ in range(free[node])]
    draw.shuffle(usable)
    # a mean of 1, whatever the spread
    task_s = [each * math.exp(draw.gauss(-(fleet.straggling**2) / 2, fleet.straggling)) for each in work.task_s]
    storage_each_s = work.task_bytes / (fleet.storage_gb_per_s * GB) + work.task_requests / fleet.requests_per_s

    def start() -> None:
        # as `tasks.run`: two tasks for each core are under way, so that a core need not wait for the driver
        while waiting and len(running) + len(ready) < 2 * state.nodes * state.cores_per_node:
            state.driver_free = max(state.driver_free, state.now) + fleet.dispatch_s
            state.driver_s += fleet.dispatch_s
            state.storage_free = max(state.storage_free, state.driver_free) + storage_each_s
            state.storage_s += storage_each_s
            ready.append((waiting.pop(), state.storage_free))
        while ready and usable:
            node = usable.pop()
            if not free[node]:
                continue
            free[node] -= 1
            task, there = ready.popleft()
            began, seconds = max(there, state.now), task_s[task] * slowness[node]
            running[task] = (node, began, seconds)
            ended[task] = began + seconds
            state.at(ended[task], "done", node, task)

    start()
    while waiting or running:
        time, _, kind, node, task = heapq.heappop(state.events)
        state.now = max(state.now, time)  # a node may be lost while the driver works alone
        if kind == "done" and task in running and running[task][0] == node and ended[task] == time:
            state.core_s += running.pop(task)[2]
            free[node] += 1
            usable.append(node)
        elif kind == "lost":
            state.lost += 1
            state.at(state.now + fleet.replacement_s, "back", node)
            for other in [each for each, (its_node, _, _) in running.items() if its_node == node]:
                _, began, seconds = running.pop(other)
                state.core_s += min(seconds, max(0.0, state.now - began))
                state.at(state.now + fleet.notice_s, "again", node, other)
                running[other] = (-1, 0.0, 0.0)  # nobody knows yet that it is gone
            free[node] = 0
        elif kind == "again":
            state.repeated += 1
            del running[task]
            waiting.append(task)
        elif kind == "back":
            free[node] = state.cores_per_node
            usable += [node] * state.cores_per_node
            _plan_loss(state, node)
        start()


# -- from a plan


def passes_of(plan: Plan, *, pieces_per_core: int = 4) -> list[Pass]:
    """The stages of a plan that spread work, each cut into tasks as the stage does."""
    found = []
    for stage in plan.stages:
        if stage.cores < plan.cluster.cores:  # on one node: nothing to spread
            found.append(Pass(stage.name, (), before_s=stage.wall_s.value))
            continue
        num_bytes = (
            stage.disk_gb.value + 2 * stage.work_gb.value
        ) * GB  # written once, and what is left for a while read too
        count = max(1, math.ceil(stage.shared_s.value / _TASK_S), pieces_per_core)
        found.append(
            Pass(
                stage.name,
                [stage.shared_s.value / count] * count,
                task_bytes=num_bytes / count,
                task_requests=_REQUESTS_A_TASK,
                before_s=stage.driver_s.value + stage.start_s.value / plan.cluster.cores,
            )
        )
    return found


def compare(plan: Plan, fleet: Fleet, sizes: Sequence[int] = SIZES) -> list[tuple[object, ...]]:
    """A row for each number of nodes: wall-clock and cost without losses and with them, and what holds the run up."""
    rows: list[tuple[object, ...]] = []
    for nodes in sizes:
        cluster = Cluster(nodes=nodes, cores_per_node=plan.cluster.cores_per_node)
        passes = passes_of(make_plan(plan.workload, cluster))
        calm, real = (
            simulate(passes, nodes=nodes, cores_per_node=cluster.cores_per_node, fleet=each)
            for each in (_without_losses(fleet), fleet)
        )
        price = nodes * fleet.price_per_node_hour / 3600
        rows.append(
            (
                nodes,
                round(calm.wall_s / 60, 1),
                round(real.wall_s / 60, 1),
                round(calm.wall_s * price, 2),
                round(real.wall_s * price, 2),
                real.lost_nodes,
                real.repeated_tasks,
                real.bottleneck(cluster.cores),
            )
        )
    return rows


def simulation_text(rows: Sequence[Sequence[object]], *, style: Style = PLAIN) -> str:
    return (
        f"{table(COLUMNS, rows, style=style)}\nSimulated, not measured: with --set, other losses, storage and prices."
    )


COLUMNS = (
    *("nodes", "min", "min, with losses", "cost", "cost, with losses", "nodes lost", "tasks repeated"),
    "what holds it up",
)


def _without_losses(fleet: Fleet) -> Fleet:
    return Fleet(**{**fleet.__dict__, "losses_per_node_hour": 0.0})
