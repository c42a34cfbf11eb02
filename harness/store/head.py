"""What run.json must look like to be a run's head: types, down to the parts kept as mappings.

Strict where a wrong type would surface far from the file; keys that are not listed here may hold
anything, and any key may be absent, since versions and systems differ in what they can say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from harness.records import RunRecord, StampSource

__all__ = ["parse_head"]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")


class _Summary(_Part):
    n: int = 0
    p50: float | None = None
    p99: float | None = None
    max: float | None = None


class _Stall(_Part):
    end_ns: int
    length_ms: float
    cause: str


class _Step(_Part):
    after_ns: int
    detected_ns: int


class _SizedStep(_Step):
    size_ms: float


class _Cpu(_Part):
    process: float | None = None
    loop_thread: float | None = None
    run_delay: float | None = None
    steal: float | None = None
    threads: dict[str, float] = {}


class _Collector(_Part):
    num: int = 0
    total_ms: float = 0.0
    max_ms: float = 0.0


class _Reads(_Part):
    num: int = 0
    bytes: int = 0
    kernel_stamps: int = 0
    user_stamps: int = 0


class _SelfCheck(_Part):
    loop_lag_ms: _Summary = _Summary()
    dispatch_lag_ms: _Summary = _Summary()
    self_delay_ms: _Summary = _Summary()
    stalls: list[_Stall] = []
    num_stalls: int = 0
    cpu: _Cpu = _Cpu()
    gc: _Collector = _Collector()
    wall_clock_steps: list[_SizedStep] = []
    stamp_source: StampSource = StampSource.USER
    max_in_flight: int = 0
    reads: _Reads = _Reads()
    coalesced: dict[str, int] = {}
    connections: dict[str, Any] = {}


class _Clock(_Part):
    anchor_utc: str | None = None
    offsets: list[tuple[int, int, int]] = []
    stamp_source: StampSource = StampSource.USER
    steps: list[_Step] = []
    earlier: list[dict[str, Any]] = []


class _Scenario(_Part):
    arrivals: dict[str, Any] | None = None
    prompts: dict[str, Any] | None = None
    text_pacing: dict[str, Any] | None = None
    recording: dict[str, Any] | None = None


class _Engine(_Part):
    name: str = ""
    contract: str = ""
    base_url: str | None = None
    params: dict[str, Any] = {}
    info: dict[str, Any] | None = None
    capabilities: dict[str, Any] = {}
    preflight: dict[str, Any] | None = None


class _Resume(_Part):
    command: list[str] = []


class _Point(_Part):
    selfcheck: _SelfCheck = _SelfCheck()


class _Parts(_Part):
    """The parts of a head that `RunRecord` keeps as mappings."""

    scenario: _Scenario = _Scenario()
    clock: _Clock = _Clock()
    engines: list[_Engine] = []
    points: list[_Point] = []
    resumes: list[_Resume] = []


def parse_head(content: bytes, data: Mapping[str, Any]) -> RunRecord:
    """The record that run.json holds.

    Args:
        content: the file.
        data: the same, as JSON.

    Raises:
        ValueError: in one line: an unknown key, one that is missing, or a value of another type.
    """
    unknown = sorted(set(data) - {field.name for field in fields(RunRecord)})
    if unknown:
        raise ValueError(f"unknown keys {', '.join(unknown)}")
    try:
        _Parts.model_validate_json(content)
        return TypeAdapter(RunRecord).validate_json(content, strict=True)
    except ValidationError as invalid:
        first = invalid.errors(include_url=False, include_input=False)[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
