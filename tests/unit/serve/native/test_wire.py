# SPDX-License-Identifier: Apache-2.0
"""Hellos, welcomes and numbers: what C and Python must agree on."""

from __future__ import annotations

import re
from enum import IntEnum
from pathlib import Path

import pytest

from dpfedge.errors import Busy, DpfError, UsageError
from dpfedge.serve.errors import NotReady, RequestError, Stopping
from dpfedge.serve.native.wire import (
    LINKS,
    MAJOR,
    MINOR,
    Command,
    Done,
    EventKind,
    Flag,
    Hello,
    refusal,
    welcome,
)

BRIDGE = Path(__file__).parents[4] / "firmware_bridge"
HELLO = Hello(Flag.BY_HAND, 16_000, 48_000, 700, 100, "Sei kurz. 🚗")


def constants() -> dict[str, int]:
    """Every number that the C headers name."""
    text = (BRIDGE / "include/dpf/client.h").read_text() + (BRIDGE / "client/client_wire.h").read_text()
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    found = {name: int(value) for name, value in re.findall(r"\b(DPF_\w+) = (-?\d+)\b", text)}
    return found | {name: int(value) for name, value in re.findall(r"#define (DPF_\w+) (\d+)\n", text)}


@pytest.mark.parametrize(
    ("kinds", "prefix"),
    [
        (Command, "DPF_WIRE_"),
        (EventKind, "DPF_CLIENT_"),
        (Done, "DPF_CLIENT_"),
        (Flag, "DPF_CLIENT_"),
    ],
)
def test_numbers__are_those_of_the_headers(kinds: type[IntEnum], prefix: str) -> None:
    """An event, a command and a flag mean the same on both sides."""
    known = constants()
    assert {one.name: known[prefix + one.name] for one in kinds} == {one.name: int(one) for one in kinds}


def test_version_and_rings__are_those_of_the_headers() -> None:
    """The order of the rings is the order of the links."""
    known = constants()
    assert (known["DPF_CLIENT_MAJOR"], known["DPF_CLIENT_MINOR"]) == (MAJOR, MINOR)
    assert [known[f"DPF_WIRE_{spec.name.upper()}"] for spec in LINKS] == [0, 1, 2, 3]
    assert known["DPF_WIRE_SAY_MAX"] == LINKS[0].slot_bytes


def test_hello__comes_back() -> None:
    """With and without instructions; an empty text is not none."""
    for one in (HELLO, HELLO._replace(instructions=None), HELLO._replace(instructions="")):
        assert Hello.read(one.pack()) == one


def test_hello__of_a_later_minor_version_is_longer() -> None:
    """Its further fields are skipped."""
    packet = bytearray(HELLO._replace(instructions="x").pack())
    packet[6:12] = (9).to_bytes(2, "little") + (72).to_bytes(4, "little")
    assert Hello.read(bytes(packet[:64] + bytes(8) + packet[64:])).instructions == "x"


@pytest.mark.parametrize(
    ("packet", "words", "status"),
    [
        (b"", "no hello", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" + bytes(64), "no hello", 400),
        (HELLO.pack()[:60], "no hello", 400),
        (HELLO.pack()[:4] + b"\x02\0" + HELLO.pack()[6:], "another version", 426),
        (HELLO.pack() + b"x", "do not add up", 400),
        (HELLO.pack()[:8] + bytes(4) + HELLO.pack()[12:], "do not add up", 400),
        (HELLO.pack()[:8] + b"\xff\xff\xff\xff" + HELLO.pack()[12:], "do not add up", 400),
        (HELLO._replace(flags=1024).pack(), "unknown flags", 400),
        (HELLO._replace(instructions="ab").pack()[:-2] + b"\xff\xfe", "not UTF-8", 400),
    ],
)
def test_hello__that_is_none_is_refused(packet: bytes, words: str, status: int) -> None:
    """Each with the reason, and never with anything but a RequestError."""
    with pytest.raises(RequestError, match=words) as caught:
        Hello.read(packet)
    assert caught.value.http_status == status


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (Busy("full"), "BUSY"),
        (NotReady("starting", stage="llm"), "NOT_READY"),
        (Stopping("ending"), "NOT_READY"),
        (RequestError("not yours", status=403), "DENIED"),
        (RequestError("old", status=426), "VERSION"),
        (UsageError("rate"), "REFUSED"),
        (RequestError("model", status=404), "REFUSED"),
        (DpfError("broken"), "FAILED"),
    ],
)
def test_refusal__has_the_status_of_the_header(error: DpfError, name: str) -> None:
    """A client's status is the number without its sign."""
    packet = refusal(error)
    assert int.from_bytes(packet[8:12], "little") == -constants()[f"DPF_CLIENT_{name}"]
    assert packet[64:].decode() == str(error)


def test_packets__are_bounded() -> None:
    """A long reason is cut between characters."""
    assert len(welcome(7, 16_000, 24_000)) == 64
    why = refusal(DpfError("ü" * 5000))[64:]
    assert len(why) <= 4096
    assert why.decode().startswith("ü")
