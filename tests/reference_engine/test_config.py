"""Profiles: strict, laid over each other, hashed; and each ladder rung switches one thing."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from reference_engine.config import PROFILE_FOLDER, load_profile, profile_names
from reference_engine.errors import ProfileError

RUNGS = [name for name in profile_names() if name.startswith("ladder/") and name[7].isdigit()]
SINGLES = [name for name in profile_names() if name.startswith("ladder/without-")]
MORE = [name for name in profile_names() if name.startswith("ladder/with-")]


def write(folder: Path, name: str, **settings: object) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


@pytest.mark.parametrize("name", profile_names())
def test_every_profile_that_comes_with_the_engine_loads(name):
    """And says its own name."""
    assert name == load_profile(name).name


def test_the_profiles_people_are_meant_to_use_are_there():
    """First sound, balance, throughput, and adaptive chunks."""
    assert {"ttfa", "balanced", "throughput", "adaptive"} <= set(profile_names())


def test_a_profile_lies_over_the_one_it_extends(tmp_path):
    """Nested keys merge one by one; everything else stays."""
    path = write(tmp_path, "mine", extends="ttfa", pacing={"margin_ms": 33.0})

    mine, base = load_profile(path), load_profile("ttfa")

    assert (33.0, base.pacing.max_lead_s) == (mine.pacing.margin_ms, mine.pacing.max_lead_s)
    assert (base.slots, "mine") == (mine.slots, mine.name)


def test_another_kind_of_chunk_replaces_the_old_one_whole(tmp_path):
    """An adaptive rule has no ramp left over from the fixed one below it."""
    chunks = {"mode": "adaptive", "first": 2, "growth": 2.0, "max_frames": 8, "slack_share": 0.5}

    assert (
        "adaptive" == load_profile(write(tmp_path, "x", extends="ttfa", chunks=chunks)).chunks.mode
    )


def test_a_file_may_extend_a_file_beside_it(tmp_path):
    """By its name with the suffix."""
    write(tmp_path, "below", extends="ttfa", slots=3)

    assert 3 == load_profile(write(tmp_path, "above", extends="below.yaml")).slots


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"polcy": "fcfs"}, "polcy: unknown key (did you mean 'policy'?)"),
        ({"policy": "dedline_aware"}, "did you mean 'deadline_aware'?"),
        ({"slots": 0}, "slots: 0 should be greater than or equal to 1"),
        ({"slots": "many"}, "slots: 'many' should be a valid integer"),
        ({"pacing": {"margin": 3.0}}, "pacing.margin: unknown key (did you mean 'margin_ms'?)"),
        ({"chunks": {"mode": "fixed", "ramp": [2, 60]}}, "60 codec frames exceed the largest"),
        ({"buckets": {"frame_rows": [4, 2]}}, "frame_rows: [4, 2] must rise strictly"),
        ({"buckets": {"max_codec_work": 3}}, "leaves no bucket for one row of 25 codec frames"),
    ],
)
def test_a_mistake_is_one_line_that_names_file_key_and_value(tmp_path, settings, said):
    """Whatever is wrong, it is said where and what to do."""
    path = write(tmp_path, "mine", extends="ttfa", **settings)

    with pytest.raises(ProfileError) as mistake:
        load_profile(path)

    assert str(path) in str(mistake.value)
    assert said in str(mistake.value)
    assert "\n" not in str(mistake.value)


def test_an_unknown_profile_lists_the_known_ones():
    """With the nearest."""
    with pytest.raises(ProfileError, match="did you mean 'balanced'"):
        load_profile("balancd")


def test_profiles_that_extend_in_a_circle_are_refused(tmp_path):
    """The circle is spelt out."""
    write(tmp_path, "a", extends="b.yaml")
    path = write(tmp_path, "b", extends="a.yaml")

    with pytest.raises(ProfileError, match="circle: b -> a -> b"):
        load_profile(path)


@pytest.mark.parametrize("text", ["- a\n- b\n", "slots: [1\n", "\xff"])
def test_what_is_not_a_mapping_is_one_line(tmp_path, text):
    """Lists, broken YAML, bytes."""
    path = tmp_path / "x.yaml"
    path.write_bytes(text.encode("latin-1"))

    with pytest.raises(ProfileError, match=r"x\.yaml"):
        load_profile(path)


def test_the_hash_follows_settings_and_not_names(tmp_path):
    """Two names for the same settings are the same engine; one changed key is another."""
    same = load_profile(write(tmp_path, "other", extends="ttfa"))
    changed = load_profile(write(tmp_path, "changed", extends="ttfa", slots=7))

    assert load_profile("ttfa").hash == same.hash != changed.hash


def test_the_top_of_the_ladder_is_the_profile_for_first_sound():
    """Everything switched on again: same hash."""
    assert load_profile("ttfa").hash == load_profile(RUNGS[-1]).hash


def test_the_ladder_has_its_ten_rungs_in_order():
    """From naive to prefix KV."""
    assert list(range(10)) == [int(name.removeprefix("ladder/")[0]) for name in RUNGS]


@pytest.mark.parametrize("name", [*RUNGS[1:], *SINGLES, *MORE])
def test_a_rung_extends_its_neighbour_and_changes_one_thing(name):
    """Its file names what it stands on and one optimisation (which may be two keys)."""
    settings = yaml.safe_load((PROFILE_FOLDER / f"{name}.yaml").read_text())
    stands_on = RUNGS[RUNGS.index(name) - 1] if name in RUNGS else "ttfa"

    assert stands_on == settings.pop("extends")
    assert 1 <= len(settings) <= 2
    assert load_profile(stands_on).hash != load_profile(name).hash


def test_every_switch_of_the_ladder_can_be_thrown_alone():
    """Nine optimisations, each switched off with all others on."""
    assert 9 == len(SINGLES)
