"""Every fused kernel held against its plain twin, on any device and at any shapes.

Run under Triton's interpreter by the tests (tiny shapes, CPU) and on a GPU by the check made for
one (the shapes of the real model). Memory that a kernel must not read is poisoned with NaN or
1000.0 for the kernel alone; the twin sees the same values without the poison.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from reference_engine.kernels import REFERENCE_KERNELS, KernelSet
from reference_engine.kernels.reference import kept_scores

__all__ = ["FULL_SHAPES", "TINY_SHAPES", "ParityResult", "ParityShapes", "check_kernels"]

# fp32: sums in another order. bf16: one step of its eight significant bits at the largest value,
# where such a sum falls on the other side of a rounding.
_TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10}
_POISON = (float("nan"), 1000.0)
_EPS = 1e-6
_SMALLEST_SHARE = 1e-4


@dataclass(frozen=True, slots=True)
class ParityShapes:
    """Sizes at which kernels are compared."""

    rows: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    slots: int
    positions: int
    vocabulary: int
    channels: int
    columns: int


TINY_SHAPES = ParityShapes(
    rows=3, hidden=48, intermediate=40, heads=4, kv_heads=2, head_dim=16, slots=5, positions=40,
    vocabulary=70, channels=6, columns=37,
)  # fmt: skip
FULL_SHAPES = ParityShapes(
    rows=16, hidden=2048, intermediate=6144, heads=16, kv_heads=8, head_dim=128, slots=33,
    positions=512, vocabulary=3072, channels=96, columns=1920 * 4,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ParityResult:
    """One comparison. `error` is the largest difference over the largest magnitude (at least 1)."""

    kernel: str
    dtype: str
    error: float
    tolerance: float

    @property
    def is_equal(self) -> bool:
        """Whether the kernel did what its twin does."""
        return self.error <= self.tolerance  # False for NaN


class _Case:
    """Random inputs of one dtype, and how results are compared."""

    def __init__(
        self, shapes: ParityShapes, device: torch.device | str, dtype: torch.dtype, seed: int
    ) -> None:
        self.shapes, self.device, self.dtype = shapes, torch.device(device), dtype
        self._generator = torch.Generator().manual_seed(seed)

    def randn(self, *size: int, dtype: torch.dtype | None = None) -> Tensor:
        """Standard normal, drawn on the CPU so that every device sees the same."""
        return torch.randn(size, generator=self._generator).to(self.device, dtype or self.dtype)

    def ints(self, low: int, high: int, count: int) -> Tensor:
        """[count] int64 in low..high-1."""
        return torch.randint(low, high, (count,), generator=self._generator).to(self.device)

    def distinct(self, low: int, high: int, count: int) -> Tensor:
        """[count] different int64 in low..high-1."""
        chosen = torch.randperm(high - low, generator=self._generator)[:count] + low
        return chosen.to(self.device)

    def full(self, value: float, dtype: torch.dtype = torch.float32) -> Tensor:
        """[rows] of one value."""
        return torch.full((self.shapes.rows,), value, dtype=dtype, device=self.device)


Check = Callable[[KernelSet, _Case], list[tuple[Tensor, Tensor]]]
_R = REFERENCE_KERNELS


def _rms_norm(kernels: KernelSet, case: _Case) -> list[tuple[Tensor, Tensor]]:
    x = case.randn(case.shapes.rows, case.shapes.hidden)
    weight = 1 + 0.2 * case.randn(case.shapes.hidden)
    return [(_R.rms_norm(x, weight, eps=_EPS), kernels.rms_norm(x, weight, eps=_EPS))]


def _add_rms_norm(kernels: KernelSet, case: _Case) -> list[tuple[Tensor, Tensor]]:
    size = (case.shapes.rows, case.shapes.hidden)
    x, residual, weight = case.randn(*size), case.randn(*size), case.randn(size[1])
    expected = _R.add_rms_norm(x, residual, weight, eps=_EPS)
    return list(zip(expected, kernels.add_rms_norm(x, residual, weight, eps=_EPS), strict=True))


def _silu_gate(kernels: KernelSet, case: _Case) -> list[tuple[Tensor, Tensor]]:
    gate_up = 3 * case.randn(case.shapes.rows, 2 * case.shapes.intermediate)
    return [(_R.silu_gate(gate_up), kernels.silu_gate(gate_up))]


def _rotate_and_store(kernels: KernelSet, case: _Case) -> list[tuple[Tensor, Tensor]]:
    """Once with a rotation a token, once with one for all; what is not written keeps its bits."""
    shapes, pairs = case.shapes, []
    cache = (shapes.slots * shapes.positions, shapes.kv_heads, shapes.head_dim)
    for num_angles in (shapes.rows, 1):
        qkv = case.randn(shapes.rows, shapes.heads + 2 * shapes.kv_heads, shapes.head_dim)
        weight = 1 + 0.2 * case.randn(shapes.heads + shapes.kv_heads, shapes.head_dim)
        angles = case.randn(num_angles, 1, shapes.head_dim // 2, dtype=torch.float32)
        cos = torch.cat((angles.cos(), angles.cos()), -1).to(case.dtype)
        sin = torch.cat((-angles.sin(), angles.sin()), -1).to(case.dtype)
        rows = case.distinct(0, cache[0], shapes.rows)
        k, v = case.randn(*cache), case.randn(*cache)
        ours = k.clone(), v.clone()
        expected = _R.rotate_and_store(qkv, weight, cos, sin, k, v, rows, eps=_EPS)
        found = kernels.rotate_and_store(qkv, weight, cos, sin, *ours, rows, eps=_EPS)
        untouched = torch.ones(cache[0], dtype=torch.bool, device=case.device)
        untouched[rows] = False
        # A wrong write among the rows that must not change is no matter of rounding.
        stray = (k[untouched] != ours[0][untouched]).any() | (v != ours[1]).any()
        none = torch.zeros((), device=case.device)
        pairs += [(expected, found), (k, ours[0]), (none, stray * 1e9)]
    return pairs


def _attend_slots(kernels: KernelSet, case: _Case) -> list[tuple[Tensor, Tensor]]:
    shapes, pairs = case.shapes, []
    size = (shapes.slots, shapes.positions, shapes.kv_heads, shapes.head_dim)
    for poison in _POISON:
        q = case.randn(shapes.rows, shapes.heads, shapes.head_dim)
        k, v = case.randn(*size), case.randn(*size)
        slots = case.distinct(1, shapes.slots, shapes.rows)
        lengths = case.ints(1, shapes.positions, shapes.rows)
        lengths[0] = 1
        context = shapes.positions - 1
        expected = _R.attend_slots(q, k, v, slots, lengths, context=context)
        for row in range(shapes.rows):
            k[slots[row], lengths[row] :] = poison
            v[slots[row], lengths[row] :] = poison
        k[0], v[0] = poison, poison
        found = kernels.attend_slots(q, k, v, slots, lengths, context=context)
        pairs.append((expected, found))
    return pairs


def _attend_rows(kernels: KernelSet, case: _Case) -> list[tuple[Tensor, Tensor]]:
    shapes, pairs = case.shapes, []
    size = (shapes.rows + 2, 16, shapes.kv_heads, shapes.head_dim)
    for num_tokens, num_keys in ((2, 2), (1, 9), (1, 16)):
        q = case.randn(shapes.rows, num_tokens, shapes.heads, shapes.head_dim)
        k, v = case.randn(*size), case.randn(*size)
        expected = _R.attend_rows(q, k, v, num_keys=num_keys)
        for cache in (k, v):
            cache[:, num_keys:], cache[shapes.rows :] = _POISON
        pairs.append((expected, kernels.attend_rows(q, k, v, num_keys=num_keys)))
    return pairs


def _snake_beta(kernels: KernelSet, case: _Case) -> list[tuple[Tensor, Tensor]]:
    channels, columns = case.shapes.channels, case.shapes.columns
    alpha, inverse = case.randn(channels, 1).exp(), case.randn(channels, 1).exp()
    whole = case.randn(case.shapes.rows, channels, columns + 5)
    return [
        (_R.snake_beta(x, alpha, inverse), kernels.snake_beta(x, alpha, inverse))
        for x in (whole, whole[:, :, 3 : 3 + columns])
    ]


def _join_columns(kernels: KernelSet, case: _Case) -> list[tuple[Tensor, Tensor]]:
    """Convolutions' columns and attention's window of heads, views of other shapes; exactly."""
    shapes, pairs = case.shapes, []
    slots = case.distinct(1, shapes.slots, shapes.rows)
    counts = case.ints(0, 4, shapes.rows)
    wide = case.randn(shapes.rows, shapes.channels, 3 * (shapes.columns // 3) + 2)
    heads = case.randn(shapes.rows, 3, shapes.heads, shapes.head_dim).transpose(1, 2)
    for new, kept, per_frame in (
        (wide[:, :, 1:-1], (54,), shapes.columns // 3),
        (wide[:, :, :3], (1,), 1),
        (wide[:, :, :6].transpose(1, 2).contiguous().transpose(1, 2), (6,), 2),
        (heads, (71, shapes.head_dim), 1),
    ):
        columns = case.randn(shapes.slots, new.shape[1], *kept)
        ours = columns.clone()
        expected = _R.join_columns(columns, new, slots, counts, per_frame=per_frame)
        found = kernels.join_columns(ours, new, slots, counts, per_frame=per_frame)
        pairs += [(_bits(expected), _bits(found)), (_bits(columns), _bits(ours))]
    return pairs


def _bits(value: Tensor) -> Tensor:
    """What a copy must not change."""
    return value.view(torch.int32 if value.element_size() == 4 else torch.int16)


def _penalised_scores(kernels: KernelSet, case: _Case) -> list[tuple[Tensor, Tensor]]:
    shapes = case.shapes
    logits = 4 * case.randn(shapes.rows, shapes.vocabulary)
    seen = case.randn(shapes.slots, shapes.vocabulary) > 0
    bans = torch.zeros(2, shapes.vocabulary, device=case.device)
    bans[:, -5:], bans[0, 7] = float("-inf"), float("-inf")
    rest = (
        seen,
        case.distinct(1, shapes.slots, shapes.rows),
        1 + case.randn(shapes.rows, dtype=torch.float32).abs(),
        bans,
        case.ints(0, 2, shapes.rows),
    )
    expected = _R.penalised_scores(logits, *rest)
    found = kernels.penalised_scores(logits, *rest)
    # Differences of infinities are no numbers: far below any score will do.
    return [(expected.clamp(min=-1e3), found.clamp(min=-1e3))]


def _sample_tokens(kernels: KernelSet, case: _Case) -> list[tuple[Tensor, Tensor]]:
    """Settings of every kind in one batch; each number lies in the middle of its code's share."""
    shapes, pairs = case.shapes, []
    for top_k, top_p in ((1, 2.0), (9, 2.0), (9, 0.7), (1 << 40, 2.0), (1 << 40, 0.4)):
        # Whole steps of a quarter: many ties, at every threshold.
        scores = (8 * case.randn(shapes.rows, shapes.vocabulary)).round() / 4
        scores[:, -5:] = float("-inf")
        settings = case.full(0.5), case.full(top_k, torch.int64), case.full(top_p)
        kept = kept_scores(scores, *settings, top_k_cap=None).double()
        share = kept.softmax(dim=-1)
        # Some kept code, ties included, whose share a sum in fp32 can still tell from its
        # neighbours'; greedy takes the first of the largest.
        others = case.randn(*scores.shape).masked_fill(share < _SMALLEST_SHARE, float("-inf"))
        wanted = (kept if top_k == 1 else others).argmax(dim=-1)
        upper = share.cumsum(dim=-1).gather(1, wanted[:, None])[:, 0]
        uniforms = (upper - share.gather(1, wanted[:, None])[:, 0] / 2).float()
        drawn = kernels.sample_tokens(scores, uniforms, *settings, top_k_cap=None)
        pairs.append((wanted, drawn))
    return pairs


