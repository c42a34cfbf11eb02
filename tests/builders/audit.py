"""Watches a step for anything a captured graph could not hold: a host read, a host value, a copy.

Two modes are stacked, because neither sees everything. The dispatch mode sees every aten operation
(`.item()`, `nonzero`, boolean indexing, data made on the host); the function mode sees the calls
that never reach dispatch (`.tolist()`, `.cpu()`, `tensor_split`). The same step is also run on the
`meta` device, where every operand must already be: a tensor left on the host is then a mistake that
cannot hide, and no value exists that could be read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# Operations that read a value on the host, whose result's shape depends on values, or that bring
# host data to the device.
_FORBIDDEN_OPERATIONS = frozenset(
    {
        "_local_scalar_dense", "item", "is_nonzero", "equal", "allclose", "nonzero",
        "nonzero_static", "masked_select", "unique_dim", "_unique", "_unique2",
        "unique_consecutive", "bincount", "one_hot", "repeat_interleave", "lift_fresh", "lift",
        "lift_fresh_copy", "pin_memory", "is_pinned", "histc", "_linalg_check_errors",
    }
)  # fmt: skip
_FORBIDDEN_CALLS = frozenset(
    {
        "tolist", "cpu", "cuda", "numpy", "item", "__bool__", "__int__", "__float__", "__index__",
        "__array__", "__dlpack__", "tensor_split", "to_dlpack", "nonzero", "pin_memory",
        "__contains__", "__reversed__", "storage", "untyped_storage", "tensor", "as_tensor",
        "from_numpy", "synchronize", "one_hot", "bincount", "unique", "equal", "allclose",
    }
)  # fmt: skip
_INDEXING = frozenset({"index", "index_put", "index_put_", "_index_put_impl_"})


@dataclass
class Findings:
    """What a step did."""

    num_operations: int = 0
    operations: Counter[str] = field(default_factory=Counter)
    offences: list[str] = field(default_factory=list)


class _Dispatch(TorchDispatchMode):
    def __init__(self, findings: Findings, device: str) -> None:
        super().__init__()
        self._findings = findings
        self._device = device

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        kwargs = kwargs or {}
        self._findings.num_operations += 1
        self._findings.operations[name] += 1
        if name in _FORBIDDEN_OPERATIONS:
            self._findings.offences.append(f"aten.{name}")
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if name in _INDEXING and any(
            leaf.dtype in (torch.bool, torch.uint8)
            for leaf in tree_leaves(args[1])
            if isinstance(leaf, Tensor)
        ):
            self._findings.offences.append(f"aten.{name} with a mask")
        strangers = {t.device.type for t in tensors} - {self._device}
        if strangers:
            self._findings.offences.append(f"aten.{name} on {', '.join(sorted(strangers))}")
        result = func(*args, **kwargs)
        made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        if any(t.device.type != self._device for t in made):
            self._findings.offences.append(f"aten.{name} made a tensor elsewhere")
        return result


class _Function(TorchFunctionMode):
    def __init__(self, findings: Findings) -> None:
        super().__init__()
        self._findings = findings

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", str(func))
        if name in _FORBIDDEN_CALLS:
            self._findings.offences.append(f"torch call {name}")
        kwargs = kwargs or {}
        if name == "to" and any(str(a) in ("cpu", "cuda") for a in (*args, *kwargs.values())):
            self._findings.offences.append("torch call to(device)")
        return func(*args, **kwargs)


@contextmanager
def watch(device: str = "cpu") -> Iterator[Findings]:
    """Record what happens inside; every operand is expected on `device`."""
    findings = Findings()
    with _Function(findings), _Dispatch(findings, device):
        yield findings


def to_meta(value: Any) -> Any:
    """A copy of a dataclass tree with every tensor on the meta device."""
    if isinstance(value, Tensor):
        return value.to("meta")
    if isinstance(value, tuple):
        return tuple(to_meta(item) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        changed = {f.name: to_meta(getattr(value, f.name)) for f in fields(value)}
        return replace(value, **changed)
    return value


def tensors_of(value: Any) -> Iterator[Tensor]:
    """Every tensor of a dataclass tree."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from tensors_of(item)
    elif is_dataclass(value) and not isinstance(value, type):
        for f in fields(value):
            yield from tensors_of(getattr(value, f.name))


def audit(step: Callable[[], object], *, device: str = "cpu") -> Findings:
    """Run a step under watch."""
    with watch(device) as findings:
        step()
    return findings
