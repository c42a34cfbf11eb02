"""The plain twins: what each fused kernel has to do, and what it must leave alone."""

from __future__ import annotations

import pytest
import torch

from reference_engine.kernels.reference import (
    add_rms_norm,
    attend_prompt,
    attend_rows,
    attend_slots,
    prompt_bias,
    rms_norm,
    rotate,
    rotate_and_store,
    silu_gate,
    snake_beta,
)

HEADS, KV_HEADS, DIM, SLOTS, POSITIONS = 4, 2, 8, 5, 12


def _randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _softmax_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """One query [heads, D] over keys [n, kv heads, D], head by head."""
    out = []
    for head in range(q.shape[0]):
        group = head * k.shape[1] // q.shape[0]
        weights = (k[:, group] @ q[head] / q.shape[1] ** 0.5).softmax(0)
        out.append(weights @ v[:, group])
    return torch.cat(out)


def test_attention_reads_a_slot_up_to_its_length():
    """Heads share keys in groups; what lies past the length, even infinity, is not read."""
    q = _randn(2, HEADS, DIM)
    k, v = (
        _randn(SLOTS, POSITIONS, KV_HEADS, DIM, seed=1),
        _randn(SLOTS, POSITIONS, KV_HEADS, DIM, seed=2),
    )
    slots, lengths = torch.tensor([3, 1]), torch.tensor([5, 9])

    found = attend_slots(q, k, v, slots, lengths, context=10)

    for row, (slot, length) in enumerate(((3, 5), (1, 9))):
        expected = _softmax_attention(q[row], k[slot, :length], v[slot, :length])
        assert float((expected - found[row]).abs().max()) < 1e-6


def test_prompt_attention_is_causal_by_position():
    """Each query sees its own position and those before it."""
    q = _randn(1, 3, HEADS, DIM)
    k, v = (
        _randn(SLOTS, POSITIONS, KV_HEADS, DIM, seed=1),
        _randn(SLOTS, POSITIONS, KV_HEADS, DIM, seed=2),
    )

    bias = prompt_bias(
        torch.tensor([[4, 5, 6]]), context=8, group=HEADS // KV_HEADS, dtype=torch.float32
    )

    found = attend_prompt(q, k, v, torch.tensor([2]), bias)

    for token, position in enumerate((4, 5, 6)):
        expected = _softmax_attention(q[0, token], k[2, : position + 1], v[2, : position + 1])
        assert float((expected - found[token]).abs().max()) < 1e-6


@pytest.mark.parametrize(("num_tokens", "num_keys"), [(2, 2), (1, 7)])
def test_predictor_attention_reads_the_row_of_the_batch(num_tokens: int, num_keys: int):
    """The first pass is causal over two tokens, later ones see every key so far."""
    q = _randn(3, num_tokens, HEADS, DIM)
    k, v = _randn(6, 16, KV_HEADS, DIM, seed=1), _randn(6, 16, KV_HEADS, DIM, seed=2)

    found = attend_rows(q, k, v, num_keys=num_keys).view(3, num_tokens, -1)

    for row in range(3):
        for token in range(num_tokens):
            seen = num_keys - num_tokens + token + 1
            expected = _softmax_attention(q[row, token], k[row, :seen], v[row, :seen])
            assert float((expected - found[row, token]).abs().max()) < 1e-6


def test_keys_and_values_go_to_their_rows_and_nowhere_else():
    """Normalised per head, rotated, written; every other cache row keeps its bits."""
    qkv = _randn(2, HEADS + 2 * KV_HEADS, DIM)
    weight = 1 + 0.1 * _randn(HEADS + KV_HEADS, DIM, seed=1)
    angles = _randn(2, 1, DIM // 2, seed=2)
    cos = torch.cat((angles.cos(), angles.cos()), -1)
    sin = torch.cat((-angles.sin(), angles.sin()), -1)
    k_rows, v_rows = _randn(20, KV_HEADS, DIM, seed=3), _randn(20, KV_HEADS, DIM, seed=4)
    before = k_rows.clone(), v_rows.clone()
    rows = torch.tensor([13, 4])

    q = rotate_and_store(qkv, weight, cos, sin, k_rows, v_rows, rows, eps=1e-6)

    normed = torch.stack(
        [rms_norm(qkv[:, head], weight[head], eps=1e-6) for head in range(HEADS + KV_HEADS)], 1
    )
    expected = rotate(normed, cos, sin)
    assert float((expected[:, :HEADS] - q).abs().max()) < 1e-6
    assert float((expected[:, HEADS:] - k_rows[rows]).abs().max()) < 1e-6
    assert torch.equal(qkv[:, HEADS + KV_HEADS :], v_rows[rows])
    others = [row for row in range(20) if row not in (13, 4)]
    assert torch.equal(before[0][others], k_rows[others])
    assert torch.equal(before[1][others], v_rows[others])


def test_rotation_turns_pairs_of_dimensions():
    """A quarter turn moves the first half onto the second: (a, b) becomes (-b, a)."""
    x = torch.tensor([1.0, 2.0, 3.0, 4.0])
    cos, sin = torch.zeros(4), torch.tensor([-1.0, -1.0, 1.0, 1.0])

    assert [-3.0, -4.0, 1.0, 2.0] == rotate(x, cos, sin).tolist()


def test_norm_rounds_before_the_weight_below_fp32():
    """Two roundings in bf16, as in the official layer: one would differ in some last bits."""
    x = _randn(64, 256).to(torch.bfloat16)
    weight = (1 + 0.3 * _randn(256, seed=1)).to(torch.bfloat16)
    wide = x.float()
    scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)

    found = rms_norm(x, weight, eps=1e-6)

    assert torch.equal(scaled.to(torch.bfloat16) * weight, found)
    assert not torch.equal((scaled * weight.float()).to(torch.bfloat16), found)


def test_norm_with_a_residual_gives_both():
    """The normalised sum, and the sum."""
    x, residual, weight = _randn(3, 16), _randn(3, 16, seed=1), torch.ones(16)

    normed, total = add_rms_norm(x, residual, weight, eps=1e-6)

    assert torch.equal(residual + x, total)
    assert torch.equal(rms_norm(total, weight, eps=1e-6), normed)


def test_the_gate_is_the_first_half():
    """silu of the first half times the second."""
    gate_up = torch.tensor([[0.0, 2.0, 5.0, 3.0]])
    expected = 2.0 / (1.0 + 2.718281828459045**-2.0) * 3.0

    assert [0.0, expected] == pytest.approx(silu_gate(gate_up)[0].tolist())


def test_the_snake_adds_a_squared_sine():
    """Per channel: x + sin(alpha x)^2 / beta."""
    x = torch.tensor([[[0.5, -1.0], [2.0, 0.0]]])
    alpha, inverse = torch.tensor([[1.0], [2.0]]), torch.tensor([[4.0], [0.5]])
    expected = torch.stack(
        (x[0, 0] + 4.0 * x[0, 0].sin() ** 2, x[0, 1] + 0.5 * (2 * x[0, 1]).sin() ** 2)
    )

    assert float((expected - snake_beta(x, alpha, inverse)[0]).abs().max()) < 1e-6