def _philox_uniform(kernels: KernelSet, case: _Case) -> list[tuple[Tensor, Tensor]]:
    seeds = case.ints(0, 1 << 62, case.shapes.rows)
    counters = case.ints(0, 1 << 34, case.shapes.rows)
    expected = _R.philox_uniform(seeds, counters, num_lanes=16)
    found = kernels.philox_uniform(seeds, counters, num_lanes=16)
    return [(expected.view(torch.int32), found.view(torch.int32))]


def _to_pcm16(kernels: KernelSet, case: _Case) -> list[tuple[Tensor, Tensor]]:
    samples = case.randn(case.shapes.rows, case.shapes.columns, dtype=torch.float32).clamp(-1, 1)
    halves = torch.arange(-20, 20, device=case.device)[None].float() / (2 * 32767)
    samples[:1, :37] = halves[:, :37]
    samples[0, 0] = float("nan")
    return [(_R.to_pcm16(samples), kernels.to_pcm16(samples))]


_CHECKS: dict[str, Check] = {
    "rms_norm": _rms_norm,
    "add_rms_norm": _add_rms_norm,
    "silu_gate": _silu_gate,
    "rotate_and_store": _rotate_and_store,
    "attend_slots": _attend_slots,
    "attend_rows": _attend_rows,
    "snake_beta": _snake_beta,
    "join_columns": _join_columns,
    "penalised_scores": _penalised_scores,
    "sample_tokens": _sample_tokens,
    "philox_uniform": _philox_uniform,
    "to_pcm16": _to_pcm16,
}


