"""Runs the official qwen-tts package and writes down what it does.

Started by the oracle fixtures with the Python of `.venv-oracle`, never imported: the package pins
versions that clash with ours. Reads a job (JSON), writes arrays (npz).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch
from transformers import (
    LogitsProcessorList,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from reference_engine.official.loading import GREEDY, generate_codes, load_official


class Trace:
    """Records the scores behind every code of one generation."""

    def __init__(self, model) -> None:
        self.talker: list[torch.Tensor] = []
        self.predictor: list[torch.Tensor] = []
        talker = model.model.talker
        self._hooks = [talker.codec_head.register_forward_hook(self._on_talker)]
        self._hooks += [
            head.register_forward_hook(self._on_predictor) for head in talker.code_predictor.lm_head
        ]

    def _on_talker(self, module, inputs, output) -> None:
        self.talker.append(output[0, -1].float())

    def _on_predictor(self, module, inputs, output) -> None:
        self.predictor.append(output[0, -1].float())

    def close(self, num_frames: int) -> tuple[np.ndarray, np.ndarray]:
        """Talker scores [frames + 1 or frames, V] and predictor scores [frames, 15, V]."""
        for hook in self._hooks:
            hook.remove()
        predictor = torch.stack(self.predictor)[: num_frames * 15]
        return torch.stack(self.talker).numpy(), predictor.view(num_frames, 15, -1).numpy()


def run_requests(model, requests: list[dict], out: dict) -> None:
    for request in requests:
        key = request["key"]
        text = model._build_assistant_text(request["text"])
        out[f"{key}/ids"] = model._tokenize_texts([text])[0][0].numpy()
        trace = Trace(model) if request["trace"] else None
        (codes,) = generate_codes(
            model,
            text=request["text"],
            speaker=request["speaker"],
            language=request["language"],
            instruct=request["instruct"],
            non_streaming_mode=request["layout"] == "whole",
            max_new_tokens=request["max_new_tokens"],
            **GREEDY,
        )
        out[f"{key}/codes"] = codes.numpy()
        if trace is not None:
            out[f"{key}/talker"], out[f"{key}/predictor"] = trace.close(len(codes))


def run_codec(model, clips: list[dict], out: dict) -> None:
    """Decode with the decoder module itself: the wrapper cuts long clips and re-decodes them."""
    decoder = model.model.speech_tokenizer.model.decoder
    for clip in clips:
        codes = torch.from_numpy(np.load(clip["codes"]))  # [frames, 16]
        with torch.inference_mode():
            samples = decoder(codes.t()[None])[0, 0].float()
            shorter = decoder(codes[: len(codes) * 2 // 3].t()[None])[0, 0].float()
        out[f"{clip['key']}/samples"] = samples.numpy()
        # The rounding floor of this net: the official decoder against itself at two lengths.
        floor = (samples[: len(shorter)] - shorter).abs().max()
        out[f"{clip['key']}/floor"] = floor.numpy()


def run_warpers(cases: list[dict], out: dict) -> None:
    """Probabilities after transformers' own processors, in the order of its generate()."""
    for case in cases:
        arrays = np.load(case["arrays"])
        processors = LogitsProcessorList(
            [RepetitionPenaltyLogitsProcessor(case["penalty"])] if case["penalty"] != 1 else []
        )
        processors.append(TemperatureLogitsWarper(case["temperature"]))
        if case["top_k"]:
            processors.append(TopKLogitsWarper(case["top_k"]))
        if case["top_p"] < 1:
            processors.append(TopPLogitsWarper(case["top_p"]))
        scores = processors(torch.from_numpy(arrays["history"]), torch.from_numpy(arrays["scores"]))
        out[f"{case['key']}/probabilities"] = scores.softmax(-1).numpy()


def main(job_path: str, out_path: str) -> None:
    torch.set_num_threads(1)
    job = json.loads(Path(job_path).read_text())
    out: dict[str, np.ndarray] = {}
    for checkpoint in job["checkpoints"]:
        model = load_official(checkpoint["folder"], **checkpoint["how"])
        found: dict[str, np.ndarray] = {}
        run_requests(model, checkpoint["requests"], found)
        run_codec(model, checkpoint["clips"], found)
        out |= {f"{checkpoint['prefix']}{key}": value for key, value in found.items()}
    run_warpers(job["warpers"], out)
    np.savez(out_path, **out)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
