"""One trial: the truth server in a process of its own, and an ordinary run against it.

The client's side is the normal path and nothing else: scenario, dispatcher, recorder, store. Only
what a trial adds is here: who serves, on which core, and where its log is.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from harness.child import start_child
from harness.clock import RunClock
from harness.environment import Environment
from harness.loop import run as run_on_loop
from harness.plan import plan_run
from harness.runner import RunResult, run_scenario
from harness.scenario import Scenario, parse_scenario
from harness.truth.book import save_scripts
from harness.truth.certificate import write_certificate
from harness.truth.log import TruthLog, read_log
from harness.truth.script import Container, Script

__all__ = [
    "CONTRACT",
    "Cores",
    "Transport",
    "Trial",
    "TrialSettings",
    "cores",
    "run_trial",
    "trial_scenario",
]

CONTRACT = Path(__file__).with_name("contract.yaml")
_READY_S = 20.0


class Transport(StrEnum):
    """How replies travel."""

    HTTP = "http"  # chunked
    HTTPS = "https"  # the same over TLS
    SSE = "sse"  # base64 in server-sent events
    WS = "ws"  # WebSocket, binary messages
    WSS = "wss"

    @property
    def is_sealed(self) -> bool:
        """Whether bytes are encrypted."""
        return self in (Transport.HTTPS, Transport.WSS)

    @property
    def engine(self) -> dict[str, Any]:
        """Which adapter speaks it, as an engine of a scenario."""
        if self in (Transport.WS, Transport.WSS):
            return {"contract": "deepgram-ws"}
        params = {"stream_format": "sse"} if self is Transport.SSE else {}
        return {"contract": str(CONTRACT), "params": params}

    def can_carry(self, script: Script) -> bool:
        """Whether a script makes sense over it: only plain bodies carry a container."""
        has_types = self in (Transport.HTTP, Transport.HTTPS)
        return has_types or script.container is Container.RAW


@dataclass(frozen=True, slots=True)
class Cores:
    """Where the two processes run; None: wherever the system puts them."""

    client: int | None
    server: int | None


@dataclass(frozen=True, slots=True)
class TrialSettings:
    """One point: how many replies of `reply_s` are in flight on average, for how long.

    shares: how often each script occurs; those that are not named occur once.
    is_kernel_stamped: False forces user stamps.
    """

    transport: Transport
    streams: int
    measure_s: float
    warmup_s: float = 3.0
    reply_s: float = 2.0
    seed: int = 1
    shares: Mapping[str, int] = field(default_factory=dict)
    is_kernel_stamped: bool = True

    @property
    def rate_rps(self) -> float:
        """Arrivals a second that keep `streams` replies in flight."""
        return self.streams / self.reply_s


@dataclass(frozen=True, slots=True)
class Trial:
    """What a trial left: a run folder, and the truth beside it."""

    result: RunResult
    log: TruthLog


def cores() -> Cores:
    """The first core for the client, the last for the server; neither where there is one only."""
    if not hasattr(os, "sched_getaffinity"):
        return Cores(None, None)
    usable = sorted(os.sched_getaffinity(0))
    return Cores(usable[0], usable[-1]) if len(usable) > 1 else Cores(None, None)


def run_trial(
    settings: TrialSettings,
    scripts: Mapping[str, Script],
    folder: Path,
    *,
    environment: Environment,
    placed: Cores,
) -> Trial:
    """Serve the scripts, run the load, stop the server, read its log.

    Args:
        scripts: drawn from in shuffled rounds, by their shares.
        folder: becomes `run` (the run folder), `truth.json` (the log) and what both need; must
            exist.
        environment: stored with the run.
        placed: cores of the two sides.

    Raises:
        MissingExtraError: TLS without the package that makes certificates.
        HarnessError: whatever a run can end with.
    """
    book, log_path = folder / "scripts.json", folder / "truth.json"
    save_scripts(scripts, book)
    files = write_certificate(folder) if settings.transport.is_sealed else None
    argv = [
        sys.executable, "-P", "-m", "harness.truth", "--port=0", "--stop-on-stdin-eof",
        f"--scripts={book}", f"--log={log_path}",
    ]  # fmt: skip
    if files is not None:
        argv += [f"--cert={files.certificate}", f"--key={files.key}"]
    if placed.server is not None:
        argv.append(f"--cpu={placed.server}")
    with start_child(argv, name="truth server", ready_s=_READY_S, clock=RunClock()) as server:
        scenario = trial_scenario(
            settings,
            scripts,
            folder,
            base_url=server.base_url,
            ca_file=None if files is None else files.certificate,
        )
        with _on_core(placed.client):
            result = run_on_loop(
                run_scenario(
                    plan_run(scenario),
                    folder / "run",
                    environment=environment,
                    is_kernel_stamped=settings.is_kernel_stamped,
                )
            )
    return Trial(result, read_log(log_path))


def trial_scenario(
    settings: TrialSettings,
    scripts: Mapping[str, Script],
    folder: Path,
    *,
    base_url: str,
    ca_file: Path | None = None,
) -> Scenario:
    """The load of a trial as an ordinary scenario; writes its prompt set into `folder`.

    The prompts are the names of the scripts.
    """
    prompts = folder / "prompts.yaml"
    entries = [
        {"id": f"{name}.{turn}", "text": name}
        for name, script in scripts.items()
        if settings.transport.can_carry(script)
        for turn in range(settings.shares.get(name, 1))
    ]
    prompts.write_text(json.dumps({"prompts": entries}), encoding="utf-8")
    data: dict[str, Any] = {
        "schema": 1,
        "name": f"accuracy-{settings.transport.value}-{settings.streams}",
        "engines": [{"name": "truth", "base_url": base_url, **settings.transport.engine}],
        "arrivals": {
            "process": "poisson",
            "rates_rps": [settings.rate_rps],
            "seeds": [settings.seed],
        },
        "phases": {
            "warmup_s": settings.warmup_s,
            "measure_s": settings.measure_s,
            "drain_s": 5.0,
        },
        "prompts": {"set": str(prompts)},
        # The server's log is to hold the requests of the run and no other.
        "preflight": False,
        "limits": {"max_in_flight": max(1_000, 4 * settings.streams)},
        # Every request finds an open connection: what is measured is the clock, not connecting.
        "connections": {"pool": 2 * settings.streams},
    }
    if ca_file is not None:
        data["connections"]["tls"] = {"ca_file": str(ca_file)}
    return parse_scenario(data, where="accuracy", base_dir=folder)


@contextlib.contextmanager
def _on_core(core: int | None) -> Iterator[None]:
    """Keep this process to one core for the time of a `with` block."""
    if core is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
