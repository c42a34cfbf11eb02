"""Profiles: one frozen configuration per engine, from small YAML files that extend each other.

A profile says what is scheduled how; the checkpoint says what is computed. Unknown keys are
errors. The resolved profile and its hash are printed at start and served, so that a figure can be
traced to the settings behind it.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from reference_engine.errors import ProfileError

__all__ = [
    "PROFILE_FOLDER",
    "AdaptiveChunks",
    "Batching",
    "Buckets",
    "Capture",
    "Chunks",
    "CodecMode",
    "EosRead",
    "Fill",
    "FixedChunks",
    "Fp32Math",
    "Guards",
    "LeadingSilence",
    "Pacing",
    "PolicyName",
    "Profile",
    "Reserve",
    "Sampler",
    "Stages",
    "load_profile",
    "profile_names",
    "read_mapping",
    "validate_yaml",
]

PROFILE_FOLDER = Path(__file__).parent / "profiles"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Stages(StrEnum):
    """Whether a codec frame is one captured stage or two that can be scheduled apart."""

    SPLIT = "split"  # talker, then predictor
    FUSED = "fused"


class Batching(StrEnum):
    """Whether requests share steps at all."""

    SEQUENTIAL = "sequential"  # one request from start to end, then the next
    CONTINUOUS = "continuous"


class PolicyName(StrEnum):
    """The policies of `reference_engine.scheduler.policies`."""

    DEADLINE_AWARE = "deadline_aware"
    ROUND_ROBIN = "round_robin"
    FCFS = "fcfs"


class Capture(StrEnum):
    """Which stages run as captured graphs; the others run step by step ("eager")."""

    NONE = "none"
    PREDICTOR = "predictor"
    ALL = "all"


class EosRead(StrEnum):
    """When the host learns that a request has ended."""

    SIDE_STREAM = "side_stream"  # one step late, beside the next step
    BLOCKING = "blocking"  # at once, with the device waiting


class Sampler(StrEnum):
    """What requests may ask of the sampler, which is captured once for all of them."""

    CAPPED = "capped"  # greedy, or any top-k up to 64, with any top-p
    ANY = "any"  # any top-k and top-p; slower
    GREEDY = "greedy"  # greedy requests only


class CodecMode(StrEnum):
    """Whether the codec keeps its state between chunks."""

    CACHED = "cached"
    REDECODE = "redecode"  # the whole history again for every chunk


class Fp32Math(StrEnum):
    """How a GPU multiplies what is fp32: the codec, and whatever else was asked for in fp32."""

    EXACT = "exact"
    TF32 = "tf32"  # on tensor cores, which round what goes in to ten bits


class LeadingSilence(StrEnum):
    """What happens to the silence before the first sound."""

    KEEP = "keep"
    TRIM = "trim"


_Count = Annotated[int, Field(ge=1)]
_Ms = Annotated[float, Field(ge=0)]
_Sizes = Annotated[tuple[_Count, ...], Field(min_length=1, strict=False)]


class FixedChunks(_Strict):
    """Codec frames per chunk: the ramp, then its last entry for ever."""

    mode: Literal["fixed"]
    ramp: _Sizes


class AdaptiveChunks(_Strict):
    """Chunk = what the slack and the measured step time allow, within growth and limits.

    first: codec frames of the first chunk (two where the first codec frame is silent).
    growth: a chunk is at most this many times the one before.
    max_frames: and never more than this.
    slack_share: share of the slack that making the chunk may use up.
    """

    mode: Literal["adaptive"]
    first: _Count
    growth: Annotated[float, Field(ge=1)]
    max_frames: _Count
    slack_share: Annotated[float, Field(gt=0, le=1)]


Chunks = Annotated[FixedChunks | AdaptiveChunks, Field(discriminator="mode")]


class Buckets(_Strict):
    """Sizes that are captured. A batch is padded up to the next one, never run at another.

    frame_rows: of the frame, talker and predictor stages.
    prefill_rows, prefill_tokens: of the prefill stage.
    codec_rows, codec_frames: of the codec stage.
    max_codec_work: rows x frames of the largest codec bucket that is captured.
    """

    frame_rows: _Sizes
    prefill_rows: _Sizes
    prefill_tokens: _Sizes
    codec_rows: _Sizes
    codec_frames: _Sizes
    max_codec_work: _Count

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        for name in ("frame_rows", "prefill_rows", "prefill_tokens", "codec_rows", "codec_frames"):
            sizes = getattr(self, name)
            if list(sizes) != sorted(set(sizes)):
                raise ValueError(f"{name}: {list(sizes)} must rise strictly")
        if self.max_codec_work < self.codec_rows[0] * self.codec_frames[-1]:
            raise ValueError(
                f"max_codec_work: {self.max_codec_work} leaves no bucket for one row of"
                f" {self.codec_frames[-1]} codec frames"
            )
        return self


class Pacing(_Strict):
    """How far ahead of its listener a stream is made, and when that work starts.

    max_lead_s: no stream is made further ahead than this.
    start_slack_ms: work that nothing presses starts when a stream's slack falls below this; until
        then the device rests, so that a newcomer finds it free.
    margin_ms: a chunk is due this much before its listener runs dry.
    """

    max_lead_s: Annotated[float, Field(gt=0)]
    start_slack_ms: _Ms
    margin_ms: _Ms


class Fill(_Strict):
    """How much compatible work of others an anchor takes along.

    startup_rows: rows of a step that somebody's first sound waits for.
    startup_slack_ms: and only streams whose slack is below this.
    codec_work: rows x frames of one codec call.
    rescues_in_a_row: after so many, a waiting newcomer gets one turn.
    """

    startup_rows: _Count
    startup_slack_ms: _Ms
    codec_work: _Count
    rescues_in_a_row: _Count


class Reserve(_Strict):
    """Time kept free for work that is to come: the running percentile of measured step times.

    initial_ms: until something is measured. window: steps remembered per stage.
    """

    percentile: Annotated[float, Field(gt=0, le=100)]
    window: Annotated[int, Field(ge=4)]
    initial_ms: _Ms


class Guards(_Strict):
    """When a request is a runaway: reported as `length`, never as success.

    A request may make `min_frames` plus `frames_per_character` codec frames for each character,
    and never more than its own `max_new_tokens` or its slot has room for. One whose sound has
    given way to silence for more than `max_silence_s` has lost its text and is ended too.
    """

    min_frames: _Count
    frames_per_character: Annotated[float, Field(gt=0)]
    max_silence_s: Annotated[float, Field(gt=0)]


class Profile(_Strict):
    """Everything that can be set about how the engine serves.

    slots: requests in progress. positions_per_slot: Talker positions a slot has room for.
    kv_budget_positions: positions promised to admitted requests, all together (null: all slots
        full). max_load: slots are filled only as far as the device can keep their streams fed, by
        its measured step times: the share of its time that they may need (null: all slots).
    max_waiting: requests queued for a slot before newcomers are refused. max_wait_s: once a
        newcomer's wait has been longer than this for `standing_queue_s`, none is let in that would
        wait longer, by how often a place comes free (null: any wait). A burst may queue; a queue
        that stands is overload.
    assume_silent_frames: with `trim`, cut exactly so many codec frames without listening (for
        random weights, whose noise has no onset). max_trim_ms: silence longer than this is let
        through. max_unread_bytes: audio a slow reader may leave unread before it is cancelled.
    """

    name: str
    stages: Stages
    batching: Batching
    policy: PolicyName
    capture: Capture
    eos_read: EosRead
    prefix_kv: bool
    codec: CodecMode
    fp32_math: Fp32Math
    sampler: Sampler
    leading_silence: LeadingSilence
    assume_silent_frames: Annotated[int, Field(ge=0)]
    max_trim_ms: _Ms
    slots: _Count
    positions_per_slot: Annotated[int, Field(ge=32)]
    kv_budget_positions: Annotated[int, Field(ge=32)] | None
    max_load: Annotated[float, Field(gt=0, le=1)] | None
    max_waiting: Annotated[int, Field(ge=0)]
    max_wait_s: Annotated[float, Field(ge=0)] | None
    standing_queue_s: Annotated[float, Field(ge=0)]
    max_unread_bytes: Annotated[int, Field(ge=4096)]
    chunks: Chunks
    buckets: Buckets
    pacing: Pacing
    fill: Fill
    reserve: Reserve
    guards: Guards

    @model_validator(mode="after")
    def _chunks_fit(self) -> Self:
        chunks = self.chunks
        largest = max(chunks.ramp) if isinstance(chunks, FixedChunks) else chunks.max_frames
        limit = self.buckets.codec_frames[-1]
        if largest > limit:
            raise ValueError(
                f"chunks: {largest} codec frames exceed the largest codec bucket ({limit});"
                " add a bucket or shorten the chunk"
            )
        return self

    def resolved(self) -> dict[str, Any]:
        """Every key with its value, as JSON can hold it."""
        return self.model_dump(mode="json")

    @cached_property
    def hash(self) -> str:
        """Twelve hex digits of the resolved settings; the name does not count."""
        settings = {key: value for key, value in self.resolved().items() if key != "name"}
        text = json.dumps(settings, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def profile_names(folder: Path = PROFILE_FOLDER) -> tuple[str, ...]:
    """Names of the profiles that come with the engine, `ladder/...` included."""
    return tuple(
        sorted(
            path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.yaml")
        )
    )


def load_profile(
    name_or_path: str | Path,
    *,
    overrides: Mapping[str, Any] | None = None,
    folder: Path = PROFILE_FOLDER,
) -> Profile:
    """Read a profile and everything it extends.

    Args:
        name_or_path: a name of `profile_names`, or a YAML file.
        overrides: nested keys laid over the file, e.g. from the command line.
        folder: where names are looked up.

    Raises:
        ProfileError: unknown name or key, a wrong value, or profiles that extend in a circle.
    """
    path = _find(str(name_or_path), folder)
    settings = _overlay(_read_chain(path, folder, ()), dict(overrides or {}))
    settings.setdefault("name", _name_of(path, folder))
    profile = validate_yaml(Profile, settings, where=str(name_or_path), error=ProfileError)
    assert isinstance(profile, Profile)
    return profile


def _name_of(path: Path, folder: Path) -> str:
    if path.is_relative_to(folder):
        return path.relative_to(folder).with_suffix("").as_posix()
    return path.stem


def _find(name: str, folder: Path) -> Path:
    if name.endswith((".yaml", ".yml")):
        return Path(name)
    path = folder / f"{name}.yaml"
    if not path.is_file():
        known = profile_names(folder)
        raise ProfileError(
            f"profile {name!r} is not one of {', '.join(known)}{_suggest(name, known)}"
        )
    return path


def _read_chain(path: Path, folder: Path, seen: tuple[Path, ...]) -> dict[str, Any]:
    """The file laid over what it extends, innermost first."""
    if path in seen:
        names = " -> ".join(_name_of(step, folder) for step in (*seen, path))
        raise ProfileError(f"{path}: extends in a circle: {names}")
    settings = read_mapping(path, error=ProfileError)
    parent = settings.pop("extends", None)
    if parent is None:
        return settings
    if not isinstance(parent, str):
        raise ProfileError(f"{path}: extends: {parent!r} is not the name of a profile")
    settings.setdefault("name", _name_of(path, folder))
    base = path.parent / parent if parent.endswith((".yaml", ".yml")) else _find(parent, folder)
    return _overlay(_read_chain(base, folder, (*seen, path)), settings)


def _overlay(base: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Mappings merge key by key; anything else replaces. A changed `mode` replaces the mapping."""
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        if isinstance(old, dict) and isinstance(value, Mapping):
            is_other_kind = "mode" in value and value["mode"] != old.get("mode")
            merged[key] = dict(value) if is_other_kind else _overlay(old, value)
        else:
            merged[key] = value
    return merged


