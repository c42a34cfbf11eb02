# SPDX-License-Identifier: GPL-3.0-or-later
"""The bundled real voice: a small HTTP server around piper-tts, run only as its own process.

This folder imports a GPL package and is GPL-3.0-or-later (see LICENSE beside this file).
Nothing outside it imports it; it is started with `python -m engines.embedded`.
"""
