"""`earwitness simulate --study DIR`: every table and figure of the engine's README, in one go.

Five questions, each answered on both cost tables and never in one picture: what a listener waits
at which rate, what the policy is worth, what each optimisation is worth, and how far it goes.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.child import end_with_parent
from harness.cli.simulate_command import short_prompts, simulate_seeded
from harness.errors import RunFolderError
from reference_engine.config import load_profile, profile_names
from reference_engine.cost_table import load_costs
from reference_engine.simulated_summary import PointSummary, summarise

__all__ = [
    "POLICIES",
    "PROFILES",
    "Job",
    "Measured",
    "Study",
    "ladder_rungs",
    "profiles_without",
    "write_study",
]

COSTS = ("h100-published", "h100-target")
PROFILES = ("ttfa", "adaptive", "balanced", "throughput")
POLICIES = ("deadline_aware", "round_robin", "fcfs")
CURVE_RATES = (1, 4, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 120)
POLICY_RATES = (1, 4, 10, 20, 40, 60)
LADDER_RATES = (0.25, 1, 2, 4, 10, 20)
WITHOUT_RATES = (4, 10, 20)
CURVE_SEEDS, OTHER_SEEDS = (1,), (1, 2)
_OTHER_S = 120.0


@dataclass(frozen=True, slots=True)
class Job:
    """One point of the study. `part` is which question it belongs to."""

    part: str
    cost: str
    profile: str
    policy: str
    rate_rps: float
    seed: int
    duration_s: float
    prompts: str
    max_words: int


@dataclass(frozen=True, slots=True)
class Measured:
    """A point and what came of it."""

    job: Job
    summary: PointSummary


class Study:
    """All points, with the look-ups that tables and figures need."""

    def __init__(self, points: Iterable[Measured]) -> None:
        self.points = list(points)

    def of(self, part: str, **keys: object) -> list[Measured]:
        """Points of a part whose job has these values, in order of rate and seed."""
        found = [
            point
            for point in self.points
            if point.job.part == part
            and all(getattr(point.job, key) == value for key, value in keys.items())
        ]
        return sorted(found, key=lambda point: (point.job.rate_rps, point.job.seed))

    def rates(self, part: str) -> list[float]:
        """The rates of a part, in order."""
        return sorted({point.job.rate_rps for point in self.points if point.job.part == part})

    def worst_p95_ms(self, part: str, **keys: object) -> float | None:
        """The largest p95 over seeds; None where one seed does not reach it."""
        values = [point.summary.p95_ms for point in self.of(part, **keys)]
        known = [value for value in values if value is not None]
        return max(known) if known and len(known) == len(values) else None

    def underrun_share(self, part: str, **keys: object) -> float:
        """Requests with an underrun, of all requests of which anything came, over all seeds."""
        points = self.of(part, **keys)
        num = sum(point.summary.num_heard for point in points)
        return sum(point.summary.num_underrun for point in points) / num if num else 0.0

    def as_text(self) -> str:
        """study.json: one line a point."""
        lines = [
            json.dumps({**_plain(point.job), **_plain(point.summary)}, allow_nan=False)
            for point in self.points
        ]
        return '{"kind": "simulated", "points": [\n' + ",\n".join(lines) + "\n]}\n"

    @classmethod
    def from_text(cls, text: str) -> Study:
        """Read what `as_text` wrote."""
        points = []
        for values in json.loads(text)["points"]:
            job = {each.name: values.pop(each.name) for each in dataclasses.fields(Job)}
            points.append(Measured(Job(**job), PointSummary(**values)))
        return cls(points)


def _plain(value: Job | PointSummary) -> dict[str, Any]:
    """Fields by name; figures to a nanosecond's worth of digits, so that files stay readable."""
    return {
        name: round(found, 6) if isinstance(found, float) else found
        for name, found in dataclasses.asdict(value).items()
    }


def profiles_without() -> tuple[str, ...]:
    """The profiles that switch one optimisation off, and `ttfa` that has them all."""
    names = profile_names()
    return ("ttfa", *(name for name in names if name.startswith("ladder/without-")))


def ladder_rungs() -> tuple[str, ...]:
    """The rungs, from naive to everything."""
    names = profile_names()
    return tuple(name for name in names if name.startswith("ladder/") and name[7].isdigit())


def write_study(folder: Path, *, duration_s: float, prompts: str, max_words: int) -> None:
    """Simulate everything and write study.json, tables.md and the figures.

    Raises:
        RunFolderError: the folder exists, or cannot be written.
    """
    from harness.cli.study_pictures import write_pictures
    from harness.cli.study_tables import markdown

    short_prompts(prompts, max_words)  # a mistake is told before minutes of work
    try:
        folder.mkdir(parents=True)
    except OSError as fault:
        said = "already exists" if isinstance(fault, FileExistsError) else fault.strerror
        raise RunFolderError(f"{folder}: {said}; name a new folder") from None
    study = Study(_run(_jobs(duration_s, prompts, max_words)))
    (folder / "study.json").write_text(study.as_text(), encoding="utf-8")
    (folder / "tables.md").write_text(markdown(study), encoding="utf-8")
    write_pictures(study, folder)
    sys.stderr.write(f"tables and figures in {folder}\n")


def _jobs(duration_s: float, prompts: str, max_words: int) -> list[Job]:
    def points(
        part: str, profile: str, policy: str, rates: Sequence[float], seeds: Sequence[int],
        seconds: float,
    ) -> Iterable[Job]:  # fmt: skip
        for cost in COSTS:
            for rate in rates:
                for seed in seeds:
                    yield Job(part, cost, profile, policy, rate, seed, seconds, prompts, max_words)

    jobs: list[Job] = []
    for profile in PROFILES:
        own = load_profile(profile).policy.value
        jobs += points("curve", profile, own, CURVE_RATES, CURVE_SEEDS, duration_s)
    for policy in POLICIES:
        jobs += points("policy", "ttfa", policy, POLICY_RATES, OTHER_SEEDS, _OTHER_S)
    for rung in ladder_rungs():
        own = load_profile(rung).policy.value
        jobs += points("ladder", rung, own, LADDER_RATES, OTHER_SEEDS, _OTHER_S)
    for name in profiles_without():
        own = load_profile(name).policy.value
        jobs += points("without", name, own, WITHOUT_RATES, OTHER_SEEDS, _OTHER_S)
    return jobs


def _run(jobs: Sequence[Job]) -> Iterable[Measured]:
    """All points, on all cores, with a line of progress."""
    # The long ones first, so that the last minute is not one core's.
    order = sorted(jobs, key=lambda job: -job.rate_rps * job.duration_s)
    with ProcessPoolExecutor(os.cpu_count(), initializer=end_with_parent) as pool:
        for done, measured in enumerate(pool.map(_measure, order), start=1):
            if sys.stderr.isatty():
                sys.stderr.write(f"\rsimulated {done} of {len(order)} points ")
            yield measured
    if sys.stderr.isatty():
        sys.stderr.write("\n")


def _measure(job: Job) -> Measured:
    simulation, warmup_ns = simulate_seeded(
        load_profile(job.profile, overrides={"policy": job.policy}),
        load_costs(job.cost),
        rate_rps=job.rate_rps,
        seed=job.seed,
        duration_s=job.duration_s,
        prompts=short_prompts(job.prompts, job.max_words),
    )
    return Measured(job, summarise(simulation, from_ns=warmup_ns))
