"""Small servers that speak the bundled voice's contract, for whole runs of less than a second."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from engines.fake import tone
from tests.builders.runs import scenario_data
from tests.builders.servers import Reply, Request, chunked, ok

__all__ = ["SPOKEN", "short_run", "short_run_file", "voice"]

# 60 ms of silence, then 140 ms of a tone.
SPOKEN = tone(140, sample_rate_hz=22_050, lead_ms=60)
_PIECES = [SPOKEN[:2_000], SPOKEN[2_000:]]
_MODELS = {"data": [{"id": "piper-joe", "owned_by": "earwitness"}]}


def voice(
    speak: Callable[[Request], Reply] | None = None,
    *,
    models: Any = _MODELS,
    ready_status: int = 200,
) -> Callable[[Request], Reply]:
    """A script: probe calls are answered as the bundled voice does, speech by `speak`."""

    def script(request: Request) -> Reply:
        if request.method == "POST":
            return speak(request) if speak else _well(request)
        body = json.dumps(models if request.path == "/v1/models" else {"status": "ok"}).encode()
        status = ready_status if request.path == "/ready" else 200
        return ok(body, status=status, content_type="application/json")

    return script


def _well(_request: Request) -> Reply:
    return chunked(_PIECES, x_sample_rate=22_050)


def short_run(base_url: str, **sections: Any) -> dict[str, Any]:
    """A scenario of one point: 8 requests in 0.4 s, and none before them."""
    data = scenario_data(
        name="short",
        engines=[{"contract": "earwitness-piper", "base_url": base_url}],
        arrivals={"process": "constant", "rates_rps": [20.0], "seeds": [1]},
        phases={"warmup_s": 0.1, "measure_s": 0.3, "drain_s": 1.0},
        prompts={"set": "voice-agent", "tags": ["wer", "short"]},
        timeouts={"ready_s": 10.0, "total_s": 5.0},
        preflight=False,
    )
    return {**data, **sections}


def short_run_file(tmp_path: Path, base_url: str, **sections: Any) -> Path:
    """The same as a file."""
    path = tmp_path / "short.yaml"
    path.write_text(yaml.safe_dump(short_run(base_url, **sections)))
    return path
