"""Leading silence: what is let through is the stream less exactly the stated prefix."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference_engine.trim import FixedTrim, ListeningTrim, find_onset

RATE = 24_000
MAX_TRIM = 2 * RATE


def tone(num_samples: int, *, level_dbfs: float = -20.0, hz: float = 1_000.0) -> np.ndarray:
    peak = 32768 * 10 ** (level_dbfs / 20) * np.sqrt(2)
    return (peak * np.sin(2 * np.pi * hz * np.arange(num_samples) / RATE)).astype(np.int16)


def silence(num_samples: int, *, offset: int = 0) -> np.ndarray:
    return np.full(num_samples, offset, np.int16)


def run(trim: FixedTrim | ListeningTrim, stream: np.ndarray, sizes: list[int]) -> np.ndarray:
    """Everything let through, with the stream cut into pieces of these sizes, over and over."""
    out, at, turn = [], 0, 0
    while at < len(stream):
        piece = stream[at : at + sizes[turn % len(sizes)]]
        cut = trim.push(len(piece), piece)
        assert cut.num_samples == (0 if cut.samples is None else len(cut.samples))
        out.append(piece[:0] if cut.samples is None else cut.samples)
        at, turn = at + len(piece), turn + 1
    rest = trim.flush()
    if rest.samples is not None:
        out.append(rest.samples)
    return np.concatenate(out)


@pytest.mark.parametrize("lead_ms", [0, 3, 80, 400])
@pytest.mark.parametrize("offset", [0, 900])
def test_the_onset_of_a_tone_is_found_within_a_millisecond(lead_ms, offset):
    """Also on a constant offset, which is no sound."""
    lead = lead_ms * RATE // 1000
    stream = np.concatenate([silence(lead, offset=offset), tone(RATE // 2) + offset])

    assert find_onset(stream) == pytest.approx(lead, abs=RATE // 1000)


@pytest.mark.parametrize(
    "stream",
    [
        silence(RATE),
        silence(RATE, offset=20_000),
        np.concatenate([silence(5_000), tone(200), silence(5_000)]),
        tone(RATE, level_dbfs=-60),
    ],
    ids=["zeros", "constant", "click", "faint"],
)
def test_what_is_no_sound_has_no_onset(stream):
    """Zeros, an offset, a click of 8 ms, steady faint noise."""
    assert find_onset(stream) is None


@given(
    lead=st.integers(0, 12_000),
    sizes=st.lists(st.integers(1, 4_000), min_size=1, max_size=6),
)
@settings(max_examples=40, deadline=None)
def test_the_trimmed_stream_is_the_stream_less_the_stated_prefix(lead, sizes):
    """However it is cut into chunks."""
    stream = np.concatenate([silence(lead), tone(6_000)])
    trim = ListeningTrim(MAX_TRIM)

    out = run(trim, stream, sizes)

    assert np.array_equal(stream[trim.trimmed_samples :], out)
    assert abs(trim.trimmed_samples - lead) <= RATE // 1000


def test_a_stream_without_sound_is_let_through_whole_at_its_end():
    """Nothing is trimmed where nothing was found; the listener gets what was made."""
    trim = ListeningTrim(MAX_TRIM)

    out = run(trim, silence(10_000), [1_920])

    assert (10_000, 0) == (len(out), trim.trimmed_samples)


def test_silence_beyond_the_limit_is_let_through_untrimmed():
    """Withholding has an end: from there the stream flows as it is."""
    trim = ListeningTrim(max_samples=4_000)
    stream = np.concatenate([silence(9_600), tone(4_800)])
    passed_at_limit = [
        trim.push(1_920, stream[at : at + 1_920]).num_samples for at in (0, 1920, 3840)
    ]

    assert [0, 0, 5_760] == passed_at_limit
    assert 0 == trim.trimmed_samples


def test_a_known_silence_is_cut_without_listening():
    """Exactly so many samples, over chunk borders; also where there are no samples at all."""
    trim = FixedTrim(2_000)

    assert [0, 1_840, 1_920] == [trim.push(1_920, None).num_samples for _ in range(3)]
    assert 2_000 == trim.trimmed_samples


def test_keeping_silence_lets_everything_through():
    """The first chunk at once."""
    stream = silence(1_920)

    assert np.array_equal(stream, run(FixedTrim(0), stream, [700]))
