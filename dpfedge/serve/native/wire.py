# SPDX-License-Identifier: Apache-2.0
"""The bytes between a native client and this server: hello and welcome, and the numbers of NATIVE.md.

`firmware_bridge/client/client_wire.h` is the same in C; a test compares them. It sends nothing.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Any, NamedTuple

from dpfedge.errors import DpfError, UsageError
from dpfedge.link import LinkSpec
from dpfedge.serve.errors import RequestError

__all__ = [
    "CLIENT",
    "EVENT",
    "HEARD_UNKNOWN",
    "LINKS",
    "MAJOR",
    "MINOR",
    "SERVER",
    "STOP",
    "Command",
    "Done",
    "EventKind",
    "Flag",
    "Hello",
    "refusal",
    "welcome",
]

MAJOR, MINOR = 1, 0
CLIENT, SERVER = 1, 2
"""Owners of the ports."""
HEARD_UNKNOWN = 0xFFFFFFFF

LINKS = (
    LinkSpec("microphone", "client", "server", slots=64, slot_bytes=4096),
    LinkSpec("stops", "client", "server", slots=8, slot_bytes=64),
    LinkSpec("events", "server", "client", slots=128, slot_bytes=4096),
    LinkSpec("sound", "server", "client", slots=64, slot_bytes=8192),
)
"""The rings of a session, in the order of the arena."""

EVENT = struct.Struct("<4I")
"""Before the text of an event: code, at_ms, bytes of text, whether more text follows."""
STOP = struct.Struct("<2I")
"""A message in the stops' ring: milliseconds heard, and the bound it set."""

_HELLO = struct.Struct("<4s2H7I28x")
_WELCOME = struct.Struct("<4s2H2IQ2I32x")
_NO_TEXT = 0xFFFFFFFF
_WHY_MAX = 4096
_STATUS = {403: 4, 426: 5, 503: 6, 429: 7, 400: 8}
_FAILED = 13


class Command(IntEnum):
    """Kinds of messages in the microphone's ring."""

    SAMPLES = 1
    COMMIT = 2
    CLEAR = 3
    SAY = 4
    RESPOND = 5
    CANCEL = 6


class EventKind(IntEnum):
    """Kinds of events."""

    SPEECH_STARTED = 1
    SPEECH_STOPPED = 2
    WORDS = 3
    TRANSCRIPT = 4
    ANSWER_STARTED = 5
    ANSWER_TEXT = 6
    ANSWER_DONE = 7
    ERROR = 8


class Done(IntEnum):
    """How an answer ended."""

    COMPLETED = 0
    TOO_LONG = 1
    CANCELLED = 2
    BROKEN = 3


class Flag(IntEnum):
    """Bits of a hello's flags."""

    BY_HAND = 1
    TEXT_ONLY = 2
    NO_BARGE_IN = 4
    ASK_TO_ANSWER = 8


class Hello(NamedTuple):
    """What a client asks for."""

    flags: int
    input_hz: int
    output_hz: int
    """0: the voice's own."""
    silence_ms: int
    """0: as the package says."""
    max_answer_tokens: int
    """0: as the package says."""
    instructions: str | None

    @classmethod
    def read(cls, packet: bytes) -> Hello:
        """The hello in a packet; RequestError when it is none, of another version (426) or asks for what is unknown."""
        if len(packet) < _HELLO.size or packet[:4] != b"DPFC":
            raise _wrong("no hello", found=f"{len(packet)} bytes", allowed="the first packet of dpf/client.h")
        _, major, minor, nbytes, flags, input_hz, output_hz, silence, tokens, words = _HELLO.unpack_from(packet)
        if major != MAJOR:
            raise RequestError(
                "another version of the protocol", where="native hello", status=426, found=f"{major}.{minor}",
                allowed=f"{MAJOR}.x", remedy="use the libdpfedge of this server's version",
            )  # fmt: skip
        told = 0 if words == _NO_TEXT else words
        if nbytes < _HELLO.size or nbytes + told != len(packet):
            raise _wrong("sizes do not add up", found=f"{nbytes} + {told}", allowed=f"{len(packet)} bytes together")
        if flags & ~sum(Flag):
            raise _wrong("unknown flags", found=hex(flags), allowed=hex(sum(Flag)))
        text = None if words == _NO_TEXT else _text(packet[nbytes:])
        return cls(flags, input_hz, output_hz, silence, tokens, text)

    def pack(self) -> bytes:
        """The packet that `read` reads."""
        text = b"" if self.instructions is None else self.instructions.encode()
        length = _NO_TEXT if self.instructions is None else len(text)
        return _HELLO.pack(b"DPFC", MAJOR, MINOR, _HELLO.size, *self[:5], length) + text


def _wrong(what: str, **parts: Any) -> RequestError:
    return RequestError(what, where="native hello", **parts)


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise _wrong("instructions are not UTF-8", found=f"byte {error.start}") from error


def welcome(key: int, input_hz: int, output_hz: int) -> bytes:
    """What a client is told with its descriptors."""
    return _WELCOME.pack(b"DPFS", MAJOR, MINOR, 0, 0, key, input_hz, output_hz)


def refusal(error: DpfError) -> bytes:
    """What a client is told instead."""
    why = str(error).encode()[:_WHY_MAX].decode(errors="ignore").encode()
    status = _STATUS.get(error.http_status, 8 if isinstance(error, UsageError) else _FAILED)
    return _WELCOME.pack(b"DPFS", MAJOR, MINOR, status, len(why), 0, 0, 0) + why
