"""Facts about the machine, as far as it tells them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.environment import describe_environment, run_command


def _commands(**outputs: str):
    def run(argv: Sequence[str]) -> str | None:
        words = " ".join(argv)
        return next((text for key, text in outputs.items() if key.replace("_", "-") in words), None)

    return run


def _proc(tmp_path: Path) -> Path:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Tiny CPU @ 1 GHz\n")
    (tmp_path / "meminfo").write_text("MemTotal:       2048 kB\n")
    return tmp_path


def test_cpu_and_memory_are_read_from_the_system(tmp_path: Path):
    """Model name as it stands, memory in bytes."""
    found = describe_environment(run=_commands(), proc=_proc(tmp_path)).machine

    assert ("Tiny CPU @ 1 GHz", 2048 * 1024) == (found["cpu"], found["memory_bytes"])


def test_what_the_system_does_not_say_is_null(tmp_path: Path):
    """No guess, no zero."""
    found = describe_environment(run=_commands(), proc=tmp_path).machine

    assert (None, None, []) == (found["cpu"], found["memory_bytes"], found["gpus"])


def test_graphics_cards_are_listed(tmp_path: Path):
    """One mapping a card, in the words of its driver."""
    run = _commands(query_gpu="H200, 570.1, 143771 MiB, 700 W, 1980 MHz\n")
    [card] = describe_environment(run=run, proc=tmp_path).machine["gpus"]

    assert ("H200", "570.1") == (card["name"], card["driver_version"])


def test_a_changed_source_tree_is_dirty(tmp_path: Path):
    """The commit, and whether files differ from it."""
    (tmp_path / "pyproject.toml").write_text("")
    run = _commands(rev_parse="abc123\n", status=" M harness/x.py\n")

    assert {"commit": "abc123", "is_dirty": True} == describe_environment(
        run=run, proc=tmp_path, root=tmp_path
    ).revision


def test_an_installed_package_has_no_revision(tmp_path: Path):
    """Whatever repository it happens to lie in is not its own."""
    run = _commands(rev_parse="abc123\n", status="")

    assert {} == describe_environment(run=run, proc=tmp_path, root=tmp_path).revision


def test_a_command_that_is_missing_or_fails_says_nothing():
    """Neither is an error."""
    assert (None, None) == (run_command(["no-such-command-here"]), run_command(["false"]))


def test_versions_name_this_program():
    """The least a reader needs to repeat a run."""
    assert {"earwitness", "python", "numpy"} <= set(describe_environment().versions)