def check_kernels(
    kernels: KernelSet,
    *,
    shapes: ParityShapes,
    device: torch.device | str,
    dtype: torch.dtype,
    seed: int = 0,
    names: tuple[str, ...] = tuple(_CHECKS),
) -> list[ParityResult]:
    """Compare kernels with their twins on random inputs.

    Args:
        kernels: under test.
        shapes: of the inputs.
        device: of the inputs; under Triton's interpreter the CPU.
        dtype: of activations; scores, random numbers and samples are fp32 whatever it is.
        seed: of the inputs.
        names: which kernels.
    """
    results = []
    for name in names:
        case = _Case(shapes, device, dtype, seed)
        pairs = _CHECKS[name](kernels, case)
        error = max(_error(expected, found) for expected, found in pairs)
        results.append(
            ParityResult(name, str(dtype).removeprefix("torch."), error, _tolerance(pairs[0][0]))
        )
    return results


def _error(expected: Tensor, found: Tensor) -> float:
    """Largest difference over the largest magnitude; NaN where only one of the two is a number."""
    assert expected.shape == found.shape, (expected.shape, found.shape)
    expected, found = expected.double(), found.double()
    gap = (expected - found).abs()
    # max() hides no NaN: torch propagates it.
    return float(gap.max() / max(1.0, float(expected.abs().max())))


def _tolerance(expected: Tensor) -> float:
    """Integers (codes, bits, PCM) must be equal."""
    return _TOLERANCE[expected.dtype] if expected.is_floating_point() else 0.0
