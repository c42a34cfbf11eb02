"""Fused kernels equal their twins: run in a process that interprets Triton on the CPU."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FOLDER = Path(__file__).with_name("interpreted")


@pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed on this platform"
)
@pytest.mark.timeout(300)
def test_fused_kernels_equal_their_twins_under_the_interpreter():
    """The tests of `interpreted/` pass in a process where TRITON_INTERPRET is set before import."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(FOLDER)],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )

    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    assert " passed" in done.stdout
