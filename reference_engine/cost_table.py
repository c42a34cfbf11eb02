"""Cost tables: how long each stage takes on a named device, and how anybody knows.

Every table says what it is: a target (arithmetic), measured by others (published figures), or
measured here. What is drawn from tables of different kinds is never drawn alike.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from reference_engine.batch import NUM_STAGES, Batch, Shape, Stage, captured_stages
from reference_engine.clock import NS_PER_MS
from reference_engine.config import EosRead, Profile, read_mapping, validate_yaml
from reference_engine.errors import ProfileError

__all__ = ["COST_FOLDER", "CostKind", "CostTable", "StepCosts", "cost_names", "load_costs"]

COST_FOLDER = Path(__file__).parent / "costs"
_Ms = Annotated[float, Field(ge=0)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class CostKind(StrEnum):
    """Where the numbers come from."""

    TARGET = "target"
    MEASURED_BY_OTHERS = "measured_by_others"
    MEASURED = "measured"


class StageCost(_Strict):
    """`fixed_ms` a call, plus `per_row_ms` a row (prefill: a prompt token; codec: a codec frame of
    a row). Rows are those of the captured bucket: padding takes as long as work.
    """

    fixed_ms: _Ms
    per_row_ms: _Ms


class Launches(_Strict):
    """Kernels launched one by one when a stage is not captured."""

    talker: Annotated[int, Field(ge=0)]
    predictor: Annotated[int, Field(ge=0)]
    frame: Annotated[int, Field(ge=0)]
    codec: Annotated[int, Field(ge=0)]
    prefill: Annotated[int, Field(ge=0)]


class CostTable(_Strict):
    """Stage times of one device.

    host_gap_ms: between the end of a step and the launch of the next. delivery_ms: from the end of
    a codec step to the listener's socket. blocking_read_ms: added to a step whose end flags the
    host waits for. launch_us: of one kernel, where a stage is not captured.
    """

    label: str
    kind: CostKind
    source: str
    talker: StageCost
    predictor: StageCost
    frame: StageCost
    codec: StageCost
    prefill: StageCost
    host_gap_ms: _Ms
    delivery_ms: _Ms
    blocking_read_ms: _Ms
    launch_us: _Ms
    launches: Launches


def cost_names(folder: Path = COST_FOLDER) -> tuple[str, ...]:
    """Names of the tables that come with the engine."""
    return tuple(sorted(path.stem for path in folder.glob("*.yaml")))


def load_costs(name_or_path: str | Path, *, folder: Path = COST_FOLDER) -> CostTable:
    """Read a table by name or path.

    Raises:
        ProfileError: unknown name, or a wrong file.
    """
    name = str(name_or_path)
    path = Path(name) if name.endswith((".yaml", ".yml")) else folder / f"{name}.yaml"
    if not path.is_file():
        raise ProfileError(
            f"cost table {name!r} is neither a file nor one of {', '.join(cost_names(folder))}"
        )
    found = validate_yaml(
        CostTable, read_mapping(path, error=ProfileError), where=name, error=ProfileError
    )
    assert isinstance(found, CostTable)
    return found


class StepCosts:
    """A cost table under a profile: what each step takes, in ns.

    What is not captured pays for its launches: the device then waits for the host, so the step
    takes the longer of the two.
    """

    def __init__(self, table: CostTable, profile: Profile) -> None:
        costs = {
            Stage.PREFILL: table.prefill,
            Stage.TALKER: table.talker,
            Stage.PREDICTOR: table.predictor,
            Stage.FRAME: table.frame,
            Stage.CODEC: table.codec,
        }
        self._fixed_ns = [int(costs[Stage(i)].fixed_ms * NS_PER_MS) for i in range(NUM_STAGES)]
        self._row_ns = [costs[Stage(i)].per_row_ms * NS_PER_MS for i in range(NUM_STAGES)]
        self._launch_ns = [0] * NUM_STAGES
        captured = captured_stages(profile.capture)
        for stage in Stage:
            if stage not in captured:
                launches = getattr(table.launches, stage.name.lower())
                self._launch_ns[stage] = int(launches * table.launch_us * 1000)
        is_blocking = profile.eos_read is EosRead.BLOCKING
        self._read_ns = int(table.blocking_read_ms * NS_PER_MS) if is_blocking else 0
        self.host_gap_ns = int(table.host_gap_ms * NS_PER_MS)
        self.delivery_ns = int(table.delivery_ms * NS_PER_MS)

    def shape_ns(self, shape: Shape) -> int:
        """One call at a shape."""
        return self.call_ns(shape.stage, shape.rows * shape.width)

    def call_ns(self, stage: Stage, num_rows: int) -> int:
        """One call with so many rows (prefill: rows x tokens; codec: rows x codec frames)."""
        device_ns = self._fixed_ns[stage] + int(self._row_ns[stage] * num_rows)
        return max(device_ns, self._launch_ns[stage])

    def step_ns(self, batch: Batch, *, wants_flags: bool) -> int:
        """One step of the loop, the gap before it included."""
        read_ns = self._read_ns if wants_flags else 0
        return self.host_gap_ns + self.shape_ns(batch.shape) + read_ns
