"""The same loop on a virtual clock: arithmetic by hand, determinism, what policies are worth."""

from __future__ import annotations

import pytest

from reference_engine.batch import Shape, Stage
from reference_engine.clock import thread_cpu_ns
from reference_engine.config import load_profile
from reference_engine.cost_table import CostKind, StepCosts, cost_names, load_costs
from reference_engine.errors import ProfileError
from reference_engine.messages import EndReason
from reference_engine.simulate import SimulatedArrival, Simulation, simulate
from reference_engine.simulated_summary import replay, summarise
from tests.builders.engine import poisson

MS = 1_000_000


def one(**fields: int) -> list[SimulatedArrival]:
    values = {"index": 0, "at_ns": 0, "num_codec_frames": 40, "num_characters": 60, **fields}
    return [SimulatedArrival(**values)]


def audible_ms(simulation: Simulation) -> list[float]:
    times = [replay(request).audible_ns for request in simulation.requests]
    return [
        (at_ns - request.arrival.at_ns) / MS
        for at_ns, request in zip(times, simulation.requests, strict=True)
        if at_ns is not None
    ]


@pytest.mark.parametrize(
    ("cost", "expected_ms"), [("h100-published", 17.24), ("h100-target", 6.744)]
)
def test_first_sound_of_a_lone_request_is_the_sum_of_its_steps(cost, expected_ms):
    """Two codec-frame steps, one codec call of two frames, a gap before each, and delivery.

    Published: 2 x (0.3 + 5.94) + (0.3 + 2.8 + 0.16) + 1.5 = 17.24 ms.
    Target:    2 x (0.1 + 2.532) + (0.1 + 0.8 + 0.08) + 0.5 = 6.744 ms.
    """
    simulation = simulate(load_profile("ttfa"), load_costs(cost), one())

    assert [expected_ms] == [pytest.approx(ms) for ms in audible_ms(simulation)]


def test_a_prompt_that_is_not_stored_costs_its_prefill():
    """9 rows in a bucket of 16 tokens: 0.3 + 2.5 + 16 x 0.004 ms more."""
    costs = load_costs("h100-published")

    (stored,) = audible_ms(simulate(load_profile("ttfa"), costs, one()))
    (computed,) = audible_ms(simulate(load_profile("ladder/without-prefix-kv"), costs, one()))

    assert computed - stored == pytest.approx(2.864)


def test_kept_silence_is_waited_for():
    """The first sound comes one codec frame (80 ms) into the stream."""
    costs = load_costs("h100-published")

    (trimmed,) = audible_ms(simulate(load_profile("ttfa"), costs, one()))
    (kept,) = audible_ms(simulate(load_profile("ladder/without-onset-trim"), costs, one()))

    assert kept - trimmed == pytest.approx(80.0)


@pytest.mark.parametrize("length", [2, 6, 7, 40])
def test_every_codec_frame_but_the_silent_one_reaches_the_listener(length):
    """One frame was trimmed; the frame made after the end was dropped."""
    simulation = simulate(
        load_profile("ttfa"), load_costs("h100-target"), one(num_codec_frames=length)
    )
    (request,) = simulation.requests

    assert (length - 1) * 1920 == sum(chunk.num_samples for chunk in request.chunks)
    assert EndReason.COMPLETE is request.reason


def test_the_same_arrivals_give_the_same_result():
    """To the nanosecond."""
    profile, costs = load_profile("ttfa"), load_costs("h100-published")
    first, second = (simulate(profile, costs, poisson(10, 6)) for _ in range(2))

    assert [r.chunks for r in first.requests] == [r.chunks for r in second.requests]


def test_padding_takes_as_long_as_work():
    """Five rows run as eight: that is what a captured graph does."""
    costs = StepCosts(load_costs("h100-published"), load_profile("ttfa"))

    assert int((5.9 + 8 * 0.04) * MS) == costs.shape_ns(Shape(Stage.FRAME, 8))


def test_what_is_not_captured_waits_for_its_launches():
    """990 kernels of the predictor at 5 us each take longer than the 3.8 ms of the device."""
    table = load_costs("h100-published")
    captured = StepCosts(table, load_profile("ladder/6-captured-predictor"))
    launched = StepCosts(table, load_profile("ladder/5-cached-codec"))

    shape = Shape(Stage.PREDICTOR, 1)
    assert 4_950_000 == launched.shape_ns(shape) > captured.shape_ns(shape)


