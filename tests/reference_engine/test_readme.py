"""The engine's README: its tables are those of the stored study, its files and profiles exist."""

from __future__ import annotations

import re
from pathlib import Path

from harness.cli.simulate_study import Study
from harness.cli.study_tables import markdown
from reference_engine.config import profile_names

ROOM = Path(__file__).resolve().parents[2] / "reference_engine"
README = (ROOM / "README.md").read_text(encoding="utf-8")
STUDY = Study.from_text((ROOM / "figures" / "study.json").read_text(encoding="utf-8"))


def test_the_simulated_tables_are_those_of_the_stored_points():
    """No figure was typed by hand."""
    assert markdown(STUDY).strip() in README


def test_every_figure_is_shown_and_every_shown_figure_exists():
    """One cost table a picture."""
    shown = set(re.findall(r"\(figures/([\w.-]+\.svg)\)", README))

    assert {path.name for path in (ROOM / "figures").glob("*.svg")} == shown


def test_files_named_in_reading_orders_exist():
    """A newcomer finds what is listed."""
    chapters = re.findall(r"## Reading order.*?(?=\n## )", README, flags=re.DOTALL)
    named = {name for text in chapters for name in re.findall(r"`([\w/]+\.py)`", text)}

    assert len(chapters) >= 2
    missing = [n for n in named if not (ROOM / n).is_file() and not _beside_another(n, chapters)]
    assert [] == missing


def _beside_another(name: str, chapters: list[str]) -> bool:
    """`chunking.py` stands after `scheduler/scheduler.py` and means its folder."""
    return any(name in text and any(ROOM.rglob(name)) for text in chapters)


def test_every_profile_for_people_is_explained():
    """All but the base and the rungs, which share a line."""
    plain = [name for name in profile_names() if "/" not in name and name != "base"]

    assert [] == [name for name in plain if f"| `{name}` |" not in README]
