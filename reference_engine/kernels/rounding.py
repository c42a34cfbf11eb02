"""What every fused kernel needs: fp32 arithmetic that rounds where the plain twins round.

Kernels load, widen to fp32, compute, and round with `rounded` wherever a twin in a narrower dtype
would have stored an intermediate. Casting is left to the store: Triton's interpreter truncates
fp32 to bf16, so the bits below bf16 must be gone by then; on a GPU the cast then changes nothing.
Kernels are compiled without fused multiply-add, whose missing rounding no twin has.
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["rounded"]


@triton.jit
def rounded(x, dtype: tl.constexpr):
    """An fp32 value as `dtype` would hold it, still in fp32: to nearest, ties to even."""
    if dtype == tl.bfloat16:
        bits = x.to(tl.uint32, bitcast=True)
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
        # A NaN could overflow into a number: keep it as it is, its upper bits say enough.
        result = tl.where(x == x, bits.to(tl.float32, bitcast=True), float("nan"))
    elif dtype == tl.float16:
        result = x.to(tl.float16).to(tl.float32)
    else:
        result = x
    return result
