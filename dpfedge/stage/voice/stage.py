# SPDX-License-Identifier: Apache-2.0
"""The voice stage: clauses of a turn in, 16-bit samples in the outgoing slot out, one chunk per step.

It decides nothing about the answer's words; markdown and thinking were removed before (`dpfedge.stage.llm.clauses`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import field
from typing import Any

import numpy as np

from dpfedge.backend.api import Array, Budget, Executable
from dpfedge.binding import BoundModel
from dpfedge.errors import InputError, ModelError, RunCancelled
from dpfedge.limits import SPEECH_TEXT_MAX_CHARS
from dpfedge.records import dataclass
from dpfedge.stage.api import Kind, Message, Mode, RequestIO, Steps, Wait
from dpfedge.stage.each import ending
from dpfedge.stage.voice.clauses import ClauseCutter, ends_sentence
from dpfedge.stage.voice.config import VoiceConfig
from dpfedge.stage.voice.phonemes import Phonemes
from dpfedge.stage.voice.synthesiser import SplitVoice, Synthesiser, WholeVoice, write_pcm
from dpfedge.stage.voice.text import normalise, speakable

__all__ = ["VoiceStage"]

_HOP, _OVERLAP = 256, 10  # a Piper medium voice: samples per latent frame, half its decoder's receptive field
_SPEED = (0.25, 4.0)  # the range of the OpenAI speech endpoint


@dataclass(slots=True)
class _Turn:
    """What was spoken in one turn so far."""

    number: int
    speed: float
    frames: int
    samples: int = 0
    clauses: int = 0
    busy_ns: int = 0
    pause_ms: int = 0
    started_ns: int = field(default_factory=time.monotonic_ns)
    first_audio_ns: int = 0


class VoiceStage:
    """Owns one Piper voice."""

    name = "voice"

    def __init__(self, model: BoundModel, config: Mapping[str, Any], budget: Budget) -> None:
        """`model` is a bound Piper model (graphs `encode` and `decode`, or `synthesise`); ModelError when it is not."""
        self._config = VoiceConfig.of(config)
        self._hop = int(model.config.get("hop", _HOP))
        self._card = _card(model)
        self._title = _title(self._card, model.name)
        self._rate = int(self._card["audio"]["sample_rate"])
        self._phonemes = Phonemes(self._card["espeak"]["voice"], self._card["phoneme_id_map"])
        self._phonemes.warm()  # a stage process loads the graphs meanwhile
        self._synthesiser, self._inputs = _synthesiser(model, self._config, budget)
        self._scratch = np.empty(self._config.chunk_frames * self._hop, np.float32)

    def warm(self) -> None:
        """Begin a word into nothing: with its first chunk every graph has run."""
        chunks = self._chunks("Ready.", 1.0, self._config.first_frames)
        samples = next(chunks)  # valid as long as what made them
        write_pcm(samples, self._config.gain, self._scratch, np.empty(samples.size, np.int16))

    def facts(self) -> Mapping[str, Any]:
        """`rate` in Hz, `name`, and `chunk_samples`: the most samples one AUDIO message holds."""
        pause = max(self._config.clause_pause_ms, self._config.sentence_pause_ms) * self._rate // 1000
        return {"rate": self._rate, "name": self._title, "chunk_samples": max(self._scratch.size, pause)}

    def request(self, io: RequestIO) -> Steps:
        """SPEAK: the text of START or of the TEXT messages; otherwise one turn after another until the request ends."""
        speed = _speed(io.options.get("speed", 1.0))
        if io.mode is Mode.SPEAK:
            yield from self._speak(io, speed)
        else:
            yield from self._converse(io, speed)

    def _speak(self, io: RequestIO, speed: float) -> Steps:
        number, text = yield from _whole_text(io)
        if len(text) > SPEECH_TEXT_MAX_CHARS:
            raise InputError(
                "text is too long", stage="voice", found=f"{len(text)} characters", allowed=str(SPEECH_TEXT_MAX_CHARS)
            )
        turn = self._turn(number, speed)
        cutter = ClauseCutter(self._config.first_words, self._config.clause_words, comma_words=self._config.first_words)
        for clause in [*cutter.push(text), cutter.finish()]:
            yield from self._say(io, turn, clause)
        yield from self._done(io, turn)

    def _converse(self, io: RequestIO, speed: float) -> Steps:
        turn: _Turn | None = None
        closed = 0
        while True:
            message = io.receive()
            if turn is not None and (io.cancelled(turn.number) or (message and message.turn > turn.number)):
                closed = turn.number
                yield from self._done(io, turn)
                turn = None
            if message is None:
                yield Wait.INPUT
                continue
            if message.kind is Kind.END:
                message.release()
                yield from io.map("sink", Kind.DONE, {"turns": closed}, turn=0, last=True)
                return
            number, last = message.turn, message.last
            with ending(message):  # not before it can be heard: the llm gives way until then
                if message.kind is not Kind.TEXT or number <= closed:
                    continue
                turn = turn or self._turn(number, speed)
                yield from self._say(io, turn, message.text(), message.release)
            if last:
                closed = number
                yield from self._done(io, turn)
                turn = None

    def _turn(self, number: int, speed: float) -> _Turn:
        return _Turn(number, speed, self._config.first_frames)

    def _say(self, io: RequestIO, turn: _Turn, clause: str, heard: Callable[[], None] = lambda: None) -> Steps:
        """Speak a clause; `heard` is called once the first of it is on its way."""
        spoken = normalise(clause)
        if not speakable(spoken) or io.cancelled(turn.number):
            return
        turn.clauses += 1
        yield from self._pause(io, turn)
        chunks = self._chunks(spoken, turn.speed, turn.frames)
        while (samples := self._step(io, turn, chunks)) is not None:
            yield Wait.STEP
            if io.cancelled(turn.number):
                return
            yield from self._send(io, turn, samples)
            heard()
        turn.pause_ms = self._config.sentence_pause_ms if ends_sentence(clause) else self._config.clause_pause_ms

    def _step(self, io: RequestIO, turn: _Turn, chunks: Iterator[Array]) -> Array | None:
        """The next samples; None at the end, and when the turn was cancelled while they were computed."""
        started = time.monotonic_ns()
        io.working = turn.number
        try:
            return next(chunks, None)
        except RunCancelled:
            if not io.cancelled(turn.number):
                raise  # the request's time is over
            return None
        finally:
            io.working = None
            turn.busy_ns += time.monotonic_ns() - started

    def _send(self, io: RequestIO, turn: _Turn, samples: Array) -> Steps:
        slot = yield from io.loan("sink", (samples.size,), "i16")
        write_pcm(samples, self._config.gain, self._scratch, slot.array)
        slot.send(samples.size, kind=Kind.AUDIO, turn=turn.number)
        turn.first_audio_ns = turn.first_audio_ns or time.monotonic_ns()
        turn.samples += samples.size
        turn.frames = min(2 * turn.frames, self._config.chunk_frames)

    def _pause(self, io: RequestIO, turn: _Turn) -> Steps:
        """The silence owed to the clause before; the last clause of a turn owes none."""
        count = turn.pause_ms * self._rate // 1000
        if not count or not turn.samples:
            return
        slot = yield from io.loan("sink", (count,), "i16")
        slot.array[:] = 0
        slot.send(count, kind=Kind.AUDIO, turn=turn.number)
        turn.samples += count

    def _chunks(self, text: str, speed: float, first: int) -> Iterator[Array]:
        for phonemes in self._phonemes.sentences(text):
            for samples in self._synthesiser.chunks(self._feeds(self._phonemes.ids(phonemes), speed), first):
                for start in range(0, samples.size, self._scratch.size):
                    yield samples[start : start + self._scratch.size]

    def _feeds(self, ids: Array, speed: float) -> dict[str, Array]:
        known, settings = self._card.get("inference", {}), self._config
        noise = known.get("noise_scale", 0.667) if settings.noise_scale is None else settings.noise_scale
        rhythm = known.get("noise_w", 0.8) if settings.noise_w is None else settings.noise_w
        length = known.get("length_scale", 1.0) / (speed * settings.speed)
        feeds: dict[str, Array] = {
            "input": ids,
            "input_lengths": np.array([ids.shape[1]], np.int64),
            "scales": np.array([noise, length, rhythm], np.float32),
            "sid": np.array([self._card.get("default_speaker_id", 0)], np.int64),
        }
        return {name: feeds[name] for name in self._inputs}

    def _done(self, io: RequestIO, turn: _Turn) -> Steps:
        audio_ms = turn.samples * 1000 / self._rate
        report: dict[str, Any] = {
            "audio_ms": audio_ms,
            "clauses": turn.clauses,
            "busy_ms": turn.busy_ns / 1e6,
            "started_ns": turn.started_ns,
            "finish": "cancelled" if io.cancelled(turn.number) else "stop",
        }
        if turn.samples:
            report |= {"rtf": turn.busy_ns / 1e6 / audio_ms, "first_audio_ns": turn.first_audio_ns}
            report["first_audio_ms"] = (turn.first_audio_ns - turn.started_ns) / 1e6
        elif not turn.clauses:
            report["reason"] = "nothing to speak: the text has no letter and no digit"
        yield from io.map("sink", Kind.DONE, report, turn=turn.number, last=True)


def _whole_text(io: RequestIO) -> Generator[Wait, None, tuple[int, str]]:
    """The turn and text of a SPEAK request."""
    if "text" in io.options:
        text = io.options["text"]
        if not isinstance(text, str):
            raise InputError("text must be a string", stage="voice", found=type(text).__name__)
        return 1, text
    parts: list[str] = []
    while True:
        message = io.receive()
        if message is None:
            yield Wait.INPUT
            continue
        part, number, last = _clause(message)
        parts.append(part or "")
        if last:
            return number, "".join(parts)


def _clause(message: Message) -> tuple[str | None, int, bool]:
    """(text, turn, last) of a message, which is released; None for a kind that is not spoken."""
    text = message.text() if message.kind is Kind.TEXT else None
    number, last = message.turn, message.last
    message.release()
    return text, number, last


def _speed(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not _SPEED[0] <= value <= _SPEED[1]:
        raise InputError("speed is out of range", stage="voice", found=value, allowed=f"{_SPEED[0]} to {_SPEED[1]}")
    return float(value)


def _card(model: BoundModel) -> Mapping[str, Any]:
    """The voice's own description: the JSON file beside a Piper model, kept as asset `voice.json`."""
    card = json.loads(bytes(model.asset("voice.json")))
    missing = [key for key in ("audio", "espeak", "phoneme_id_map") if key not in card]
    if missing:
        raise ModelError("the voice's description lacks keys", where="asset voice.json", found=", ".join(missing))
    return dict(card)


