"""The least time a step can take: its bytes over the bandwidth, or its FLOPs over the rate.

Both ceilings are measured on the device itself, by a large copy and a large matrix product.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from reference_engine.batch import Shape, Stage
from reference_engine.clock import Clock
from reference_engine.codec.decoder import CodecModel
from reference_engine.model.layers import StackWeights
from reference_engine.model.tts_model import TtsModel

__all__ = ["Ceilings", "Floor", "StageWork", "floor_of", "measure_ceilings", "stage_work"]

_NS_PER_S = 1_000_000_000
_REPEATS = 8


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What the device was seen to do: bytes read plus written, and FLOPs of a matrix product."""

    bytes_per_s: float
    model_flops_per_s: float  # in the model's dtype
    codec_flops_per_s: float  # in the codec's dtype


@dataclass(frozen=True, slots=True)
class StageWork:
    """What one call must at least read, and compute."""

    num_bytes: int
    num_flops: int


@dataclass(frozen=True, slots=True)
class Floor:
    """The larger of two times, and which it is."""

    floor_ms: float
    limit: str  # "bytes" or "flops"


def floor_of(work: StageWork, ceilings: Ceilings, stage: Stage) -> Floor:
    """The least time of a call."""
    is_codec = stage is Stage.CODEC
    rate = ceilings.codec_flops_per_s if is_codec else ceilings.model_flops_per_s
    bytes_ms = work.num_bytes / ceilings.bytes_per_s * 1e3
    flops_ms = work.num_flops / rate * 1e3
    return Floor(max(bytes_ms, flops_ms), "bytes" if bytes_ms >= flops_ms else "flops")


def stage_work(model: TtsModel, codec: CodecModel, shape: Shape, *, context: int) -> StageWork:
    """Weights read once a pass, keys and values, and two FLOPs a weight and token.

    Args:
        model: loaded.
        codec: loaded.
        shape: padding counts, since it is computed like any row.
        context: talker positions behind each row.
    """
    if shape.stage is Stage.CODEC:
        return _codec_work(codec, shape)
    if shape.stage is Stage.PREFILL:
        return _prefill_work(model, shape)
    talker, predictor = _talker_work(model, shape.rows, context), _predictor_work(model, shape.rows)
    if shape.stage is Stage.TALKER:
        return talker
    if shape.stage is Stage.PREDICTOR:
        return predictor
    return StageWork(talker.num_bytes + predictor.num_bytes, talker.num_flops + predictor.num_flops)


def _matrices(stack: StackWeights) -> int:
    return sum(
        each.qkv.numel() + each.out.numel() + each.gate_up.numel() + each.down.numel()
        for each in stack.layers
    )


def _talker_work(model: TtsModel, rows: int, context: int) -> StageWork:
    weights, stack = model.talker, model.config.talker.stack
    numel = _matrices(weights.stack) + weights.head.numel()
    numel += weights.text_fc1.numel() + weights.text_fc2.numel()
    history = rows * context * 2 * stack.num_layers * stack.kv_size
    attention = rows * context * 4 * stack.num_layers * stack.query_size
    size = weights.head.element_size()
    return StageWork((numel + history) * size, 2 * numel * rows + attention)


def _predictor_work(model: TtsModel, rows: int) -> StageWork:
    """One pass of two tokens, fourteen of one: the weights are read again in each."""
    weights, num_codebooks = model.predictor, model.config.num_codebooks
    stack = _matrices(weights.stack)
    heads = sum(head.numel() for head in weights.heads)
    projection = 0 if weights.projection is None else weights.projection.numel()
    read = (num_codebooks - 1) * stack + heads + projection
    computed = num_codebooks * stack + heads + projection
    return StageWork(read * weights.inputs.element_size(), 2 * computed * rows)


def _prefill_work(model: TtsModel, shape: Shape) -> StageWork:
    weights, tokens = model.talker, shape.rows * shape.width
    numel = _matrices(weights.stack) + weights.text_fc1.numel() + weights.text_fc2.numel()
    attention = tokens * shape.width * 2 * model.config.talker.stack.query_size
    attention *= model.config.talker.stack.num_layers
    return StageWork(numel * weights.head.element_size(), 2 * numel * tokens + attention)


def _codec_work(codec: CodecModel, shape: Shape) -> StageWork:
    """Every weight once; FLOPs of each layer at the rate its columns come."""
    weights, frames = codec.weights, shape.rows * shape.width
    numel = sum(t.numel() for t in _tensors(weights)) - weights.codebooks.numel()
    per_frame, flops = 1, weights.pre_conv.weight.numel()
    transformer = weights.transformer
    flops += transformer.input.numel() + transformer.output.numel()
    for layer in transformer.layers:
        flops += layer.qkv.numel() + layer.out.numel() + layer.gate_up.numel() + layer.down.numel()
    for stage in weights.upsample:
        flops += stage.transposed.weight.numel() * per_frame
        per_frame *= stage.rate
        dense = stage.depthwise.weight.numel() + stage.expand.numel() + stage.project.numel()
        flops += dense * per_frame
    flops += weights.first_conv.weight.numel() * per_frame
    for block in weights.blocks:
        flops += block.transposed.weight.numel() * per_frame
        per_frame *= block.rate
        units = sum(u.conv1.weight.numel() + u.conv2.weight.numel() for u in block.units)
        flops += units * per_frame
    flops += weights.final_conv.weight.numel() * per_frame
    return StageWork(numel * weights.codebooks.element_size(), 2 * flops * frames)


def _tensors(value: Any) -> Iterator[Tensor]:
    """Every tensor of a tree of dataclasses and tuples."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _tensors(item)
    elif is_dataclass(value):
        for field in fields(value):
            yield from _tensors(getattr(value, field.name))


def measure_ceilings(
    device: torch.device, *, model_dtype: torch.dtype, codec_dtype: torch.dtype, clock: Clock
) -> Ceilings:
    """Time a large copy and large products of random numbers; the best of several."""
    is_cuda = device.type == "cuda"
    num_values, size = (1 << 28, 8192) if is_cuda else (1 << 23, 512)
    source = torch.randn(num_values, device=device)
    target = torch.empty_like(source)
    copy_s = _best_s(lambda: target.copy_(source), device, clock)
    rates = {}
    for dtype in {model_dtype, codec_dtype}:
        a = torch.randn(size, size, device=device).to(dtype)
        b = torch.randn(size, size, device=device).to(dtype)
        rates[dtype] = 2 * size**3 / _best_s(lambda a=a, b=b: a.mm(b), device, clock)
    moved = 2 * num_values * source.element_size()
    return Ceilings(moved / copy_s, rates[model_dtype], rates[codec_dtype])


def _best_s(work: Any, device: torch.device, clock: Clock) -> float:
    spent = []
    for _ in range(_REPEATS):
        start_ns = clock.now_ns()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        spent.append(clock.now_ns() - start_ns)
    # The first one compiles and allocates; a clock too coarse to see the work counts one tick.
    return max(1, min(spent[1:])) / _NS_PER_S
