"""The README tells the truth: commands exist, links lead somewhere, pictures are there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

from harness.cli.main import app

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("engines", "harness", "analysis", "reference_engine")
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = sorted(
    page
    for page in [*ROOT.glob("*.md"), *ROOT.glob("*/README.md"), ROOT / "analysis" / "METRICS.md"]
    if page.exists()
)


def commands() -> list[str]:
    """Every command line in a shell block, without its comment."""
    blocks = re.findall(r"```sh\n(.*?)```", README, flags=re.DOTALL)
    lines = (line.split("  #")[0].strip() for block in blocks for line in block.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


EARWITNESS = [line for line in commands() if line.startswith("earwitness ")]
MAKE = [line for line in commands() if line.startswith("make ")]


def _parse(line: str) -> None:
    """Take a command line apart as the program would, without running it."""
    words = shlex.split(line)[1:]
    group = typer.main.get_command(app)
    context = group.make_context("earwitness", list(words), resilient_parsing=False)
    arguments = [*context._protected_args, *context.args]
    while hasattr(group, "resolve_command"):
        name, command, arguments = group.resolve_command(context, arguments)
        context = command.make_context(name, list(arguments), parent=context)
        arguments = [*context._protected_args, *context.args]
        group = command


@pytest.mark.parametrize("line", EARWITNESS)
def test_command_of_the_readme_is_understood(line: str):
    """No unknown command, option or value."""
    _parse(line)


def test_a_wrong_option_would_be_noticed():
    """The check above can fail."""
    with pytest.raises(Exception, match="No such option"):
        _parse("earwitness engines --no-such-option")


@pytest.mark.parametrize("line", MAKE)
def test_make_target_of_the_readme_exists(line: str):
    """Each target stands in the Makefile."""
    target = line.split()[1]

    assert re.search(rf"^{re.escape(target)}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_the_two_setup_commands_come_first():
    """A newcomer meets `make demo`, then `make test`, before anything else."""
    assert ["make demo", "make test"] == commands()[:2]


def test_the_environment_is_entered_before_the_first_command_of_the_program():
    """`make` puts the program into .venv, where no shell looks by itself."""
    assert ". .venv/bin/activate" == commands()[2]
    assert commands()[3].startswith("earwitness ")


@pytest.mark.parametrize("command", ["capacity", "view"])
def test_a_command_that_reads_finished_runs_is_on_the_first_page(command: str):
    """Nobody finds what no page names."""
    assert f"`earwitness {command}" in README or f"\nearwitness {command}" in README


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path):
    """Every relative link and picture of a page is a file of the project."""
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]

    assert [] == missing


def test_nobody_is_told_to_install_from_a_package_index():
    """earwitness is on none: its bare name would fetch nothing, or somebody else's package."""
    told = [
        file.relative_to(ROOT).as_posix()
        for file in [ROOT / "README.md", *(f for room in ROOMS for f in (ROOT / room).rglob("*"))]
        if file.suffix in (".md", ".py")
        and re.search(r"pip install ['\"]?earwitness", file.read_text(encoding="utf-8"))
    ]

    assert [] == told
