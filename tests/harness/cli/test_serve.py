"""Servers: what one could not be started with is refused before this process becomes it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["piper", "--port", "70000"], "--port"),
        (["reference", "--port", "-1"], "--port"),
        (["truth", "--cpu", "-1"], "--cpu"),
        (["truth", "--accept-delay-ms", "-1"], "--accept-delay-ms"),
        (["truth", "--key", "key.pem"], "--cert"),
        (["truth", "--log", "{folder}"], "--log"),
        (["truth", "--log", "{folder}/none/log.json"], "--log"),
    ],
)
def test_a_setting_no_server_can_have_is_exit_2(
    words: list[str], option: str, earwitness, tmp_path: Path
):
    """Named, and nothing is started."""
    code, _, err = earwitness("serve", *(word.format(folder=tmp_path) for word in words))

    assert 2 == code
    assert option in err


def test_a_log_that_could_not_be_written_at_the_end_is_refused_at_the_start(
    earwitness, tmp_path: Path
):
    """Its folder is a file: exit code 6."""
    (tmp_path / "file").write_text("")
    code, _, err = earwitness("serve", "truth", "--log", tmp_path / "file" / "log.json")

    assert (6, 1) == (code, err.count("\n"))


def test_a_recorded_run_is_served_by_the_process_that_this_one_becomes(
    earwitness, monkeypatch: pytest.MonkeyPatch
):
    """Same interpreter, no package of the user's folder, and a run that looks like an option."""
    became: list[list[str]] = []
    monkeypatch.setattr("os.execv", lambda _path, words: became.append(words))
    earwitness("serve", "replay", "--point", "p", "--port", "0", "--", "--run")

    expected = ["-P", "-m", "harness.replay", "--host=127.0.0.1", "--port=0", "--point=p", "--"]
    assert [[sys.executable, *expected, "--run"]] == became
