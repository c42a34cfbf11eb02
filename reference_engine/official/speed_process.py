"""Answers "generate so many codec frames at this batch size" with the official package.

`.venv-oracle/bin/python -m reference_engine.official.speed_process FOLDER`: one JSON object a line
on stdin, one JSON line back when it is done. The asker holds the watch.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch

from reference_engine.official.loading import GREEDY, generate_codes, load_official

# A control id that is always suppressed: with it as the end of speech, none ever comes.
_NEVER_DRAWN = 2151


def main(folder: str) -> None:
    """Serve until stdin closes."""
    torch.set_num_threads(1)
    # The package prints on stdout when it is imported.
    answers, sys.stdout = sys.stdout, sys.stderr
    model = load_official(folder)
    answers.write(json.dumps({"ready": True}) + "\n")
    answers.flush()
    for line in sys.stdin:
        answers.write(json.dumps(_generate(model, json.loads(line))) + "\n")
        answers.flush()


def _generate(model: Any, request: dict[str, Any]) -> dict[str, int]:
    """Generate for a batch of equal requests; returns the codec frames made."""
    batch = int(request["batch"])
    codes = generate_codes(
        model,
        text=[request["text"]] * batch,
        speaker=[request["speaker"]] * batch,
        language=["auto"] * batch,
        instruct=[""] * batch,
        non_streaming_mode=False,
        max_new_tokens=int(request["frames"]) + 1,
        eos_token_id=_NEVER_DRAWN,
        **({} if request["sampled"] else GREEDY),
    )
    return {"frames": sum(len(each) for each in codes)}


if __name__ == "__main__":
    main(sys.argv[1])
