"""Fused kernels compiled for a GPU that is not there.

Where a program would launch one it is compiled for Hopper instead, specialised as that launch would
have it. On the meta device nothing else is computed either.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import triton
from triton.backends.compiler import GPUTarget

HOPPER = 90
REGISTERS_A_BLOCK = 65_536
THREADS_A_WARP = 32


class _Driver:
    """What Triton's compiler asks of a device."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", HOPPER, THREADS_A_WARP)


@dataclass(frozen=True)
class Compiled:
    """One kernel, specialised for one kind of launch."""

    name: str
    machine_code: bytes
    num_warps: int
    shared_bytes: int

    def resources(self, folder: Path) -> dict[str, int]:
        """What the assembler used: REG a thread, STACK bytes a thread, and more."""
        path = folder / "kernel.cubin"
        path.write_bytes(self.machine_code)
        said = subprocess.run(
            [triton.knobs.nvidia.cuobjdump.path, "--dump-resource-usage", str(path)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        return {key: int(number) for key, number in re.findall(r"(REG|STACK|LOCAL):(\d+)", said)}


@contextmanager
def compiled_launches(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[object, Compiled]]:
    """Compile what would be launched inside; one entry a specialisation, filled as it goes on."""
    found: dict[object, Compiled] = {}
    launch = triton.JITFunction.run

    def compile_only(self: Any, *args: Any, grid: Any, warmup: bool, **settings: Any) -> Any:
        assert 0 < min(grid), f"{self.fn.__name__}: grid {grid}"
        kernel = launch(self, *args, grid=grid, warmup=True, **settings)
        found[kernel.hash] = Compiled(
            name=self.fn.__name__.strip("_").removesuffix("_kernel"),
            machine_code=kernel.asm["cubin"],
            num_warps=kernel.metadata.num_warps,
            shared_bytes=kernel.metadata.shared,
        )
        return kernel

    monkeypatch.setenv("TRITON_CACHE_DIR", str(cache))
    monkeypatch.setattr(triton.JITFunction, "run", compile_only)
    before = triton.runtime.driver._active
    triton.runtime.driver.set_active(_Driver())
    try:
        yield found
    finally:
        triton.runtime.driver._active = before
