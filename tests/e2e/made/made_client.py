# SPDX-License-Identifier: Apache-2.0
"""libdpfedge as a Python object, for tests: the shared library itself, built here, called through ctypes."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from ctypes import POINTER, Structure, byref, c_char_p, c_int, c_int16, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any, NamedTuple

import pytest

BRIDGE = Path(__file__).parents[3] / "firmware_bridge"

SPEECH_STARTED, SPEECH_STOPPED, WORDS, TRANSCRIPT, ANSWER_STARTED, ANSWER_TEXT, ANSWER_DONE, ERROR = range(1, 9)
TIMEOUT, NO_SERVER, GONE = -1, -3, -9
HEARD_UNKNOWN = 0xFFFFFFFF


class _Options(Structure):
    _fields_ = (
        ("bytes", c_uint32), ("flags", c_uint32), ("socket", c_char_p), ("instructions", c_char_p),
        ("input_hz", c_uint32), ("output_hz", c_uint32), ("silence_ms", c_uint32), ("max_answer_tokens", c_uint32),
        ("wait_ms", c_uint32), ("reserved", c_uint32 * 7),
    )  # fmt: skip


class _Event(Structure):
    _fields_ = (
        ("kind", c_uint32), ("number", c_uint32), ("code", c_uint32), ("at_ms", c_uint32), ("sent_ns", c_uint64),
        ("text", c_char_p), ("text_bytes", c_uint32), ("more", c_uint32), ("slot", c_uint32), ("generation", c_uint32),
    )  # fmt: skip


class _Sound(Structure):
    _fields_ = (
        ("samples", POINTER(c_int16)), ("count", c_uint32), ("hz", c_uint32), ("number", c_uint32), ("last", c_uint32),
        ("sent_ns", c_uint64), ("slot", c_uint32), ("generation", c_uint32),
    )  # fmt: skip


class _Stats(Structure):
    _fields_ = tuple(
        (name, c_uint64)
        for name in (
            "pieces_sent", "copies", "copied_bytes", "full", "events", "sounds", "sounds_copied", "sound_bytes_copied",
            "skipped",
        )
    )  # fmt: skip


class Event(NamedTuple):
    """An event, copied out."""

    kind: int
    number: int
    code: int
    text: str


class Sound(NamedTuple):
    """A piece of sound, copied out."""

    pcm: bytes
    number: int
    last: bool


class ClientError(Exception):
    """A status that is not OK."""

    def __init__(self, status: int, why: str = "") -> None:
        super().__init__(f"{status} {why}")
        self.status, self.why = status, why


def installed(folder: Path) -> Path:
    """libdpfedge and its header, installed below `folder`; skips where nothing can build it."""
    for tool in ("cc", "c++", "make", "pkg-config"):
        if shutil.which(tool) is None:
            pytest.skip(f"libdpfedge cannot be built here: no {tool}")
    run("make", "-s", "-C", str(BRIDGE), "install", f"BUILD={folder}/build", f"PREFIX={folder}/installed")
    return folder / "installed"


def run(*command: str, **environ: str) -> str:
    """A command that must work; its output."""
    made = subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, **environ})
    assert made.returncode == 0, f"{command}: {made.stdout}{made.stderr}"
    return made.stdout


class Client:
    """One session."""

    def __init__(self, prefix: Path, socket: Path, *, wait_ms: int = 0, input_hz: int = 24_000, flags: int = 0) -> None:
        self._library = ctypes.CDLL(str(prefix / "lib/libdpfedge.so.1"))
        self._options = _Options()
        self._library.dpf_client_options_init(byref(self._options), c_size_t(ctypes.sizeof(_Options)))
        assert self._options.bytes == ctypes.sizeof(_Options), "made_client.py and dpf/client.h differ"
        self._options.socket, self._options.wait_ms = os.fsencode(socket), wait_ms
        self._options.input_hz, self._options.flags = input_hz, flags
        self._client, why = c_void_p(), ctypes.create_string_buffer(512)
        status = self._library.dpf_client_open(byref(self._options), byref(self._client), why, c_size_t(512))
        if status:
            raise ClientError(status, why.value.decode())

    def _call(self, name: str, *arguments: Any) -> int:
        return int(getattr(self._library, f"dpf_client_{name}")(self._client, *arguments))

    def must(self, name: str, *arguments: Any) -> None:
        """Call `dpf_client_<name>`; ClientError when it does not answer OK."""
        if status := self._call(name, *arguments):
            raise ClientError(status, name)

    @property
    def state(self) -> int:
        return self._call("state")

    def push(self, pcm: bytes, timeout_ms: int = 20_000) -> None:
        self.must("push", pcm, c_size_t(len(pcm) // 2), c_int(timeout_ms))

    def say(self, text: str) -> None:
        data = text.encode()
        self.must("say", data, c_size_t(len(data)), c_int(5000))

    def stop(self, heard_ms: int = HEARD_UNKNOWN) -> None:
        self.must("stop", c_uint32(heard_ms))

    def event(self, timeout_ms: int = 60_000) -> Event:
        one = _Event()
        self.must("next_event", byref(one), c_int(timeout_ms))
        got = Event(one.kind, one.number, one.code, (one.text or b"").decode())
        self.must("event_done", byref(one))
        return got

    def sound(self, timeout_ms: int = 60_000) -> Sound:
        one = _Sound()
        self.must("next_sound", byref(one), c_int(timeout_ms))
        got = Sound(ctypes.string_at(one.samples, 2 * one.count), one.number, bool(one.last))
        self.must("sound_done", byref(one))
        return got

    def until(self, kind: int) -> list[Event]:
        """Every event up to the next of this kind; an error fails the test."""
        events = [self.event()]
        while events[-1].kind != kind:
            assert events[-1].kind != ERROR, events[-1]
            events.append(self.event())
        return events

    def stats(self) -> dict[str, int]:
        one = _Stats()
        self.must("read_stats", byref(one), c_size_t(ctypes.sizeof(one)))
        return {name: getattr(one, name) for name, *_ in one._fields_}

    def close(self) -> None:
        if self._client:
            self._library.dpf_client_close(self._client)
            self._client = c_void_p()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
