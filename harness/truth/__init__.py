"""The truth server and its own arithmetic: what the toolkit's clock is checked against.

Reading order: `sound` (clips with a known onset), `script` (what is written when), `book` (named
scripts), `framing` and `marks` (bytes), `connection`, `player`, `protocol`, `server`, `log`, then
`expected` (what a client should have measured) and `noise` (whether this host can tell).
"""
