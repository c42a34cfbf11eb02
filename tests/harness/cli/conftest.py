"""The command line as tests call it."""

from __future__ import annotations

import sys

import pytest

from harness.cli import main as command


@pytest.fixture
def earwitness(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """Runs a command line in this process: exit code, stdout, stderr."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["earwitness", *map(str, arguments)])
        code = 0
        try:
            command.main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run
