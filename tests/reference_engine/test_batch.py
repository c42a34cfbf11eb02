"""The catalogue of captured shapes: one rule, and nothing outside it."""

from __future__ import annotations

import pytest

from reference_engine.batch import Catalogue, Shape, Stage, Urgency
from reference_engine.config import load_profile, profile_names
from reference_engine.errors import UncapturedShapeError
from tests.builders.engine import profile


def test_the_catalogue_is_every_row_bucket_by_every_width_bucket():
    """Of the codec only what stays within its work."""
    catalogue = Catalogue(
        profile(
            chunks={"mode": "fixed", "ramp": [2]},
            buckets={
                "frame_rows": [1, 4], "prefill_rows": [1], "prefill_tokens": [16, 32],
                "codec_rows": [1, 2, 4], "codec_frames": [2, 8], "max_codec_work": 16,
            },
        )
    )  # fmt: skip

    assert {
        Shape(Stage.FRAME, 1), Shape(Stage.FRAME, 4),
        Shape(Stage.PREFILL, 1, 16), Shape(Stage.PREFILL, 1, 32),
        Shape(Stage.CODEC, 1, 2), Shape(Stage.CODEC, 2, 2), Shape(Stage.CODEC, 4, 2),
        Shape(Stage.CODEC, 1, 8), Shape(Stage.CODEC, 2, 8),
    } == set(catalogue.shapes)  # fmt: skip


def test_split_stages_are_captured_apart():
    """Talker and predictor instead of the fused codec frame."""
    stages = {shape.stage for shape in Catalogue(profile(stages="split")).shapes}

    assert {Stage.TALKER, Stage.PREDICTOR, Stage.PREFILL, Stage.CODEC} == stages


def test_sequential_batching_has_one_row_throughout():
    """Nobody shares a step."""
    shapes = Catalogue(profile("ladder/0-naive")).shapes

    assert {1} == {shape.rows for shape in shapes}


@pytest.mark.parametrize(("rows", "expected"), [(1, 1), (3, 4), (24, 24), (25, 32), (128, 128)])
def test_a_batch_is_padded_up_to_the_next_bucket(rows, expected):
    """Never down, never to a size of its own."""
    batch = Catalogue(profile()).batch(
        Stage.FRAME, list(range(1, rows + 1)), urgency=Urgency.STEADY
    )

    assert expected == batch.shape.rows


def test_more_rows_than_the_largest_bucket_are_an_error_not_a_slow_path():
    """The cohort must be split by whoever builds the batch."""
    with pytest.raises(UncapturedShapeError, match="split the cohort"):
        Catalogue(profile()).rows_bucket(Stage.FRAME, 129)


def test_no_width_bucket_is_none():
    """So admission can refuse."""
    catalogue = Catalogue(profile())

    assert (None, 32) == (
        catalogue.width_bucket(Stage.PREFILL, 257),
        catalogue.width_bucket(Stage.PREFILL, 17),
    )


def test_the_largest_codec_batch_depends_on_its_width():
    """48 rows x codec frames: twelve rows of four, three of sixteen, one of 25."""
    catalogue = Catalogue(profile())

    assert [12, 3, 1] == [catalogue.max_rows(Stage.CODEC, width) for width in (4, 16, 25)]


@pytest.mark.parametrize("name", profile_names())
def test_no_codec_shape_is_captured_that_no_call_can_have(name):
    """Recording takes time and memory; `fill.codec_work` bounds every call, and one row is always
    possible."""
    chosen = load_profile(name)
    catalogue = Catalogue(chosen)
    codec = [shape for shape in catalogue.shapes if shape.stage is Stage.CODEC]

    for shape in codec:
        most = max(1, chosen.fill.codec_work // shape.width)
        most = min(most, catalogue.max_rows(Stage.CODEC, shape.width))
        sizes = {catalogue.rows_bucket(Stage.CODEC, rows) for rows in range(1, most + 1)}
        assert shape.rows in sizes, shape
