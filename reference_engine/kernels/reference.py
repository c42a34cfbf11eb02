"""Plain PyTorch twins of the fused kernels: the specification each kernel is tested against.

A kernel file offers one function of this module with the same signature; the `KernelSet` chooses
per function, so model files never change.

Shapes: N token rows, B batch rows, S slots, T positions, V vocabulary, D head_dim. Index vectors
are int64. Cache rows are addressed flat, `slot * T + position`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = [
    "add_rms_norm",
    "attend_prompt",
    "attend_rows",
    "attend_slots",
    "greedy_tokens",
    "join_columns",
    "kept_scores",
    "penalised_scores",
    "philox_uniform",
    "prompt_bias",
    "rms_norm",
    "rotate",
    "rotate_and_store",
    "sample_tokens",
    "silu_gate",
    "snake_beta",
    "to_pcm16",
]

# Philox4x32-10. Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC11).
_PHILOX_ROUNDS = 10
_PHILOX_MULTIPLIER_A = 0xD2511F53
_PHILOX_MULTIPLIER_B = 0xCD9E8D57
_PHILOX_KEY_A = 0x9E3779B9
_PHILOX_KEY_B = 0xBB67AE85
_LOW_WORD = 0xFFFFFFFF
# Just below 2^-31, so that the largest draw stays below 1 in fp32. Source: triton.language.rand.
_UNIFORM_SCALE = 4.6566127342e-10
_FULL_SCALE_PCM16 = 32767.0


def rms_norm(x: Tensor, weight: Tensor, *, eps: float) -> Tensor:
    """Divide the last dimension by its root mean square, then scale by `weight` (broadcast).

    Below fp32 the normalised value is rounded to the weight's dtype before it is scaled, as the
    official layer does; a single rounding at the end would differ in the last bit.
    """
    size = x.shape[-1:]
    if x.dtype == torch.float32:
        return F.rms_norm(x, size, None, eps) * weight
    return F.rms_norm(x.float(), size, None, eps).to(x.dtype) * weight


def add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor, *, eps: float
) -> tuple[Tensor, Tensor]:
    """Add a layer's output to its residual and normalise the sum.

    Returns:
        The normalised sum, and the sum itself as the next residual.
    """
    total = residual + x
    return rms_norm(total, weight, eps=eps), total


def silu_gate(gate_up: Tensor) -> Tensor:
    """SwiGLU's gate: [N, 2 I] -> [N, I], `silu(first half) * second half`."""
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate) * up


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate-half position embedding over the last dimension.

    Args:
        x: [..., D].
        cos: broadcastable to `x`, in its dtype: the official rotation is rounded that way.
        sin: the same, with its first half negated, so that a plain roll replaces the
            negate-and-concatenate of the textbook form; each product is the same number.
    """
    return x * cos + x.roll(x.shape[-1] // 2, -1) * sin


def rotate_and_store(
    qkv: Tensor,
    norm_weight: Tensor,
    cos: Tensor,
    sin: Tensor,
    k_rows: Tensor,
    v_rows: Tensor,
    rows: Tensor,
    *,
    eps: float,
) -> Tensor:
    """Normalise and rotate queries and keys per head, write keys and values into the cache.

    Args:
        qkv: [N, heads + 2 kv heads, D], merged projection.
        norm_weight: [heads + kv heads, D], the query norm repeated, then the key norm.
        cos: [N, 1, D]; `sin` likewise, as `rotate` takes them.
        sin: see `cos`.
        k_rows: [rows, kv heads, D], flat view of the key cache, written in place.
        v_rows: the same for values.
        rows: [N] cache row of each token. Rows may repeat only for padding.
        eps: of the head norms.

    Returns:
        Rotated queries [N, heads, D].
    """
    num_kv = k_rows.shape[1]
    num_qk = qkv.shape[1] - num_kv
    qk, v = qkv.split_with_sizes([num_qk, num_kv], dim=1)
    qk = rotate(rms_norm(qk, norm_weight, eps=eps), cos, sin)
    q, k = qk.split_with_sizes([num_qk - num_kv, num_kv], dim=1)
    k_rows.index_copy_(0, rows, k)
    v_rows.index_copy_(0, rows, v)
    return q


def attend_slots(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    slots: Tensor,
    lengths: Tensor,
    *,
    context: int,
) -> Tensor:
    """One query a row over its slot's keys.

    Args:
        q: [B, heads, D].
        k_cache: [S, T, kv heads, D].
        v_cache: the same.
        slots: [B].
        lengths: [B] keys to read, the row's own included.
        context: static bound on `lengths`; no position from it on is touched.

    Returns:
        [B, heads * D].
    """
    num_rows, num_heads, head_dim = q.shape
    num_kv = k_cache.shape[2]
    k = k_cache.narrow(1, 0, context).index_select(0, slots).transpose(1, 2)
    v = v_cache.narrow(1, 0, context).index_select(0, slots).transpose(1, 2)
    visible = torch.arange(context, device=q.device) < lengths[:, None]
    # Query heads that share a key head become query rows: no key is repeated.
    grouped = q.view(num_rows, num_kv, num_heads // num_kv, head_dim)
    mixed = F.scaled_dot_product_attention(grouped, k, v, attn_mask=visible[:, None, None])
    return mixed.reshape(num_rows, num_heads * head_dim)


def attend_prompt(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    slots: Tensor,
    bias: Tensor,
) -> Tensor:
    """Many queries a row over its slot's keys, each up to its own position.

    Args:
        q: [B, N, heads, D].
        k_cache: [S, T, kv heads, D].
        v_cache: the same.
        slots: [B].
        bias: what the layers share, of `prompt_bias`; no position beyond its width is touched.

    Returns:
        [B * N, heads * D].
    """
    num_rows, num_tokens, num_heads, head_dim = q.shape
    num_kv, context = k_cache.shape[2], bias.shape[3]
    k = k_cache.narrow(1, 0, context).index_select(0, slots).transpose(1, 2)
    v = v_cache.narrow(1, 0, context).index_select(0, slots).transpose(1, 2)
    # As in `attend_slots`. Heads that share keys would rule out every fused attention that takes a
    # mask, and leave the unfused one, which repeats all keys in fp32.
    grouped = q.view(num_rows, num_tokens, num_kv, -1, head_dim).permute(0, 2, 3, 1, 4)
    stacked = grouped.reshape(num_rows, num_kv, -1, head_dim)
    mixed = F.scaled_dot_product_attention(stacked, k, v, attn_mask=bias).view(grouped.shape)
    return mixed.permute(0, 3, 1, 2, 4).reshape(num_rows * num_tokens, num_heads * head_dim)


def prompt_bias(positions: Tensor, *, context: int, group: int, dtype: torch.dtype) -> Tensor:
    """What `attend_prompt` adds to its scores: -inf where a key lies behind the query.

    Args:
        positions: [B, N] of the queries.
        context: static bound on positions.
        group: query heads that share a key head.
        dtype: of the queries.

    Returns:
        [B, 1, group * N, context]: the queries of one head after those of another.
    """
    keys = torch.arange(context, device=positions.device)
    is_hidden = keys > positions.repeat(1, group)[:, :, None]
    bias = torch.zeros_like(is_hidden, dtype=dtype).masked_fill(is_hidden, float("-inf"))
    return bias[:, None]


def attend_rows(q: Tensor, k_rows: Tensor, v_rows: Tensor, *, num_keys: int) -> Tensor:
    """The code predictor's attention: the newest tokens of each row over `num_keys` keys.

    Args:
        q: [B, N, heads, D], the last N of `num_keys` tokens: N is 1, or all of them.
        k_rows: [R, K, kv heads, D] with R >= B; row n belongs to batch row n.
        v_rows: the same.
        num_keys: static count of keys written so far.

    Returns:
        [B * N, heads * D].
    """
    num_rows, num_tokens, num_heads, head_dim = q.shape
    k = k_rows[:num_rows, :num_keys].transpose(1, 2)
    v = v_rows[:num_rows, :num_keys].transpose(1, 2)
    mixed = F.scaled_dot_product_attention(
        q.transpose(1, 2), k, v, is_causal=num_tokens > 1, enable_gqa=True
    )
    return mixed.transpose(1, 2).reshape(num_rows * num_tokens, num_heads * head_dim)


def snake_beta(x: Tensor, alpha: Tensor, inverse_beta: Tensor) -> Tensor:
    """`x + sin(x * alpha)^2 / beta` per channel: [B, C, T], parameters [C, 1], exponentiated."""
    return x + inverse_beta * torch.sin(x * alpha).pow(2)


def join_columns(
    columns: Tensor, new: Tensor, slots: Tensor, num_frames: Tensor, *, per_frame: int
) -> Tensor:
    """Put each stream's remembered columns before its new ones, and remember the newest real ones.

    Args:
        columns: [S, C, m] or [S, C, m, D], written in place.
        new: [B, C, n] or [B, C, n, D] of this call.
        slots: [B], no slot twice but padding's.
        num_frames: [B] codec frames of each row that are real; 0 for padding.
        per_frame: columns that a codec frame makes here.

    Returns:
        [B, C, m + n] or [B, C, m + n, D].
    """
    joined = torch.cat((columns.index_select(0, slots), new), dim=2)
    keep = torch.arange(columns.shape[2], device=slots.device)
    # A row's real columns end `num_frames * per_frame` behind the remembered ones.
    picks = (num_frames * per_frame)[:, None] + keep
    index = picks.view(len(slots), 1, -1, *(1 for _ in joined.shape[3:]))
    newest = joined.gather(2, index.expand(-1, joined.shape[1], -1, *joined.shape[3:]))
    columns.index_copy_(0, slots, newest)
    return joined


def to_pcm16(samples: Tensor) -> Tensor:
    """Samples in -1..1 -> int16 of the same shape; a NaN becomes 0 (rows are flagged apart)."""
    return (samples.nan_to_num(0.0) * _FULL_SCALE_PCM16).round().to(torch.int16)


def penalised_scores(
    logits: Tensor,
    seen: Tensor,
    slots: Tensor,
    penalty: Tensor,
    bans: Tensor,
    eos_legal: Tensor,
) -> Tensor:
    """Apply the repetition penalty, then the bans.

    Args:
        logits: [B, V] in the model's dtype; the result is fp32.
        seen: [S, V] bool, codes this request has drawn.
        slots: [B].
        penalty: [B], divides a positive score of a seen code and multiplies a negative one.
        bans: [2, V] of 0 and -inf: row 0 bans end of speech too, row 1 lets it be.
        eos_legal: [B] int64, 0 or 1: which of the two rows applies.
    """
    scores = logits.float()
    penalty = penalty[:, None]
    damped = torch.where(scores < 0, scores * penalty, scores / penalty)
    scores = torch.where(seen.index_select(0, slots), damped, scores)
    return scores + bans.index_select(0, eos_legal)


def greedy_tokens(scores: Tensor) -> Tensor:
    """First code with the largest score: [B, V] -> [B]."""
    return scores.argmax(dim=-1)


def sample_tokens(
    scores: Tensor,
    uniforms: Tensor,
    temperature: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    *,
    top_k_cap: int | None,
) -> Tensor:
    """Draw one code a row: temperature, top-k, top-p, then the inverse of the summed mass.

    The draw walks the vocabulary in its own order, so the code depends only on the row's scores
    and its uniform number, not on how the kept set was found. Ties at a threshold stay in.

    Args:
        scores: [B, V], -inf where banned; what follows from them is fp32 whatever they are.
        uniforms: [B] in [0, 1); 0 with top-k 1 gives the greedy code.
        temperature: [B].
        top_k: [B] int64 in 1..V, and within `top_k_cap` where that is given.
        top_p: [B]; 1 or more keeps the whole top-k set.
        top_k_cap: a partial selection of so many scores finds the kept set; None searches the
            whole vocabulary by bits instead. Neither sorts the vocabulary.

    Returns:
        [B] int64.
    """
    kept = kept_scores(scores, temperature, top_k, top_p, top_k_cap=top_k_cap)
    mass = kept.softmax(dim=-1).cumsum(dim=-1)
    target = mass[:, -1:] * uniforms[:, None]
    # Counting instead of searching: a code of no mass repeats its neighbour's sum and is skipped.
    return (mass <= target).sum(dim=-1)


def kept_scores(
    scores: Tensor,
    temperature: Tensor,
    top_k: Tensor,
    top_p: Tensor,
    *,
    top_k_cap: int | None,
) -> Tensor:
    """Scores [B, V] over temperature, -inf where top-k or top-p drops a code; see `sample_tokens`.

    A score stays while those strictly above it are fewer than `top_k` and hold less than `top_p`
    of the top-k set's mass.
    """
    scores = scores / temperature[:, None]  # fp32 by promotion
    if top_k_cap is None:
        threshold = _searched_threshold(scores, top_k, top_p)
    else:
        threshold = _selected_threshold(scores, top_k, top_p, cap=top_k_cap)
    return scores.masked_fill(scores < threshold, float("-inf"))


def _selected_threshold(scores: Tensor, top_k: Tensor, top_p: Tensor, *, cap: int) -> Tensor:
    """Smallest kept score [B, 1], from the `cap` best of each row."""
    best = scores.topk(cap, dim=-1).values  # [B, V] -> [B, cap], best first
    kth = best.gather(1, top_k[:, None] - 1)
    out = best < kth
    share = best.masked_fill(out, float("-inf")).softmax(dim=-1)
    # A score leaves when those above it already hold top_p of the mass.
    out = out | (share.cumsum(dim=-1) - share >= top_p[:, None])
    return best.masked_fill(out, float("inf")).amin(dim=-1, keepdim=True)


def _searched_threshold(scores: Tensor, top_k: Tensor, top_p: Tensor) -> Tensor:
    """Smallest kept score [B, 1], by bit search over keys that order as the scores do."""
    bits = scores.view(torch.int32)
    keys = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    kth = _largest_key(keys, torch.ones_like(scores), top_k[:, None].to(scores.dtype))
    share = scores.masked_fill(keys < kth, float("-inf")).softmax(dim=-1)
    nucleus = _largest_key(keys, share, top_p[:, None])
    key = torch.maximum(kth, nucleus)
    return (key ^ ((key >> 31) & 0x7FFFFFFF)).view(torch.float32)


def _largest_key(keys: Tensor, weights: Tensor, wanted: Tensor) -> Tensor:
    """Largest key [B, 1] such that the weights of all keys from it up reach `wanted` [B, 1]."""
    low = torch.full_like(keys[:, :1], -(2**31))
    for bit in range(31, -1, -1):
        # Bit 31 first: adding it to the smallest int32 gives 0, the smallest non-negative key.
        trial = low + (1 << bit) if bit < 31 else torch.zeros_like(low)
        reached = (weights * (keys >= trial)).sum(dim=-1, keepdim=True)
        low = torch.where(reached >= wanted, trial, low)
    return low


def philox_uniform(seed: Tensor, counter: Tensor, *, num_lanes: int) -> Tensor:
    """Counter-based uniform numbers: [B] seeds and counters -> [B, num_lanes] fp32 in [0, 1).

    Lane n is the first Philox word at offset `counter * num_lanes + n`, so a draw is addressed by
    (request seed, codec frame, codebook) and depends on nothing else. Bit-equal to
    `triton.language.rand` at that seed and offset.
    """
    lanes = torch.arange(num_lanes, device=seed.device)
    offset = counter[:, None] * num_lanes + lanes
    # Both halves of the generator advance as one stacked tensor: half the operations.
    pair = torch.arange(2, device=seed.device).view(2, 1, 1)
    multiplier = pair * (_PHILOX_MULTIPLIER_B - _PHILOX_MULTIPLIER_A) + _PHILOX_MULTIPLIER_A
    key_step = pair * (_PHILOX_KEY_B - _PHILOX_KEY_A) + _PHILOX_KEY_A
    key = torch.stack((seed & _LOW_WORD, (seed >> 32) & _LOW_WORD))[:, :, None]
    even = torch.stack((offset & _LOW_WORD, torch.zeros_like(offset)))  # words 0 and 2
    odd = torch.stack(((offset >> 32) & _LOW_WORD, torch.zeros_like(offset)))  # words 1 and 3
    for _ in range(_PHILOX_ROUNDS):
        product = (even * multiplier).flip(0)
        even = ((product >> 32) & _LOW_WORD) ^ odd ^ key
        odd = product & _LOW_WORD
        key = (key + key_step) & _LOW_WORD
    word = even[0]
    return torch.minimum(word, _LOW_WORD - word).to(torch.float32) * _UNIFORM_SCALE
