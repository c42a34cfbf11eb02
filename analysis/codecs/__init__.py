"""Compressed audio in chunks: MP3, AAC in ADTS, Ogg Opus, FLAC.

Frames and pages are found here, by own walkers that give the same frames for any split and know
which byte completes one; only their contents go to a decoder (PyAV, extra `codecs`). Container
readers of media libraries would read ahead and hide when a sample could have been played.
"""

from __future__ import annotations

from analysis.codecs.adts import AdtsStream
from analysis.codecs.flac import FlacStream
from analysis.codecs.mp3 import Mp3Stream
from analysis.codecs.ogg_opus import OggOpusStream
from analysis.codecs.packets import NO_DECODER, UNTRIMMED, decoder_version
from analysis.pcm import SampleSink
from analysis.stream import SampleStream
from engines.base import SampleFormat

__all__ = ["NO_DECODER", "UNTRIMMED", "decoder_version", "open_codec"]


def open_codec(sample_format: SampleFormat, sink: SampleSink) -> SampleStream:
    """A stream that decodes a compressed format into `sink`.

    Raises:
        UnsupportedAudioError: the extra `codecs` is not installed.
    """
    match sample_format:
        case SampleFormat.MP3:
            return Mp3Stream(sink)
        case SampleFormat.AAC:
            return AdtsStream(sink)
        case SampleFormat.OGG_OPUS:
            return OggOpusStream(sink)
        case SampleFormat.FLAC:
            return FlacStream(sink)
        case _:
            raise AssertionError(f"{sample_format} is not compressed")
