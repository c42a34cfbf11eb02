"""The folder says everywhere that it is under another licence than the rest."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).resolve().parents[3] / "engines" / "embedded"


def test_every_source_file_names_its_licence():
    """The first line of each is the SPDX tag."""
    tag = "# SPDX-License-Identifier: GPL-3.0-or-later"
    untagged = [
        path.name
        for path in FOLDER.glob("*.py")
        if path.read_text(encoding="utf-8").splitlines()[0] != tag
    ]

    assert [] == untagged


def test_the_whole_licence_text_is_in_the_folder():
    """The notice is the text itself, beginning to end."""
    text = (FOLDER / "LICENSE").read_text(encoding="utf-8")

    assert text.strip().startswith("GNU GENERAL PUBLIC LICENSE\n                       Version 3")
    assert "END OF TERMS AND CONDITIONS" in text


def test_no_sound_of_the_voice_is_in_the_folder():
    """The voice's data licence is unclear, so none of its audio is kept here."""
    kinds = {path.suffix for path in FOLDER.rglob("*") if path.is_file()}

    assert kinds <= {".py", ".pyc", ".md", "", ".typed"}
