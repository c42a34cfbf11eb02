"""Bookkeeping of slots and positions: integers only, no tensors."""

from __future__ import annotations

from reference_engine.cache.slots import SlotLedger

__all__ = ["SlotLedger"]
