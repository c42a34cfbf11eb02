"""Word error rate of an engine or of some points, in the form that metrics.json and reports carry.

Every key is there even when nothing was scored: an unmeasured figure is null, with a reason.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pandas as pd

from analysis.speech.score import ClipStatus, ScoredRun
from analysis.speech.wer import BAD_CLIP_WER, wer_interval

__all__ = ["summarise_wer", "wer_not_measured", "wer_of_points"]


def wer_not_measured(reason: str) -> dict[str, Any]:
    """The null figure, with its reason."""
    return {"value": None, "n": 0, "status": "not_measured", "reason": reason}


def summarise_wer(scored: ScoredRun) -> dict[str, dict[str, Any]]:
    """One JSON-ready mapping for each engine that has a selected clip.

    `value` is corpus WER after normalisation over all scored clips, `raw` before it; `n` counts
    scored clips, `prompts` the different texts among them, `selected` drawn clips, `candidates`
    what they were drawn from.
    """
    drawn_from = scored.settings["num_candidates"]
    return {
        str(name): _summary(clips, scored.settings, candidates=drawn_from.get(name))
        for name, clips in scored.clips.groupby("engine", sort=True)
    }


def wer_of_points(scored: ScoredRun, point_ids: Collection[str]) -> dict[str, Any] | None:
    """The same over the clips of some points together, drawn from no list of their own.

    None where not one of them was selected.
    """
    clips = scored.clips[scored.clips["point_id"].isin(point_ids)]
    return None if clips.empty else _summary(clips, scored.settings, candidates=None)


def _summary(
    clips: pd.DataFrame, settings: Mapping[str, Any], *, candidates: int | None
) -> dict[str, Any]:
    heard = clips[clips["status"] == str(ClipStatus.SCORED)]
    seed = int(settings["seed"])
    common = {
        "n": len(heard),
        "selected": len(clips),
        "candidates": candidates,
        "not_scored": _counts(clips["status"], leave_out=ClipStatus.SCORED),
        "guards": _counts(heard["guard"], leave_out="none"),
        "unit": settings["unit"],
        "recogniser": _recogniser(settings["transcriber"]),
        "normaliser": settings["normaliser"],
    }
    if heard.empty:
        reasons = ", ".join(f"{count} {status}" for status, count in common["not_scored"].items())
        return wer_not_measured(f"no clip could be scored ({reasons})") | common
    edits = heard[["substitutions", "deletions", "insertions"]].sum(axis=1)
    return {
        **_rate(edits, heard["num_words"], heard["prompt_id"], seed),
        "reason": None,
        **common,
        "prompts": int(heard["prompt_id"].nunique()),
        "words": int(heard["num_words"].sum()),
        "raw": _raw(heard, seed),
        "mean_of_clips": float(heard["wer"].mean()),
        "max_of_clips": float(heard["wer"].max()),
        "bad_clip_share": float((heard["wer"] > BAD_CLIP_WER).mean()),
        "tail_deletion_share": float((heard["tail_deletions"] > 0).mean()),
        "loop_share": float((heard["loop_repeats"] > 0).mean()),
        "substitutions": int(heard["substitutions"].sum()),
        "deletions": int(heard["deletions"].sum()),
        "insertions": int(heard["insertions"].sum()),
    }


def _raw(heard: pd.DataFrame, seed: int) -> Any:
    """Before normalisation, over the clips whose text has words as it is written."""
    written = heard[heard["raw_num_words"].notna()]
    if written.empty:
        return {"value": None, "lo": None, "hi": None, "status": "not_measured"}
    return _rate(written["raw_edits"], written["raw_num_words"], written["prompt_id"], seed)


def _rate(edits: pd.Series, words: pd.Series, prompts: pd.Series, seed: int) -> Any:
    """Total edits over total words, with its interval."""
    edit_counts, word_counts = np.asarray(edits, np.int64), np.asarray(words, np.int64)
    interval = wer_interval(edit_counts, word_counts, prompts=prompts.tolist(), seed=seed)
    return {
        "value": float(edit_counts.sum() / word_counts.sum()),
        "lo": interval.lo,
        "hi": interval.hi,
        "status": interval.status,
    }


def _counts(values: pd.Series, *, leave_out: str) -> dict[str, int]:
    counted = values[values != str(leave_out)].value_counts()
    return {str(value): int(count) for value, count in counted.items()}


def _recogniser(info: dict[str, Any]) -> str:
    weights = info["weights_sha256"]
    digest = f", weights {weights[:12]}" if weights else ""
    return f"{info['name']} {info['version']} {info['model']}{digest}"