def read_mapping(path: Path, *, error: type[Exception]) -> dict[str, Any]:
    """A YAML file that holds one mapping; anything else is one line of `error`."""
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as fault:
        raise error(f"{path}: cannot be read: {fault}") from None
    except yaml.YAMLError as fault:
        mark = getattr(fault, "problem_mark", None)
        line = f" line {mark.line + 1}:" if mark else ""
        raise error(f"{path}:{line} not valid YAML: {getattr(fault, 'problem', fault)}") from None
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise error(f"{path}: expected a mapping of keys")
    return found


def validate_yaml(
    model: type[BaseModel], settings: Mapping[str, Any], *, where: str, error: type[Exception]
) -> BaseModel:
    """Apply a schema; its first complaint becomes one line that names file, key and value."""
    try:
        # Through JSON, because YAML has lists and words where the schema has tuples and enums.
        return model.model_validate_json(json.dumps(settings))
    except ValidationError as fault:
        raise error(f"{where}: {_complaint(fault, model)}") from None
    except (TypeError, ValueError) as fault:
        raise error(f"{where}: holds a value that no setting can have: {fault}") from None


def _complaint(fault: ValidationError, model: type[BaseModel]) -> str:
    # A misspelt key is also a missing one; the line with the suggestion is the useful one.
    problems = sorted(fault.errors(include_url=False), key=lambda item: item["type"] == "missing")
    first = problems[0]
    path = ".".join(str(part) for part in first["loc"] if part not in {"fixed", "adaptive"})
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    if first["type"] == "extra_forbidden":
        known = sorted(_all_keys(model))
        return f"{path}: unknown key{_suggest(str(first['loc'][-1]), known)}{more}"
    if first["type"] == "missing":
        return f"{path}: missing, but required{more}"
    said = first["msg"].removeprefix("Value error, ").removeprefix("Input ")
    if first["type"] == "value_error":
        return f"{path}: {said}{more}" if path else f"{said}{more}"
    options = str(first.get("ctx", {}).get("expected", ""))
    words = [word.strip().strip("'") for word in options.replace(" or ", ", ").split(",")]
    return f"{path}: {first['input']!r} {said}{_suggest(str(first['input']), words)}{more}"


def _all_keys(model: type[BaseModel]) -> set[str]:
    """Every key of a schema and of the schemas inside it."""
    keys: set[str] = set()
    for name, info in model.model_fields.items():
        keys.add(name)
        for part in (info.annotation, *getattr(info.annotation, "__args__", ())):
            if isinstance(part, type) and issubclass(part, BaseModel):
                keys |= _all_keys(part)
    return keys


def _suggest(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, [name for name in known if name], n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
