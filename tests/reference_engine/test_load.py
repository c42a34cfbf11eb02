"""How many streams a device can keep fed: by hand, and in the engine on a virtual clock."""

from __future__ import annotations

import pytest

from reference_engine.batch import Catalogue, Shape, Stage
from reference_engine.clock import NS_PER_S
from reference_engine.config import Profile, load_profile
from reference_engine.errors import RefusedError
from reference_engine.load import LoadModel
from reference_engine.messages import SAMPLE_RATE_HZ
from reference_engine.scheduler.reserves import Reserves
from reference_engine.simulate import SimulatedRequest, simulate
from tests.builders.engine import MS, NOTHING_HELD, Speech, bench, poisson, processor_costs
from tests.builders.engine import profile as small_profile

FRAME_NS, CODEC_NS = 8 * MS, 16 * MS


def cpu(**overrides: object) -> Profile:
    return load_profile("cpu", overrides={"max_load": 0.5, **overrides})


def load_model(profile: Profile) -> LoadModel:
    """Every frame step takes 8 ms and every codec call 16 ms, whatever its size."""
    catalogue = Catalogue(profile)
    model = LoadModel(profile, catalogue, Reserves(profile.reserve))
    for shape in catalogue.shapes:
        model.rehearsed(shape, CODEC_NS if shape.stage is Stage.CODEC else FRAME_NS)
    return model


def test_load_is_the_time_of_shared_steps_over_the_time_that_plays():
    """Four streams in chunks of 8: 8 of every 80 ms for frames, 16 of every 640 for the codec."""
    assert pytest.approx(8 / 80 + 16 / 640) == load_model(cpu()).of([8] * 4)


def test_more_rows_than_a_call_holds_take_several():
    """The codec takes four rows of 8 codec frames at most: five streams need two calls."""
    assert pytest.approx(8 / 80 + 2 * 16 / 640) == load_model(cpu()).of([8] * 5)


def test_a_newcomer_steps_by_itself_and_pays_for_its_small_chunks():
    """One more frame step in 80 ms, and a codec call for every three codec frames (240 ms)."""
    model = load_model(cpu())

    assert pytest.approx(8 / 80 + 16 / 240) == model.of([8, 8, 3]) - model.of([8, 8])


def test_a_machine_that_slows_down_has_fewer_places():
    """Each step takes four times as long: shapes that have not run since count as slower too."""
    model = load_model(cpu())
    before = model.num_places
    for _ in range(200):
        model.measured(Shape(Stage.FRAME, 1), 4 * FRAME_NS)
        model.measured(Shape(Stage.CODEC, 1, 8), 4 * CODEC_NS)

    assert (8, 1) == (before, model.num_places)
    assert pytest.approx(4 * (8 / 80 + 16 / 640), rel=0.01) == model.of([8] * 4)


def test_a_device_too_slow_for_anybody_still_has_one_place():
    """A slow stream is better than none."""
    model = load_model(cpu(max_load=0.01))

    assert 1 == model.num_places


def test_without_a_limit_every_slot_is_a_place():
    """And nothing is worked out in the loop."""
    model = load_model(cpu(max_load=None))
    model.measured(Shape(Stage.FRAME, 1), 100 * FRAME_NS)

    assert 8 == model.num_places
    assert model.has_time_for([1] * 8)


def test_what_was_never_rehearsed_counts_as_its_stages_reserve():
    """20 ms a step in this profile, until something is known."""
    profile = cpu()
    model = LoadModel(profile, Catalogue(profile), Reserves(profile.reserve))

    assert pytest.approx(20 / 80 + 20 / 640) == model.of([8])


def test_a_slot_stays_free_while_the_device_has_no_time():
    """One of four slots is used; the second request gets its own when the first is over."""
    desk = bench(small_profile(slots=4, max_load=0.2))
    for shape in desk.engine.catalogue.shapes:
        desk.engine.load.rehearsed(shape, 15 * MS)
    desk.engine.load.num_places = 4  # so that nobody is refused here
    first, second = (desk.say(Speech(key=key, num_codec_frames=30)) for key in (1, 2))
    desk.turn(4)
    held_meanwhile = desk.engine.admission.num_active
    desk.finish()

    assert 1 == held_meanwhile
    assert first.end is not None
    assert second.end is not None
    assert first.end.stats.ended_ns <= second.end.stats.admitted_ns
    assert NOTHING_HELD == desk.held()


