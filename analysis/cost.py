"""What speech costs: from a price per hour and a measured rate, or from a list price.

Every figure carries its inputs. A machine that is measured at its best rate is neither always
full nor alone: utilisation and spare replicas are inputs, and they are told.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from analysis.capacity import Capacity
from analysis.number_words import figure

__all__ = ["Cost", "CostInputs", "Pricing", "cost_at_capacity", "cost_of", "cost_of_hosted"]

_S_PER_HOUR = 3600.0
_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class CostInputs:
    """What a cost rests on.

    price_per_hour: of one replica. rate_rps: that one replica carries within the objective.
    characters_per_request, audio_s_per_request: means of the measured requests.
    utilisation: share of the measured rate that is used on average. num_replicas: in use;
    num_spare: paid for and idle, so that one may fail (N + 1).
    """

    price_per_hour: float
    rate_rps: float
    characters_per_request: float
    audio_s_per_request: float | None = None
    utilisation: float = 1.0
    num_replicas: int = 1
    num_spare: int = 0
    currency: str = "USD"

    def __post_init__(self) -> None:
        positive = {
            "price_per_hour": self.price_per_hour,
            "rate_rps": self.rate_rps,
            "characters_per_request": self.characters_per_request,
            "utilisation": self.utilisation,
        }
        for name, value in positive.items():
            if not 0 < value < math.inf:
                raise ValueError(f"cost: {name} is {value}, expected a number above 0")
        if self.utilisation > 1 or self.num_replicas < 1 or self.num_spare < 0:
            raise ValueError(
                f"cost: utilisation {self.utilisation:g} (at most 1), {self.num_replicas} replicas"
                f" (at least 1), {self.num_spare} spare (at least 0)"
            )


@dataclass(frozen=True, slots=True)
class Cost:
    """Per million characters and per hour of audio, with the sentence that says from what."""

    per_million_characters: float
    per_audio_hour: float | None
    currency: str
    basis: str

    def __str__(self) -> str:
        audio = (
            "" if self.per_audio_hour is None
            else f", {figure(self.per_audio_hour, 3)} {self.currency} per hour of audio"
        )  # fmt: skip
        characters = f"{figure(self.per_million_characters, 3)} {self.currency}"
        return f"{characters} per million characters{audio} ({self.basis})"


def cost_of(inputs: CostInputs) -> Cost:
    """The cost of a server that one pays by the hour.

    per million characters = price of all replicas per hour / characters that they speak per hour.
    """
    paid = inputs.price_per_hour * (inputs.num_replicas + inputs.num_spare)
    requests = inputs.rate_rps * inputs.utilisation * inputs.num_replicas * _S_PER_HOUR
    per_audio_hour = None
    if inputs.audio_s_per_request:
        per_audio_hour = paid / (requests * inputs.audio_s_per_request / _S_PER_HOUR)
    spare = f", {inputs.num_spare} spare" if inputs.num_spare else ""
    return Cost(
        per_million_characters=paid / (requests * inputs.characters_per_request) * _MILLION,
        per_audio_hour=per_audio_hour,
        currency=inputs.currency,
        basis=(
            f"{figure(inputs.price_per_hour, 6)} {inputs.currency} per replica and hour,"
            f" {inputs.num_replicas} replica{'s' if inputs.num_replicas > 1 else ''}{spare},"
            f" {figure(inputs.rate_rps, 3)} requests/s each of"
            f" {inputs.characters_per_request:.0f} characters,"
            f" {100 * inputs.utilisation:.0f} % utilisation"
        ),
    )


def cost_of_hosted(
    price_per_million_characters: float,
    *,
    characters_per_audio_s: float | None = None,
    currency: str = "USD",
) -> Cost:
    """The cost of a service with a list price per character.

    Args:
        price_per_million_characters: as listed.
        characters_per_audio_s: of the measured replies, for a price per hour of audio.
        currency: of the list.
    """
    if not 0 <= price_per_million_characters < math.inf:
        raise ValueError(f"cost: a list price of {price_per_million_characters} is no price")
    per_audio_hour = None
    if characters_per_audio_s:
        characters = characters_per_audio_s * _S_PER_HOUR
        per_audio_hour = price_per_million_characters * characters / _MILLION
    return Cost(price_per_million_characters, per_audio_hour, currency, "list price")


@dataclass(frozen=True, slots=True)
class Pricing:
    """What a person knows about prices: per hour of a machine, or per million characters."""

    per_hour: float | None = None
    per_million_characters: float | None = None
    utilisation: float = 1.0
    num_replicas: int = 1
    num_spare: int = 0
    currency: str = "USD"


def cost_at_capacity(found: Capacity, pricing: Pricing) -> Cost | None:
    """The cost at the lower end of a capacity, which certainly meets the objective.

    What counts is how many requests were sent there per second, not how many the plan was named by.
    None where there is no such rate, no price, or nothing was spoken that could be counted.

    Raises:
        ValueError: a price, utilisation or number of replicas that cannot be.
    """
    point = next((p for p in found.curve if p.rate_rps == found.lo_rps), None)
    if point is None or not point.num_characters:
        return None
    if pricing.per_million_characters is not None:
        per_s = point.num_characters / point.audio_s if point.audio_s else None
        return cost_of_hosted(
            pricing.per_million_characters,
            characters_per_audio_s=per_s,
            currency=pricing.currency,
        )
    if pricing.per_hour is None:
        return None
    return cost_of(
        CostInputs(
            price_per_hour=pricing.per_hour,
            rate_rps=point.achieved_rps or point.rate_rps,
            characters_per_request=point.num_characters,
            audio_s_per_request=point.audio_s,
            utilisation=pricing.utilisation,
            num_replicas=pricing.num_replicas,
            num_spare=pricing.num_spare,
            currency=pricing.currency,
        )
    )
