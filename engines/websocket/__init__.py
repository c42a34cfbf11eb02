"""Engines that speak over a WebSocket: one small state machine a protocol."""
