"""Runs scenarios in forked children and kills them: a process of its own, started by a test.

Reads lines `<scenario file> <folder> <milliseconds>` from standard input. For each it forks a run
and sends it SIGKILL so many milliseconds after its folder appeared, then prints the moment of the
kill on `time.perf_counter_ns` (which all processes of a machine share). Forked, because importing
everything again would take longer than the run.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
import traceback
from pathlib import Path

from harness.environment import Environment
from harness.loop import run
from harness.plan import plan_run
from harness.runner import run_scenario
from harness.scenario import load_scenario


def _load(scenario: str, folder: Path) -> None:
    plan = plan_run(load_scenario(scenario))
    run(run_scenario(plan, folder, environment=Environment()))


def _kill_after(pid: int, folder: Path, ms: float) -> int:
    while not (folder / "log" / "0-0.bin").exists():
        if os.waitpid(pid, os.WNOHANG)[0] == pid:
            sys.exit("the run ended before its folder appeared")
        time.sleep(0.002)
    time.sleep(ms / 1000)
    killed_ns = time.perf_counter_ns()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return killed_ns


def main() -> None:
    """Until standard input ends."""
    # Out of the collector's sight: a child then neither walks nor copies what was imported here.
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        scenario, folder, ms = line.split()
        pid = os.fork()
        if pid == 0:
            try:
                _load(scenario, Path(folder))
            except Exception:
                traceback.print_exc()
            finally:
                # Never back into the loop above, which belongs to the parent.
                os._exit(1)
        print(_kill_after(pid, Path(folder), float(ms)), flush=True)


if __name__ == "__main__":
    main()
