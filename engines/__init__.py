"""How to talk to a text-to-speech server, without a socket, a clock or a decoder."""