def test_behind_a_standing_queue_nobody_waits_longer_than_the_profile_allows():
    """A place comes free every 3 s: with at most 7 s of waiting there is room for two."""
    desk = bench(small_profile(slots=1, max_waiting=10, max_wait_s=7.0))
    queue = desk.engine.standing_queue
    queue.wanted(desk.clock.now_ns() - 3 * NS_PER_S)
    queue.freed(0, desk.clock.now_ns())
    for key in range(1, 4):
        desk.say(Speech(key=key, num_codec_frames=30))
    desk.turn()

    with pytest.raises(RefusedError, match="3 requests are queued or in progress"):
        desk.say(Speech(key=4, num_codec_frames=30))
    desk.finish()


def test_retry_after_is_when_everybody_here_has_had_a_place():
    """A place every 1.5 s, two taken and three that wait: for each of them and the newcomer."""
    desk = bench(small_profile(slots=2, max_waiting=3))
    queue = desk.engine.standing_queue
    queue.wanted(desk.clock.now_ns() - 3 * NS_PER_S // 2)
    queue.freed(0, desk.clock.now_ns())
    for key in range(1, 6):
        desk.say(Speech(key=key, num_codec_frames=30))

    with pytest.raises(RefusedError) as refusal:
        desk.engine.check_room()

    assert pytest.approx(4 * 1.5) == refusal.value.retry_after_s
    desk.finish()


def test_places_that_the_guard_took_back_are_held_by_those_who_play():
    """Four play and the device has slowed down to one place: they are no queue."""
    desk = bench(small_profile(slots=4, max_waiting=1))
    for key in range(1, 5):
        desk.say(Speech(key=key, num_codec_frames=30))
    desk.turn()
    desk.engine.load.num_places = 1

    desk.engine.check_room()
    desk.finish()


def test_asking_for_room_takes_none():
    """The last place is still there for whoever submits."""
    desk = bench(small_profile(slots=1, max_waiting=0))
    desk.engine.check_room()
    desk.engine.check_room()

    desk.say(Speech(key=1, num_codec_frames=3))
    with pytest.raises(RefusedError):
        desk.engine.check_room()
    assert 1 == desk.engine.meters.num_refused
    desk.finish()


def ran_dry(request: SimulatedRequest) -> bool:
    """Whether its listener waited for more than 1 ms in all."""
    end_ns, dry_ns = request.chunks[0].arrival_ns, 0
    for chunk in request.chunks:
        dry_ns += max(0, chunk.arrival_ns - end_ns)
        end_ns = max(end_ns, chunk.arrival_ns) + chunk.num_samples * NS_PER_S // SAMPLE_RATE_HZ
    return dry_ns > MS


def overload(profile: Profile, *, slowness: float) -> tuple[int, int, int]:
    """Three times what the slots serve, for 12 s: refused, served, and of these ran dry."""
    costs = processor_costs(slowness)
    requests = simulate(profile, costs, poisson(9, 12), drain_s=120).requests
    served = [request for request in requests if request.chunks]
    refused = sum(request.refusal is not None for request in requests)
    return refused, len(served), sum(ran_dry(request) for request in served)


@pytest.mark.parametrize("slowness", [1.0, 2.0])
def test_who_is_let_in_never_runs_dry_on_an_overloaded_processor(slowness):
    """As fast as measured, and half as fast, as beside another busy process."""
    refused, served, dry = overload(load_profile("cpu"), slowness=slowness)

    assert 0 == dry
    assert served > 8
    assert refused > served / 4


def test_without_the_limit_a_slow_processor_starves_everybody():
    """The same slots, filled whatever it costs: what the limit is for."""
    profile = load_profile("cpu", overrides={"max_load": None})
    _, served, dry = overload(profile, slowness=2.0)

    assert dry > served / 2