def _title(card: Mapping[str, Any], fallback: str) -> str:
    """The name Piper's voices are known by, for example `en_US-joe-medium`."""
    parts = (card.get("language", {}).get("code"), card.get("dataset"), card["audio"].get("quality"))
    return "-".join(map(str, parts)) if all(parts) else fallback


def _synthesiser(model: BoundModel, config: VoiceConfig, budget: Budget) -> tuple[Synthesiser, tuple[str, ...]]:
    graphs = set(model.graphs)
    if {"encode", "decode"} <= graphs:
        encode, decode = model.load("encode", budget), model.load("decode", budget)
        overlap = int(model.config.get("overlap", _OVERLAP)) if config.overlap_frames is None else config.overlap_frames
        split = SplitVoice(encode, decode, largest=config.chunk_frames, overlap=overlap)
        return split, _names(encode)
    if "synthesise" in graphs:
        whole = model.load("synthesise", budget)
        return WholeVoice(whole, config.chunk_frames * int(model.config.get("hop", _HOP))), _names(whole)
    raise ModelError("no graph of a voice", where=f"model {model.name}", found=", ".join(sorted(graphs)),
                     allowed="encode and decode, or synthesise")  # fmt: skip


def _names(graph: Executable) -> tuple[str, ...]:
    known = {"input", "input_lengths", "scales", "sid"}
    names = tuple(spec.name for spec in graph.inputs)
    if unknown := sorted(set(names) - known):
        raise ModelError(
            "unknown inputs", where=f"graph {graph.name}", found=", ".join(unknown), allowed=", ".join(known)
        )
    return names
