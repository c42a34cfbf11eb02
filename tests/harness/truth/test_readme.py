"""What the README shows works."""

from __future__ import annotations

import re
from pathlib import Path

from typer.testing import CliRunner

from harness.cli.main import app
from harness.truth.book import load_scripts

README = (Path(__file__).resolve().parents[3] / "harness/truth/README.md").read_text()


def test_script_of_the_readme_can_be_loaded(tmp_path: Path):
    """As it stands there."""
    [text] = re.findall(r"```yaml\n(.*?)```", README, flags=re.DOTALL)
    path = tmp_path / "scripts.yaml"
    path.write_text(text)

    assert ["late-start"] == list(load_scripts(path))


def test_options_of_the_readme_exist():
    """Every one that is named after `earwitness accuracy` or `earwitness serve truth`."""
    for command in (["accuracy"], ["serve", "truth"]):
        said = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "200"}).stdout
        lines = re.findall(rf"^earwitness {' '.join(command)}(.*)$", README, flags=re.MULTILINE)
        options = set(re.findall(r"--[a-z-]+", " ".join(lines)))

        assert lines
        assert set() == {option for option in options if option not in said}


def test_every_module_is_in_the_reading_order():
    """So that nobody has to guess where to begin."""
    folder = Path(__file__).resolve().parents[3] / "harness/truth"
    names = {path.name for path in folder.glob("*.py")} - {"__init__.py", "__main__.py"}

    assert set() == {name for name in names - {"certificate.py"} if f"`{name}`" not in README}
