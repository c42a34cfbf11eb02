"""The prompts that the official package and this engine both speak, greedily, in fp32.

Both layouts; with and without instruction; named and no language; dialect voices in and out of
Chinese; one token; CJK; emoji; combining marks; long texts; texts that outlast the codec frames and
texts that end before them; stops by end of speech and by the limit.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

__all__ = ["LARGE", "SMALL", "SpokenRequest"]

_LONG = (
    "In the long run the user hears and the others hear, and all of the things said here are "
    "said once more to the end: 3 times, 14 ways, 159 words. And then he's done; isn't he?"
)


@dataclass(frozen=True, slots=True)
class SpokenRequest:
    """One request; `trace` keeps the scores behind every code."""

    key: str
    text: str
    speaker: str = "ryan"
    language: str = "english"
    instruct: str = ""
    layout: str = "streaming"
    max_new_tokens: int = 11
    trace: bool = False

    def as_job(self) -> dict[str, object]:
        """As the official runner reads it."""
        return asdict(self)


LARGE = (
    SpokenRequest("plain", "hello the user", max_new_tokens=32, trace=True),
    SpokenRequest("plain-whole", "hello the user", layout="whole", max_new_tokens=32, trace=True),
    SpokenRequest("auto", "another thing to hear", language="auto"),
    SpokenRequest("auto-whole", "another thing to hear", language="Auto", layout="whole"),
    SpokenRequest("instruct", "and the others", instruct="be calm and slow", trace=True),
    SpokenRequest("instruct-whole", "and the others", instruct="be calm", layout="whole"),
    SpokenRequest("instruct-cjk", "和其他人", instruct="请用平静的语气", language="chinese"),
    SpokenRequest("dylan-auto", "你好，我们说话。", speaker="Dylan", language="auto"),
    SpokenRequest("dylan-chinese", "你好，我们说话。", speaker="dylan", language="Chinese"),
    SpokenRequest("dylan-english", "hello there", speaker="dylan"),
    SpokenRequest("eric-auto", "你好", speaker="eric", language="auto", layout="whole"),
    SpokenRequest("eric-chinese", "你好", speaker="ERIC", language="chinese", layout="whole"),
    SpokenRequest("one-token", "a"),
    SpokenRequest("one-token-whole", "a", layout="whole"),
    SpokenRequest(
        "chinese", "今天天气很好，我们去公园散步吧。", speaker="vivian", language="chinese"
    ),
    SpokenRequest("japanese", "こんにちは、世界。は", speaker="ono_anna", language="japanese"),
    SpokenRequest("korean", "안녕하세요, 세계", speaker="sohee", language="korean"),
    SpokenRequest("russian", "Привет, как дела?", speaker="aiden", language="russian"),
    SpokenRequest("emoji", "well 😀👩‍👩‍👧 done 🎉!", speaker="serena"),
    SpokenRequest("emoji-whole", "🎉", speaker="serena", layout="whole"),
    SpokenRequest("marks", "cafe\u0301 na\u0308ive e\u0301", speaker="uncle_fu", language="french"),
    SpokenRequest("breaks", "one\ntwo \n\n three  and\tfour\n", language="german"),
    SpokenRequest("signs", "3.50$ -- (what?!) 'll it's the user's", language="italian"),
    SpokenRequest("long", _LONG, language="english", max_new_tokens=16),
    SpokenRequest("long-whole", _LONG, language="spanish", layout="whole", max_new_tokens=16),
    SpokenRequest("limit-two", "cut after one", language="portuguese", max_new_tokens=2),
)
SMALL = (
    SpokenRequest("small", "hello the user", max_new_tokens=20, trace=True),
    SpokenRequest("small-whole", "你好，the others", language="auto", layout="whole"),
    SpokenRequest("small-instruct", "and then", instruct="this is dropped", layout="whole"),
    SpokenRequest("small-dialect", "你好", speaker="dylan", language="auto"),
)
