"""The example of analysis/README.md runs as printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from analysis.errors import RulesError
from analysis.slo import Slo, load_slo
from tests.builders.sweeps import gamma_engine, sweep

README = Path(__file__).resolve().parents[2] / "analysis" / "README.md"


def test_example_of_the_readme_runs(tmp_path, monkeypatch, capsys):
    """On a run at the place it names."""
    (tmp_path / "results").mkdir()
    sweep(tmp_path / "results", {"tts": gamma_engine(num_requests=12, gap_ms=600.0)}, name="mine")
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(example, str(README), "exec"), {})
    first, second = capsys.readouterr().out.splitlines()

    assert first.startswith("tts 2.0 {'value': ")
    assert "12.0" == second


def test_the_objective_of_the_readme_is_the_default(tmp_path):
    """The file can be loaded as printed, and its values are those of a key left out."""
    (example,) = re.findall(
        r"```yaml\n(schema: 1\naudible.*?)```", README.read_text(encoding="utf-8"), re.DOTALL
    )
    (tmp_path / "slo.yaml").write_text(example)

    assert Slo() == load_slo(tmp_path / "slo.yaml")


def test_an_objective_without_its_first_line_is_told_what_to_write(tmp_path):
    """The one key that has no default has but one value."""
    (tmp_path / "slo.yaml").write_text("audible_ttfa_p95_ms: 300\n")

    with pytest.raises(RulesError, match=r"schema: missing, but required; write `schema: 1`"):
        load_slo(tmp_path / "slo.yaml")


def test_every_file_is_in_the_reading_order():
    """A newcomer finds all of them."""
    text = README.read_text(encoding="utf-8")
    files = {path.name for path in README.parent.glob("*.py")} - {"__init__.py", "errors.py"}
    covered = {name for name in files if name.endswith("_words.py")}

    assert set() == {name for name in files - covered if name not in text}