def test_decoding_the_history_again_costs_more_with_every_chunk():
    """The device is busier for the same speech."""
    costs = load_costs("h100-published")
    busy = [
        simulate(load_profile(name), costs, one(num_codec_frames=100)).meters.stages[Stage.CODEC]
        for name in ("ttfa", "ladder/without-cached-codec")
    ]

    assert busy[1].busy_ns > 2 * busy[0].busy_ns


def test_refused_requests_stay_in_the_cohort():
    """They count as never heard: with half of them refused the median is not reached."""
    profile = load_profile("ttfa", overrides={"slots": 1, "max_waiting": 0})
    arrivals = [SimulatedArrival(n, n * MS, 400, 400) for n in range(4)]
    summary = summarise(simulate(profile, load_costs("h100-published"), arrivals, drain_s=60))

    assert (4, 3, None) == (summary.num_requests, summary.num_failed, summary.p50_ms)


@pytest.mark.parametrize("cost", cost_names())
def test_a_loaded_engine_stays_quick_and_smooth(cost):
    """20 arrivals a second for 15 s: nobody fails, nobody's playback stalls, p95 is near p50."""
    summary = summarise(simulate(load_profile("ttfa"), load_costs(cost), poisson(20, 15)))

    assert summary.is_smooth
    assert summary.p95_ms is not None
    assert summary.p50_ms is not None
    assert summary.p95_ms < 1.8 * summary.p50_ms


def test_looking_at_deadlines_beats_taking_turns():
    """Same chunks, same arrivals: round robin is slower to first sound."""
    arrivals, costs = poisson(10, 15), load_costs("h100-published")
    by_deadline = summarise(simulate(load_profile("ttfa"), costs, arrivals))
    in_turn = summarise(simulate(load_profile("ladder/without-deadlines"), costs, arrivals))

    assert by_deadline.p95_ms is not None
    assert in_turn.p95_ms is None or in_turn.p95_ms > 1.2 * by_deadline.p95_ms


def test_newcomers_are_not_starved_by_overload():
    """Far above capacity the admitted are still served: somebody hears something all the time."""
    profile = load_profile("ttfa", overrides={"slots": 400, "max_waiting": 1000})
    simulation = simulate(profile, load_costs("h100-published"), poisson(80, 6), drain_s=60)

    assert {EndReason.COMPLETE} == {request.reason for request in simulation.requests}


def test_every_cost_table_says_where_it_comes_from():
    """Kind, label, source; targets are not called measured."""
    kinds = {name: load_costs(name).kind for name in cost_names()}

    assert CostKind.TARGET is kinds["h100-target"]
    assert CostKind.MEASURED_BY_OTHERS is kinds["h100-published"]
    assert all(load_costs(name).source for name in kinds)


def test_an_unknown_cost_table_lists_the_known_ones():
    """One line."""
    with pytest.raises(ProfileError, match="h100-published, h100-target"):
        load_costs("a100")


# -- long ones: figures, not part of the ordinary run ----------------------------------------------

TARGETS = [
    ("h100-published", 10, 27.0),
    ("h100-published", 20, 31.0),
    ("h100-target", 10, 9.5),
    ("h100-target", 20, 10.4),
    ("h100-target", 60, 17.0),
]


@pytest.mark.bench
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("cost", "rate_rps", "limit_ms"), TARGETS)
def test_first_sound_stays_below_its_target_without_an_underrun(cost, rate_rps, limit_ms):
    """Five seeds of 300 s: the worst p95, and not one stalled listener."""
    profile, costs = load_profile("ttfa"), load_costs(cost)
    summaries = [
        summarise(simulate(profile, costs, poisson(rate_rps, 300, seed=seed)))
        for seed in range(1, 6)
    ]
    for summary in summaries:
        print(cost, rate_rps, summary)

    assert all(summary.is_smooth for summary in summaries)
    assert max(summary.p95_ms or 1e9 for summary in summaries) <= limit_ms


@pytest.mark.bench
def test_five_minutes_at_twenty_a_second_are_simulated_in_fifteen_seconds():
    """CPU time of one core, so that neighbours on the machine do not count."""
    started_ns = thread_cpu_ns()
    simulate(load_profile("ttfa"), load_costs("h100-published"), poisson(20, 300))
    seconds = (thread_cpu_ns() - started_ns) / 1e9
    print(f"300 s at 20 a second simulated in {seconds:.1f} s")

    assert seconds <= 15
