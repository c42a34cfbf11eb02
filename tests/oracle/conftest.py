"""One run of the official package a session, shared by every comparison."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.builders import checkpoints
from tests.builders.checkpoints import Loaded, random_codes
from tests.oracle.spoken import LARGE, SMALL, SpokenRequest

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv-oracle" / "bin" / "python"
RUNNER = Path(__file__).with_name("official.py")
TIME_LIMIT_S = 360
# What the official package did in bf16, with the attention it takes when none is named.
ROUNDED = "bf16/"


@dataclass(frozen=True)
class Official:
    """What the official package did, and the checkpoints it did it with."""

    arrays: Mapping[str, np.ndarray]
    large: Loaded
    small: Loaded
    clips: Mapping[str, torch.Tensor]  # codes [frames, 16]
    warper_inputs: Mapping[str, np.ndarray]

    def loaded(self, request: SpokenRequest) -> Loaded:
        return self.small if request.key.startswith("small") else self.large

    def array(self, request: SpokenRequest, name: str, *, prefix: str = "") -> torch.Tensor:
        return torch.from_numpy(self.arrays[f"{prefix}{request.key}/{name}"])


@dataclass(frozen=True, slots=True)
class WarperCase:
    """Sampling settings whose kept set and shares are compared."""

    key: str
    penalty: float = 1.0
    temperature: float = 0.9
    top_k: int = 50
    top_p: float = 1.0


WARPERS = (
    WarperCase("default", penalty=1.05),
    WarperCase("hot", temperature=1.7, top_k=64),
    WarperCase("nucleus", top_p=0.8),
    WarperCase("nucleus-only", top_k=0, top_p=0.93),
    WarperCase("top-one", top_k=1),
    WarperCase("wide", top_k=1000, top_p=0.99, penalty=1.3),
    WarperCase("plain", temperature=1.0, top_k=0),
)


def run_official(job: Mapping[str, object], folder: Path) -> Mapping[str, np.ndarray]:
    """Run the official package on a job in its own interpreter, offline and on one thread."""
    job_path, out_path = folder / "job.json", folder / "out.npz"
    job_path.write_text(json.dumps(job))
    environment = os.environ | {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        [str(PYTHON), "-P", str(RUNNER), str(job_path), str(out_path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_S,
        check=False,
    )
    if done.returncode != 0:
        pytest.fail(f"the official package failed:\n{done.stderr[-2000:]}")
    with np.load(out_path) as stored:
        return dict(stored)


def require_oracle() -> None:
    """Skip, by name, where the official package is not installed."""
    if not PYTHON.exists():
        pytest.skip("official package absent: build .venv-oracle with `make oracle`")


def _checkpoint_job(
    loaded: Loaded,
    requests: Sequence[SpokenRequest],
    clips: Mapping[str, Path],
    *,
    prefix: str = "",
    **how: str,
) -> dict[str, object]:
    return {
        "folder": str(loaded.folder),
        "prefix": prefix,
        "how": how,
        "requests": [request.as_job() for request in requests],
        "clips": [{"key": key, "codes": str(path)} for key, path in clips.items()],
    }


@pytest.fixture(scope="session")
def official(tmp_path_factory: pytest.TempPathFactory) -> Official:
    """Everything the official package is asked for, in one subprocess."""
    require_oracle()
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("oracle")
    large = checkpoints.load(checkpoints.make(folder / "large", seed=11))
    small = checkpoints.load(checkpoints.make(folder / "small", shape="tiny-0.6b", seed=12))
    clips = {"clip": random_codes(64, seed=1)[0], "long-clip": random_codes(330, seed=2)[0]}
    paths = {key: folder / f"{key}.npy" for key in clips}
    for key, codes in clips.items():
        np.save(paths[key], codes.numpy())
    inputs = _warper_inputs()
    np.savez(folder / "warpers.npz", **inputs)
    job = {
        "checkpoints": [
            _checkpoint_job(large, LARGE, paths),
            _checkpoint_job(small, SMALL, {}),
            _checkpoint_job(
                large,
                [request for request in LARGE if request.trace],
                {"clip": paths["clip"]},
                prefix=ROUNDED,
                dtype="bfloat16",
                attention="sdpa",
            ),
        ],
        "warpers": [
            {
                "key": case.key,
                "penalty": case.penalty,
                "temperature": case.temperature,
                "top_k": case.top_k,
                "top_p": case.top_p,
                "arrays": str(folder / "warpers.npz"),
            }
            for case in WARPERS
        ],
    }
    arrays = run_official(job, folder)
    return Official(arrays, large, small, clips, inputs)


def _warper_inputs() -> dict[str, np.ndarray]:
    """Scores with ties and wide spread, and a history of codes drawn."""
    generator = np.random.default_rng(3)
    scores = generator.normal(scale=3.0, size=(4, 2048)).astype(np.float32)
    scores[0, 100:110] = scores[0].max() - 0.5  # ties near the top
    history = generator.integers(0, 2048, size=(4, 30))
    history[:, :5] = scores.argsort(-1)[:, -5:]
    return {"scores": scores, "history": history}
