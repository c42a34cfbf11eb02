"""The plan of a point: a pure function of scenario, rate and seed."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import ScenarioError
from harness.prompts import load_prompts
from harness.records import Phase
from harness.scenario import Scenario
from harness.schedule import build_schedule
from tests.builders.runs import scenario

S = 1_000_000_000


def _constant(**phases: float) -> Scenario:
    return scenario(
        {"arrivals.process": "constant", **{f"phases.{k}": v for k, v in phases.items()}}
    )


def test_a_thousand_requests_at_200_a_second_end_at_4995_ms():
    """Deadlines are absolute: the last of 1000 is planned at 4.995 s, the mean rate is 200."""
    plan = build_schedule(_constant(warmup_s=0.0, measure_s=5.0), rate_rps=200, seed=1)

    assert (1000, 4_995_000_000) == (len(plan), plan.arrivals[-1].scheduled_ns)


# At 5 a second a point of 5 s without any request is out of reach.
@given(st.floats(5, 50), st.integers(0, 2**63))
@settings(max_examples=25, deadline=None)
def test_the_same_seed_gives_the_same_plan(rate_rps: float, seed: int):
    """Arrivals and prompts are equal whenever and however often they are built."""
    given_scenario = scenario()

    first = build_schedule(given_scenario, rate_rps=rate_rps, seed=seed)

    assert first == build_schedule(given_scenario, rate_rps=rate_rps, seed=seed)


def test_the_engine_is_no_part_of_the_plan():
    """Two engines are asked for the same texts at the same moments."""
    plans = [
        build_schedule(scenario(engines=[{"contract": c, "params": {"x": n}}]), rate_rps=3, seed=4)
        for n, c in enumerate(("fake", "openai"))
    ]

    assert plans[0].arrivals == plans[1].arrivals


def test_seeds_differ_in_times_and_in_prompts():
    """Another seed is another draw of both."""
    one, two = (build_schedule(scenario(), rate_rps=5, seed=seed) for seed in (1, 2))

    assert [a.scheduled_ns for a in one][:5] != [a.scheduled_ns for a in two][:5]
    assert [a.prompt_id for a in one][:5] != [a.prompt_id for a in two][:5]


def test_phases_follow_from_the_times():
    """Before the end of warm-up: warm-up; from then on: measurement; nothing later."""
    plan = build_schedule(_constant(warmup_s=1.0, measure_s=2.0), rate_rps=2, seed=1)

    assert [Phase.WARMUP] * 2 + [Phase.MEASURE] * 4 == [a.phase for a in plan]
    assert (2, 4, 1 * S, 3 * S) == (
        plan.num_warmup,
        plan.num_measured,
        plan.warmup_ns,
        plan.measure_ns,
    )


def test_shuffled_prompts_go_through_the_whole_set_before_any_comes_again():
    """Each round is a permutation of the set, in a new order."""
    known = load_prompts("hostile")
    wanted = scenario(
        {"prompts.set": "hostile", "arrivals.process": "constant", "phases.warmup_s": 0.0}
    )
    num = len(known)
    chosen = [a.prompt_id for a in build_schedule(wanted, rate_rps=2 * num / 5, seed=3)]

    rounds = [chosen[:num], chosen[num : 2 * num]]
    everything = {prompt.id for prompt in known.prompts}
    assert [everything] * 2 == [set(each) for each in rounds]
    assert rounds[0] != rounds[1]


def test_sequential_prompts_follow_the_file():
    """In file order, from the start again at the end."""
    wanted = scenario({"prompts.set": "hostile", "prompts.order": "sequential"})
    plan = build_schedule(wanted, rate_rps=20, seed=1)
    known = [prompt.id for prompt in load_prompts("hostile").prompts]

    expected = (known * (len(plan) // len(known) + 1))[: len(plan)]
    assert expected == [a.prompt_id for a in plan]


def _expected(**phases: float) -> Scenario:
    keys = {f"phases.{key}": value for key, value in phases.items()}
    return scenario({"arrivals.count": "expected", **keys})


def test_short_points_offer_the_rates_that_they_state():
    """20 s at 0.27 to 1.59 a second: rate x seconds, rounded, and so in the order of the rates."""
    wanted = _expected(warmup_s=2.0, measure_s=20.0)
    plans = [build_schedule(wanted, rate_rps=r, seed=1) for r in (0.27, 0.53, 0.8, 1.06, 1.59)]

    assert [5, 11, 16, 21, 32] == [plan.num_measured for plan in plans]
    assert [1, 1, 2, 2, 3] == [plan.num_warmup for plan in plans]
    assert [0.25, 0.55, 0.8, 1.05, 1.6] == [plan.offered_rps for plan in plans]


def test_rates_of_an_expected_count_differ_in_scale_alone():
    """A higher rate says the same texts first, each no later; another seed is another draw."""
    wanted = _expected(warmup_s=2.0, measure_s=20.0)
    slow, fast, other = (
        [
            (a.prompt_id, a.scheduled_ns)
            for a in build_schedule(wanted, rate_rps=rate_rps, seed=seed)
            if a.phase is Phase.MEASURE
        ]
        for rate_rps, seed in ((1.0, 1), (2.0, 1), (1.0, 2))
    )

    assert [text for text, _ in slow] == [text for text, _ in fast][: len(slow)]
    assert all(early <= late for (_, late), (_, early) in zip(slow, fast, strict=False))
    assert [text for text, _ in slow] != [text for text, _ in other]


def test_the_plan_of_an_expected_count_never_changes():
    """Published plans can be built again: these are seed 1 at 2 a second."""
    plan = build_schedule(_expected(warmup_s=1.0, measure_s=5.0), rate_rps=2, seed=1)

    expected = [478_765_372, 614_678_895, 1_472_063_656, 1_913_264_209]
    assert expected == [a.scheduled_ns for a in plan][:4]


def test_shards_take_turns():
    """With two processes every other arrival is the second's; times do not change."""
    alone = build_schedule(scenario(), rate_rps=3, seed=1)
    shared = build_schedule(scenario(), rate_rps=3, seed=1, num_shards=2)

    assert [n % 2 for n in range(len(shared))] == [a.shard for a in shared]
    assert [a.scheduled_ns for a in alone] == [a.scheduled_ns for a in shared]


def test_a_plan_without_a_measured_request_is_refused():
    """A rate too low for the time measured says what to raise."""
    with pytest.raises(ScenarioError, match=r"no request falls into the 5 s of measurement"):
        build_schedule(scenario(), rate_rps=0.001, seed=1)


def test_an_absurd_number_of_requests_is_refused_before_it_is_built():
    """A rate of a billion is a slip of the pen, not a plan."""
    with pytest.raises(ScenarioError, match="a point may have"):
        build_schedule(scenario(), rate_rps=1e9, seed=1)


def test_a_trace_gives_its_shape_to_the_plan(tmp_path):
    """Bursts of the file are bursts of the plan."""
    (tmp_path / "burst.txt").write_text("0\n0\n0\n4\n")
    wanted = scenario(
        {
            "arrivals.process": "trace",
            "arrivals.trace_file": str(tmp_path / "burst.txt"),
            "phases.warmup_s": 0.0,
        }
    )
    times = [a.scheduled_ns for a in build_schedule(wanted, rate_rps=2, seed=1)]

    assert [0, 0, 0] == times[:3]
    assert times[3] > 1 * S
