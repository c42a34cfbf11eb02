"""How a code is drawn: the settings of a request, and the sampler a batch is captured with."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from reference_engine.errors import SamplingError
from reference_engine.model.config import GenerationDefaults

__all__ = [
    "DEFAULT_PLAN",
    "GREEDY_PLAN",
    "SamplerKind",
    "SamplerPlan",
    "SamplingSettings",
]

# A Philox key is read as unsigned 64 bit but stored as int64.
_SEED_LIMIT = 1 << 63
# End of speech is legal from the third token on: official generate() fixes min_new_tokens to 2.
_OFFICIAL_MIN_TOKENS = 2
_NEVER = 1 << 40


class SamplerKind(Enum):
    """Which arithmetic finds the kept set; all three draw the same code for the same request."""

    # Largest score; only for batches in which every slot is greedy.
    GREEDY = "greedy"
    # One partial selection of the `top_k_cap` best; every slot's top-k is within the cap.
    CAPPED = "capped"
    # Bit search over the whole vocabulary; any top-k, any top-p.
    ANY = "any"


@dataclass(frozen=True, slots=True)
class SamplerPlan:
    """The sampler of one captured graph: a static choice, never read from a tensor."""

    kind: SamplerKind
    top_k_cap: int = 64

    def serves(self, settings: SamplingSettings) -> bool:
        """Whether a request with these settings may ride in a batch of this plan."""
        if self.kind is SamplerKind.ANY:
            return True
        sampled = (
            *((settings.top_k,) if settings.do_sample else ()),
            *((settings.predictor_top_k,) if settings.predictor_do_sample else ()),
        )
        if self.kind is SamplerKind.GREEDY:
            return not sampled
        return all(0 < top_k <= self.top_k_cap for top_k in sampled)


GREEDY_PLAN = SamplerPlan(SamplerKind.GREEDY)
DEFAULT_PLAN = SamplerPlan(SamplerKind.CAPPED)


@dataclass(frozen=True, slots=True)
class SamplingSettings:
    """One request's sampling settings, validated; `top_k` 0 and `top_p` 1 switch those off."""

    do_sample: bool
    temperature: float
    top_k: int
    top_p: float
    repetition_penalty: float
    predictor_do_sample: bool
    predictor_temperature: float
    predictor_top_k: int
    predictor_top_p: float
    seed: int = 0
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        """Raise `SamplingError` naming the first setting that is out of range."""
        positive = ("temperature", "repetition_penalty", "predictor_temperature")
        for name in positive:
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise SamplingError(f"{name}: {value} is not a number above 0")
        for name in ("top_k", "predictor_top_k"):
            if getattr(self, name) < 0:
                raise SamplingError(f"{name}: {getattr(self, name)} is below 0 (0 switches it off)")
        for name in ("top_p", "predictor_top_p"):
            if not 0 < getattr(self, name) <= 1:
                raise SamplingError(f"{name}: {getattr(self, name)} is not above 0 and at most 1")
        if not 0 <= self.seed < _SEED_LIMIT:
            raise SamplingError(f"seed: {self.seed} is not in 0..2^63-1")

    @classmethod
    def from_defaults(
        cls, defaults: GenerationDefaults, *, seed: int = 0, ignore_eos: bool = False
    ) -> SamplingSettings:
        """The checkpoint's own settings (generation_config.json)."""
        return cls(
            do_sample=defaults.do_sample,
            temperature=defaults.temperature,
            top_k=defaults.top_k,
            top_p=defaults.top_p,
            repetition_penalty=defaults.repetition_penalty,
            predictor_do_sample=defaults.predictor_do_sample,
            predictor_temperature=defaults.predictor_temperature,
            predictor_top_k=defaults.predictor_top_k,
            predictor_top_p=defaults.predictor_top_p,
            seed=seed,
            ignore_eos=ignore_eos,
        )

    @classmethod
    def greedy(
        cls, *, repetition_penalty: float = 1.05, ignore_eos: bool = False
    ) -> SamplingSettings:
        """Largest score everywhere; the repetition penalty still applies, as in the original."""
        return cls(
            do_sample=False,
            temperature=1.0,
            top_k=1,
            top_p=1.0,
            repetition_penalty=repetition_penalty,
            predictor_do_sample=False,
            predictor_temperature=1.0,
            predictor_top_k=1,
            predictor_top_p=1.0,
            ignore_eos=ignore_eos,
        )

    def slot_values(self) -> dict[str, float]:
        """Values as `SamplingState` stores them, by field name."""
        talker = _draw_values(self.do_sample, self.temperature, top_k=self.top_k, top_p=self.top_p)
        predictor = _draw_values(
            self.predictor_do_sample,
            self.predictor_temperature,
            top_k=self.predictor_top_k,
            top_p=self.predictor_top_p,
        )
        return {
            **talker,
            **{f"predictor_{name}": value for name, value in predictor.items()},
            "repetition_penalty": self.repetition_penalty,
            "seed": self.seed,
            "min_tokens": _NEVER if self.ignore_eos else _OFFICIAL_MIN_TOKENS,
        }


def _draw_values(
    do_sample: bool, temperature: float, *, top_k: int, top_p: float
) -> dict[str, float]:
    """One stage's settings; greedy is top-k 1 with the random number held at 0."""
    if not do_sample:
        return {"temperature": 1.0, "top_k": 1, "top_p": 2.0, "draws": 0.0}
    return {
        "temperature": temperature,
        # Off is "more than any vocabulary"; the kernels clamp.
        "top_k": top_k if top_k > 0 else _NEVER,
        "top_p": top_p if top_p < 1 else 2.0,
        "draws": 1.0,
    }
