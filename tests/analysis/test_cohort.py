"""Who is in a latency percentile: everybody, failures as worse than any number."""

from __future__ import annotations

import math

import numpy as np
import pytest

from analysis.cohort import cohort_values
from analysis.metrics import registry
from analysis.outcomes import FinalOutcome
from tests.builders.cohorts import frame

INF = math.inf


def values_of(name: str, cohort):
    return cohort_values(registry()[name], cohort)


@pytest.mark.parametrize("outcome", [o for o in FinalOutcome if o.is_failure])
@pytest.mark.parametrize(
    "name", ["ttfb", "ttfp", "audible_ttfa", "audible_ttfa_from_schedule", "e2e"]
)
def test_every_failure_is_infinite_in_every_latency(name, outcome):
    """Also where a finite value had been measured before it failed."""
    cohort = frame(2, outcome=["ok", outcome.value], **{name: [100.0, 50.0]})
    found = values_of(name, cohort)

    assert [100.0, INF] == found.values.tolist()
    assert (1, 0) == (found.not_reached, found.missing)


def test_unmeasured_value_of_a_good_request_is_missing():
    """Neither infinite nor zero: its sound was not recorded."""
    found = values_of("audible_ttfa", frame(3, audible_ttfa=[100.0, np.nan, 120.0]))

    assert ([100.0, 120.0], 1, 0) == (found.values.tolist(), found.missing, found.not_reached)


@pytest.mark.parametrize(
    ("name", "values", "missing"),
    [("audible_ttfa", [100.0, INF], 4), ("ttfb", [50.0, 50.0, 50.0, INF, INF, INF], 0)],
)
def test_failure_weighs_no_more_than_a_reply_whose_sound_was_not_kept(name, values, missing):
    """Of six the sound of two is kept; three of the six fail, one of them among the two."""
    cohort = frame(
        6,
        outcome=["ok", "ok", "ok", "refused", "refused", "refused"],
        is_audio_kept=[True, False, False, True, False, False],
        audible_ttfa=[100.0, *[np.nan] * 5],
        ttfb=[50.0, 50.0, 50.0, *[np.nan] * 3],
    )
    found = values_of(name, cohort)

    assert (values, missing) == (found.values.tolist(), found.missing)


def test_failure_is_no_latency_where_no_reply_could_be_measured():
    """Nothing was kept, or nothing could decode it: two failures do not make p50 "not reached"."""
    found = values_of(
        "audible_ttfa", frame(3, outcome=["ok", "refused", "refused"], audible_ttfa=np.nan)
    )

    assert ([], 3) == (found.values.tolist(), found.missing)


def test_cancelled_after_the_onset_counts_with_what_was_heard():
    """Its audible TTFA is finite, its end does not apply."""
    cohort = frame(2, outcome=["ok", "cancelled"], audible_ttfa=[100.0, 90.0], e2e=[900.0, 400.0])

    assert [100.0, 90.0] == values_of("audible_ttfa", cohort).values.tolist()
    assert ([900.0], 1) == (
        values_of("e2e", cohort).values.tolist(), values_of("e2e", cohort).excluded
    )  # fmt: skip


def test_cancelled_before_the_onset_is_left_out_and_counted():
    """The scenario ended it, nobody failed."""
    found = values_of(
        "audible_ttfa", frame(2, outcome=["ok", "cancelled"], audible_ttfa=[100.0, np.nan])
    )

    assert ([100.0], 1, 0) == (found.values.tolist(), found.excluded, found.missing)


def test_values_that_only_describe_do_not_rank_failures():
    """Leading silence of a reply that never came is missing."""
    cohort = frame(2, outcome=["ok", "timeout"], leading_silence=[30.0, np.nan])
    found = values_of("leading_silence", cohort)

    assert ([30.0], 1) == (found.values.tolist(), found.missing)


def test_incremental_metrics_are_over_incremental_requests():
    """Whole-text requests have no last append."""
    cohort = frame(3, is_incremental=[True, False, True], outcome=["ok", "timeout", "timeout"],
                   final_text_to_audible=[40.0, np.nan, np.nan])  # fmt: skip
    found = values_of("final_text_to_audible", cohort)

    assert ([40.0, INF], 0) == (found.values.tolist(), found.missing)


def test_rows_lead_back_to_the_requests():
    """So that a comparison can pair them."""
    found = values_of("audible_ttfa", frame(3, audible_ttfa=[np.nan, 110.0, 120.0]))

    assert [1, 2] == found.rows.tolist()
