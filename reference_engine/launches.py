"""How many kernels a step launches: what capture, and then fusing, takes off the host.

Counted from the operations that PyTorch dispatches, on any device. Views launch nothing. A fused
kernel is one launch (or what `LAUNCHES_EACH` says) whatever its twin does, so the count can be had
without a GPU. A matrix product is one, though a library may split it in two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from functools import partial
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from reference_engine.batch import Stage
from reference_engine.codec.decoder import CodecModel
from reference_engine.config import Profile
from reference_engine.graphs import CpuDriver
from reference_engine.kernels import FUSED_NAMES, LAUNCHES_EACH, REFERENCE_KERNELS, KernelSet
from reference_engine.model.tts_model import TtsModel
from reference_engine.model_runner import ModelRunner

__all__ = ["LaunchCounter", "count_launches", "fused_names"]

# They make or describe a tensor without running anything.
_NOT_LAUNCHED = frozenset(
    {
        "empty",
        "empty_like",
        "empty_strided",
        "new_empty",
        "_unsafe_view",
        "_reshape_alias",
        "detach",
    }
)


class LaunchCounter:
    """Counts what is launched inside `count`."""

    def __init__(self) -> None:
        self.num_launches = 0
        self._is_fused = False

    def wrap(self, kernels: KernelSet, fused: Iterable[str]) -> KernelSet:
        """The same kernels, those named counted as the fused ones launch."""
        changed = {
            name: partial(self._call, getattr(kernels, name), LAUNCHES_EACH.get(name, 1))
            for name in fused
        }
        return replace(kernels, **changed)

    def _call(self, kernel: Callable[..., Any], launches: int, *args: Any, **kwargs: Any) -> Any:
        for _ in range(launches):
            self._saw_launch()
        outer, self._is_fused = self._is_fused, True
        try:
            return kernel(*args, **kwargs)
        finally:
            self._is_fused = outer

    def _saw_launch(self) -> None:
        if not self._is_fused:
            self.num_launches += 1

    def count(self, program: Callable[[], object]) -> int:
        """Launches of one run of a program."""
        self.num_launches = 0
        with _Watch(self._saw_launch):
            program()
        return self.num_launches


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]  # PyTorch states none
    """Tells of every operation that is launched."""

    def __init__(self, saw_launch: Callable[[], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._saw_launch = saw_launch

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        if not func.is_view and func.overloadpacket.__name__ not in _NOT_LAUNCHED:
            self._saw_launch()
        return func(*args, **(kwargs or {}))


def fused_names(kernels: KernelSet) -> tuple[str, ...]:
    """The kernels of a set that are not the plain twins."""
    names = (field.name for field in fields(KernelSet))
    return tuple(n for n in names if getattr(kernels, n) is not getattr(REFERENCE_KERNELS, n))


def count_launches(
    model: TtsModel, codec: CodecModel, profile: Profile, *, as_fused: bool | None = None
) -> dict[Stage, int]:
    """Launches of each stage of a profile, for one row.

    Args:
        model: steps run on its device.
        codec: the same.
        profile: stages and sampler.
        as_fused: count the twins of fused kernels as those launch (True) or operation by operation
            (False); by default as the model's own kernels are.
    """
    names = fused_names(model.kernels) if as_fused is None else FUSED_NAMES if as_fused else ()
    counter = LaunchCounter()
    kernels = counter.wrap(model.kernels, names)
    driver = CpuDriver()  # plain calls, on any device
    runner = ModelRunner(
        replace(model, kernels=kernels), replace(codec, kernels=kernels), _small(profile), driver
    )
    counts = {
        shape.stage: counter.count(partial(driver.replay, shape))
        for shape in runner.catalogue.shapes
    }
    runner.close()
    return counts


def _small(profile: Profile) -> Profile:
    """One slot, one shape a stage."""
    width = profile.buckets.codec_frames[-1]
    buckets = profile.buckets.model_copy(
        update={
            "frame_rows": (1,),
            "prefill_rows": (1,),
            "prefill_tokens": profile.buckets.prefill_tokens[:1],
            "codec_rows": (1,),
            "codec_frames": (width,),
            "max_codec_work": width,
        }
    )
    update = {"slots": 1, "buckets": buckets, "kv_budget_positions": None}
    return profile.model_copy(update=update)
