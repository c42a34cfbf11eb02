"""Strict access to the safetensors files of a folder: one file, or shards with an index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from reference_engine.errors import CheckpointError
from reference_engine.model.json_section import read_json
from reference_engine.model.tensor_table import Shape, TensorTable

__all__ = ["StoredTensor", "TensorFiles"]

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """What a header says of one tensor."""

    file: Path
    shape: Shape
    dtype: str  # as safetensors names it: BF16, F32, ...


class TensorFiles:
    """Open files of one folder; headers are read at once, tensors when asked for.

    Use as a context manager.

    Raises:
        CheckpointError: no file, a missing shard, a truncated or damaged file.
    """

    def __init__(self, folder: Path) -> None:
        self._stack = ExitStack()
        self._open: dict[Path, Any] = {}
        self.tensors: dict[str, StoredTensor] = {}
        try:
            for path in _files(folder):
                self._read_header(path)
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> TensorFiles:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def _read_header(self, path: Path) -> None:
        try:
            handle = self._stack.enter_context(safe_open(str(path), framework="pt", device="cpu"))
        except FileNotFoundError:
            raise CheckpointError(f"{path}: not found; a shard is missing") from None
        except (SafetensorError, OSError) as error:
            raise CheckpointError(
                f"{path}: damaged or truncated ({error}); fetch the file again"
            ) from error
        self._open[path] = handle
        for name in handle.keys():  # noqa: SIM118 (not a mapping)
            view = handle.get_slice(name)
            self.tensors[name] = StoredTensor(path, tuple(view.get_shape()), view.get_dtype())

    def check(self, table: TensorTable, *, ignored: Sequence[str], dtypes: Sequence[str]) -> None:
        """Compare the headers with what the config asks for.

        Raises:
            CheckpointError: tensors missing or unknown, a wrong shape or dtype; the first few are
                named with what was found and expected.
        """
        where = self._where()
        missing = [name for name in table if name not in self.tensors]
        if missing:
            raise CheckpointError(f"{where}: missing {_some(missing)}")
        unknown = [n for n in self.tensors if n not in table and not n.startswith(tuple(ignored))]
        if unknown:
            raise CheckpointError(f"{where}: unknown {_some(unknown)}; another model or version?")
        for name, shape in table.items():
            found = self.tensors[name]
            if found.shape != shape:
                raise CheckpointError(
                    f"{found.file}: {name}: shape {list(found.shape)}, "
                    f"but config.json makes it {list(shape)}"
                )
            if found.dtype not in dtypes:
                raise CheckpointError(
                    f"{found.file}: {name}: dtype {found.dtype}, expected {' or '.join(dtypes)}"
                )

    def read(self, name: str) -> Tensor:
        """Read one tensor as stored.

        Raises:
            CheckpointError: it holds a NaN or an infinity, or cannot be read.
        """
        stored = self.tensors[name]
        try:
            value: Tensor = self._open[stored.file].get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise CheckpointError(f"{stored.file}: {name}: cannot be read ({error})") from error
        # One of the two is not finite where any element is not. A sum in fp64 would first make a
        # copy four times as large, and take thirty times as long.
        if not torch.stack(torch.aminmax(value)).isfinite().all():
            raise CheckpointError(
                f"{stored.file}: {name}: holds a NaN or an infinity; fetch the file again"
            )
        return value

    def _where(self) -> str:
        files = list(self._open)
        return str(files[0]) if len(files) == 1 else str(files[0].parent / _INDEX)


def _files(folder: Path) -> list[Path]:
    """The folder's tensor files: every shard the index names, or the single file."""
    index = folder / _INDEX
    if index.exists():
        section = read_json(index)
        weight_map: Mapping[str, object] = section.section("weight_map").values
        if not weight_map:
            raise section.fail("weight_map", "is empty")
        return [folder / str(name) for name in sorted({str(v) for v in weight_map.values()})]
    if not (folder / _SINGLE).exists():
        raise CheckpointError(f"{folder}: holds neither {_SINGLE} nor {_INDEX}")
    return [folder / _SINGLE]


def _some(names: Sequence[str]) -> str:
    """The first few names and how many more."""
    shown = ", ".join(names[:_SHOWN])
    more = len(names) - _SHOWN
    return f"tensor {shown}" if more <= 0 else f"tensor {shown} and {more} more"
