"""Scales, ticks and marks of the page's charts."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.report.scales import LinearScale, linear_scale, log_scale, tick_label
from analysis.report.svg import (
    Axis,
    Band,
    Chart,
    Dots,
    Line,
    Missing,
    Point,
    Rule,
    Stack,
    render_stack,
    render_svg,
)

FINITE = st.floats(-1e9, 1e9, allow_nan=False)


def chart(*marks, x=None, y=None, title="Title"):
    """A chart of some marks."""
    return Chart("id", title, "words", x or Axis("x"), y or Axis("y"), marks)


@given(st.lists(FINITE, min_size=1, max_size=20))
def test_linear_scale_holds_zero_and_every_value(values):
    """Nothing is cut off, and bars can start at zero."""
    scale = linear_scale(values, 0, 100)

    # An end may sit a rounding error inside: far less than a pixel.
    hair = 1e-8 * (scale.high - scale.low) + 1e-9
    assert scale.low <= min(0.0, *values) + hair
    assert scale.high >= max(0.0, *values) - hair
    assert scale.low < scale.high


@given(st.lists(st.floats(1e-6, 1e9), min_size=1, max_size=20))
def test_log_scale_labels_at_least_one_tick_of_a_sane_number(values):
    """However narrow or wide the data."""
    assert 1 <= len(log_scale(values, 0, 100).ticks()) <= 25


def test_ticks_are_round_and_inside():
    """0 to 437 in steps of a hundred."""
    scale = linear_scale([437.0], 0, 100)

    assert [0, 100, 200, 300, 400, 500] == scale.ticks()


def test_positions_grow_from_start_to_stop():
    """A value half way lies half way, also on a reversed axis."""
    assert 150 == LinearScale(0, 10, 200, 100)(5)


def test_log_position_of_zero_is_the_low_end():
    """There is no logarithm of it, and no crash either."""
    assert 0 == log_scale([1, 100], 0, 50)(0.0)


@pytest.mark.parametrize(
    ("value", "label"), [(0.5, "0.5"), (20, "20"), (15_000, "15k"), (2e6, "2M"), (0, "0")]
)
def test_tick_labels_are_short(value, label):
    """Room is scarce on an axis."""
    assert label == tick_label(value)


def test_chart_is_well_formed_and_named_for_screen_readers():
    """Title and description are wired to the picture."""
    marks = (
        Line((Point(1, 2, 1, 3), Point(2, 4, 3, None, True)), 1, "line"),
        Band((Point(1, 2, 1, 3), Point(2, 4, 3, 5)), 0),
        Dots((Point(1, 1),), 2),
        Missing((1.5,), 1, "not reached"),
        Rule(2.0, "limit"),
    )
    root = ET.fromstring(render_svg(chart(*marks)))

    assert ("img", "id-title id-desc") == (root.get("role"), root.get("aria-labelledby"))
    assert ["Title", "words"] == [root[0].text, root[1].text]


@pytest.mark.parametrize(
    "mark",
    [
        Line((Point(1, 2, 1, 3), Point(2, 4)), 7),
        Band((Point(1, 2, 1, 3), Point(2, 4, 3, 5)), 7),
        Dots((Point(1, 1),), 7),
        Missing((1.5,), 7),
    ],
    ids=lambda mark: type(mark).__name__,
)
def test_engine_beyond_the_palette_has_a_colour(mark):
    """The eighth of several runs takes the second one again."""
    drawn = render_svg(chart(mark))

    assert re.search(r'class="[^"]*\bs1"', drawn)
    assert "s7" not in drawn


def test_texts_of_a_chart_are_escaped():
    """Engine names come from files."""
    drawn = render_svg(chart(Missing((1,), 0, "<a&b>"), x=Axis("<x>"), title="<t>"))

    assert "<t>" not in drawn
    assert "&lt;a&amp;b&gt;" in drawn


def test_unreached_values_get_a_band_above_the_plot():
    """A cross at the top, with the words, and never a height that looks like a number."""
    root = ET.fromstring(
        render_svg(chart(Line((Point(1, 5),), 0), Missing((2,), 0, "not reached")))
    )
    texts = [node.text for node in root.iter() if node.tag.endswith("text")]

    assert "not reached" in texts
    assert any("missing" in node.get("class", "") for node in root.iter())


def test_simulated_pictures_carry_a_watermark():
    """And measured ones do not."""
    plain, marked = render_svg(chart()), render_svg(chart(), watermark="SIMULATED")

    assert (0, 1) == (plain.count("SIMULATED"), marked.count("SIMULATED"))


def test_chart_without_a_mark_still_has_axes():
    """An empty measurement is a picture, not a crash."""
    assert ET.fromstring(render_svg(chart())) is not None


def test_exact_axis_ends_where_it_says():
    """The same x axis under every picture of a page."""
    root = ET.fromstring(
        render_svg(
            chart(
                Line((Point(1, 1),), 0),
                x=Axis("x", is_exact=True, low=0, high=2, ticks=(0.5, 1.234)),
            )
        )
    )
    texts = [node.text for node in root.iter() if node.tag.endswith("text")]

    assert "1.23" in texts
    assert "2.5" not in texts


def test_parts_of_a_stack_lie_end_to_end():
    """Each part starts where the one before ended."""
    root = ET.fromstring(render_stack("s", "t", "d", Stack(("a",), ((10, 20, 30),), ("60 ms",))))
    rects = [node for node in root.iter() if node.tag.endswith("rect")]
    ends = [float(r.get("x")) + float(r.get("width")) for r in rects]

    assert ends[:-1] == pytest.approx([float(r.get("x")) for r in rects[1:]], abs=0.2)


def test_numbers_in_a_chart_are_finite():
    """No NaN or infinity can reach a coordinate."""
    drawn = render_svg(chart(Line((Point(0, 0),), 0), Dots((Point(0, math.pi),), 0)))

    assert not re.search(r"\b(nan|inf)\b", drawn)


def test_not_reached_looks_like_no_engine():
    """A third engine's triangle would be taken for a failure."""
    axis = Axis("x")
    lines = [Line((Point(1, 1),), series) for series in range(6)]
    drawn = [
        re.sub(r"[\d.]+", "", path)
        for mark in (*lines, Missing((1.0,), 0))
        for path in re.findall(
            r'class="(?:mark|missing s0)" d="([^"]+)"',
            render_svg(Chart("c", "t", "d", axis, axis, (*lines[:1], mark))),
        )[-1:]
    ]

    assert 7 == len(set(drawn))
