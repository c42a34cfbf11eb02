"""Numbers that `engine-bench` cannot serve are refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.cli.engine_bench_command import BenchRequest, run_bench
from harness.errors import RunFolderError, ScenarioError


@pytest.mark.parametrize("streams", ["0", "-1", "99999999999999", "1,64,99999"])
def test_number_of_streams_has_bounds(streams: str):
    """No turn is timed over nothing, or over more than memory holds."""
    with pytest.raises(ScenarioError, match=r"--streams: found .* expected numbers between 1 and"):
        run_bench(BenchRequest(profile="ttfa", streams=streams, num_turns=1))


def test_interpreter_that_is_not_there_is_named(tmp_path: Path):
    """The race says what is missing and how to build it."""
    request = BenchRequest(
        profile="ttfa", streams="1", num_turns=1, official_python=tmp_path / "python"
    )

    with pytest.raises(ScenarioError, match=r"--official-python: .* is not a file; `make oracle`"):
        run_bench(request)


def test_a_cost_table_that_could_not_be_written_is_refused_before_anything_is_timed(
    tmp_path: Path,
):
    """The file is there already, or its place is below a file; no turn is timed."""
    (tmp_path / "costs.yaml").write_text("")
    for place, words in (("costs.yaml", "exists already"), ("costs.yaml/x", "is not a directory")):
        request = BenchRequest(
            profile="no such profile",
            streams="1",
            num_turns=1,
            shape="tiny",
            costs_out=tmp_path / place,
        )
        with pytest.raises(RunFolderError, match=words):
            run_bench(request)
