"""The comparison of kernels and twins notices what is wrong with a kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from reference_engine.kernels import REFERENCE_KERNELS, kernels_for, reference
from reference_engine.kernels.parity import TINY_SHAPES, check_kernels


def _check(kernels=REFERENCE_KERNELS, dtype: torch.dtype = torch.float32, **names: object):
    return check_kernels(kernels, shapes=TINY_SHAPES, device="cpu", dtype=dtype, **names)


def _wrong(name: str, spoil: Callable) -> Callable:
    plain = getattr(reference, name)
    return lambda *args, **kwargs: spoil(plain(*args, **kwargs))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_the_twins_equal_themselves_where_nothing_is_poisoned(dtype: torch.dtype):
    """All but the two attentions, whose twins do read the poison and are thereby told apart."""
    results = _check(dtype=dtype)

    assert {"attend_slots"} == {each.kernel for each in results if not each.is_equal}
    assert len(results) == 12


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("rms_norm", lambda x: x + 1e-3),
        ("add_rms_norm", lambda pair: (pair[0], pair[1] * 1.001)),
        ("silu_gate", lambda x: x * float("nan")),
        ("snake_beta", lambda x: x.roll(1, -1)),
        ("join_columns", lambda x: x.roll(1, 2)),
        ("penalised_scores", lambda x: x * 0.999),
        ("sample_tokens", lambda x: x + 1),
        ("philox_uniform", lambda x: x + 1e-7),
        ("to_pcm16", lambda x: x.clamp(-32767, 32766)),
        ("attend_rows", lambda x: x.flip(0)),
        ("rotate_and_store", lambda q: -q),
    ],
)
def test_a_wrong_kernel_is_found(name: str, spoil: Callable):
    """Each with a mistake of its own, a NaN among them."""
    (result,) = _check(replace(REFERENCE_KERNELS, **{name: _wrong(name, spoil)}), names=(name,))

    assert not result.is_equal


def test_a_stray_write_into_the_cache_is_found():
    """Right values in the right rows, and one row more."""

    def careless(qkv, weight, cos, sin, k_rows, v_rows, rows, *, eps):
        q = reference.rotate_and_store(qkv, weight, cos, sin, k_rows, v_rows, rows, eps=eps)
        unused = next(n for n in range(len(k_rows)) if n not in rows.tolist())
        k_rows[unused, 0, 0] += 1e-6
        return q

    (result,) = _check(
        replace(REFERENCE_KERNELS, rotate_and_store=careless), names=("rotate_and_store",)
    )

    assert not result.is_equal


def test_a_cpu_runs_the_plain_twins():
    """Fused kernels are for CUDA devices."""
    assert kernels_for("cpu") is REFERENCE_KERNELS
