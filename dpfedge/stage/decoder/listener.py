# SPDX-License-Identifier: Apache-2.0
"""One request of the decoder stage: pieces of audio in, utterances in slots of the link to the encoder out.

Speech is written straight into the slot that the encoder reads; only what was heard before speech was certain is moved
there from this request's own memory. It runs no recognition.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import numpy as np

from dpfedge.backend.api import Array
from dpfedge.errors import InputError
from dpfedge.limits import AUDIO_MAX_SECONDS, UTTERANCE_MAX_SAMPLES
from dpfedge.records import dataclass
from dpfedge.stage.api import TURN_STRIDE, Kind, Message, Mode, RequestIO, Slot, Steps, Wait
from dpfedge.stage.decoder.arrivals import Arrivals
from dpfedge.stage.decoder.buffer import FrameBuffer
from dpfedge.stage.decoder.channels import Downmix
from dpfedge.stage.decoder.config import FRAME, RATE, DecoderConfig
from dpfedge.stage.decoder.container import AudioReader
from dpfedge.stage.decoder.highpass import HighPass
from dpfedge.stage.decoder.level import Level
from dpfedge.stage.decoder.pcm import Frames, PcmReader
from dpfedge.stage.decoder.resample import Resampler
from dpfedge.stage.decoder.segmenter import Change, Segmenter
from dpfedge.stage.decoder.vad import CONTEXT, VoiceActivity

__all__ = ["Listener"]

_EVERY_TURN = 0xFFFF_FFFE  # cancelled only when the whole request is
_IDLE_SAMPLES = CONTEXT + 5 * RATE  # holds the rest of a forced cut (3 s) and the longest pre-roll
_FRAMES_PER_STEP = 16
_SHORTEST_MS = 100.0  # below it, silence is called `too_short`: no word fits


@dataclass(slots=True)
class _Totals:
    """What this request did so far."""

    frames_in: int = 0
    speech_frames: int = 0
    segments: int = 0
    decode_ns: int = 0


class Listener:
    """The state of one request; `run` is its life."""

    def __init__(
        self,
        io: RequestIO,
        reader: AudioReader,
        vad: VoiceActivity,
        config: DecoderConfig,
        *,
        endpointing: bool,
        first_turn: int = 0,
    ) -> None:
        self._io, self._reader, self._vad, self._config = io, reader, vad, config
        self._files = io.mode in (Mode.TRANSCRIBE, Mode.RUN)
        self._segmenter = Segmenter(config, long_audio=self._files, endpointing=endpointing or self._files)
        self._high_pass = HighPass(config.high_pass_hz)
        self._level = Level()
        self._gain = 1.0
        self._downmix: Downmix | None = None
        self._resampler: Resampler | None = None
        self._arrivals = Arrivals()
        self._arrived_ns = 0
        self._idle = FrameBuffer(np.zeros(_IDLE_SAMPLES, np.float32))
        self._buffer = self._idle
        self._slot: Slot | None = None
        self._turn = first_turn
        self._start = 0
        self._shown = 0
        self._draft: int | None = None
        self._draft_ns = 0
        self._totals = _Totals()
        self._vad_ns = 0

    def run(self) -> Steps:
        """Listen until the last piece of audio, or until the request is cancelled."""
        while not self._io.cancelled(_EVERY_TURN):
            message = self._io.receive()
            if message is None:
                yield Wait.INPUT
                continue
            kind, last = message.kind, message.last
            if kind is Kind.AUDIO or kind is Kind.DATA:
                yield from self._audio(message)
            else:
                message.release()
            if kind in (Kind.FLUSH, Kind.CLEAR) and isinstance(self._reader, PcmReader):
                self._reader.align()  # half a sample before a command must not turn all that follows into noise
            if kind is Kind.FLUSH:
                yield from self._flush()
            elif kind is Kind.CLEAR:
                yield from self._clear()
            if last:
                yield from self._finish()
                return

    def close(self) -> None:
        """Give everything back."""
        self._buffer = self._idle
        if self._slot is not None:
            self._slot.abandon()
            self._slot = None

    # --- bytes to samples ---

    def _audio(self, message: Message) -> Steps:
        self._arrived_ns = message.captured_ns
        try:
            pieces = self._timed(self._reader.push(message.array().data.cast("B")))
            yield from self._blocks(pieces, message.captured_ns)
        finally:
            message.release()

    def _timed(self, blocks: Iterable[Frames]) -> Iterable[Frames]:
        started = time.perf_counter_ns()
        for block in blocks:
            self._totals.decode_ns += time.perf_counter_ns() - started
            yield block
            started = time.perf_counter_ns()
        self._totals.decode_ns += time.perf_counter_ns() - started

    def _blocks(self, blocks: Iterable[Frames], captured_ns: int) -> Steps:
        for block in blocks:
            if self._downmix is None:
                self._downmix = Downmix(self._reader.rate, self._reader.channels)
                self._resampler = Resampler(self._reader.rate)
            assert self._resampler is not None
            self._totals.frames_in += len(block)
            self._check_length()
            self._arrivals.mark(self._totals.frames_in * RATE // self._reader.rate, captured_ns)
            for mono in self._downmix.push(block):
                yield from self._samples(self._resampler.push(mono))

    def _check_length(self) -> None:
        if self._files and self._totals.frames_in > AUDIO_MAX_SECONDS * self._reader.rate:
            raise InputError("the audio is too long", stage="decoder", found=f"over {AUDIO_MAX_SECONDS} s",
                             allowed=f"{AUDIO_MAX_SECONDS} s", remedy="send it in parts")  # fmt: skip

    def _samples(self, block: Array) -> Steps:
        while block.size:
            block = block[self._buffer.write(block) :]
            if self._buffer.partial == FRAME:
                yield from self._frame()

    # --- frames to utterances ---

    def _frame(self) -> Steps:
        change = self._segmenter.frame(self._judge())
        if change is Change.STARTED:
            yield from self._open()
        elif change is Change.PAUSED:
            yield from self._show_draft()
        elif change is Change.RESUMED:
            self._draft = None
        elif change is Change.ENDED:
            yield from self._end()
        if self._slot is not None:
            yield from self._grow()
        elif not self._buffer.room_for(0):
            waiting = (self._segmenter.now - self._segmenter.candidate) * FRAME
            self._buffer.keep(waiting + self._pre_roll)
        if self._segmenter.now % _FRAMES_PER_STEP == 0:
            yield Wait.STEP

    def _judge(self) -> float:
        window = self._buffer.window()
        assert window is not None
        frame = window[CONTEXT:]
        self._high_pass.filter(frame)
        self._level.follow(frame)
        if self._gain != 1.0:
            frame *= np.float32(self._gain)
        probability = self._vad.probability(window, self._level.now / self._gain)
        self._buffer.accept()
        return probability

    @property
    def _pre_roll(self) -> int:
        return self._config.pre_roll_ms * RATE // 1000

    @property
    def _trailing(self) -> int:
        return self._config.trailing_ms * RATE // 1000

    def _open(self) -> Steps:
        """Begin an utterance with what was heard since before its first frame."""
        self._turn += 1 if self._files else TURN_STRIDE
        self._start = self._segmenter.start
        yield from self._io.map("sink", Kind.SPEECH_STARTED, {"at_ms": _ms(self._start)}, turn=self._turn)
        self._slot = yield from self._io.loan("speech", (UTTERANCE_MAX_SAMPLES,), "f32")
        buffer = FrameBuffer(self._slot.array)
        heard = (self._segmenter.now - self._start) * FRAME + self._pre_roll
        buffer.take(self._idle.array[max(0, self._idle.used - max(heard, CONTEXT)) : self._idle.used])
        self._buffer, self._shown, self._draft = buffer, self._segmenter.now, None
        self._gain = self._level.utterance
        if self._gain != 1.0:
            buffer.array[: buffer.used] *= np.float32(self._gain)

    def _grow(self) -> Steps:
        """Show the encoder what there is, and end an utterance whose slot is nearly full."""
        assert self._slot is not None
        if not self._buffer.room_for(2 * (self._trailing + CONTEXT)):
            self._segmenter.finish("length")
            yield from self._end()
            return
        due = (self._segmenter.now - self._shown) * FRAME * 1000 >= self._config.partial_ms * RATE
        if due and self._segmenter.last_word == self._segmenter.now and self._arrivals.live():
            self._shown = self._segmenter.now
            self._slot.publish(self._buffer.used, kind=Kind.AUDIO, turn=self._turn, captured_ns=self._captured())

    def _captured(self) -> int:
        return self._arrivals.at(self._segmenter.last_word * FRAME)

    def _show_draft(self) -> Steps:
        assert self._slot is not None
        silence = (self._segmenter.now - self._segmenter.last_word) * FRAME
        self._draft = self._buffer.pad(max(0, self._trailing - silence))
        self._draft_ns = time.monotonic_ns()
        self._slot.publish(self._draft, kind=Kind.AUDIO, turn=self._turn, captured_ns=self._captured())
        yield from self._announce(self._draft, self._segmenter.last_word)

    def _announce(self, samples: int, end: int) -> Steps:
        data = {
            "samples": samples,
            "at_ns": self._draft_ns,
            "start_ms": _ms(self._start),
            "end_ms": _ms(end),
            "speech_ms": _ms(self._segmenter.speech_frames),
            "captured_ns": self._arrivals.at(end * FRAME),
        }
        yield from self._io.map("speech", Kind.DRAFT, data, turn=self._turn)

    def _end(self) -> Steps:
        """Hand the utterance over; a segment that was cut in the middle of speech goes on in the next slot."""
        endpoint_ns = time.monotonic_ns()
        end, reason = self._segmenter.end, self._segmenter.reason
        data = {"at_ms": _ms(end), "start_ms": _ms(self._start), "reason": reason}
        yield from self._io.map("sink", Kind.SPEECH_STOPPED, data, turn=self._turn)
        samples = self._close_words((self._segmenter.now - end) * FRAME)
        if samples != self._draft:
            self._draft_ns = time.monotonic_ns()
            yield from self._announce(samples, end)
        captured_ns = self._arrivals.at(end * FRAME)
        self._hand_over(samples, captured_ns)
        self._totals.segments += 1
        self._totals.speech_frames += end - self._start
        if not self._files:
            marks = {"speech_end_ns": captured_ns, "draft_ns": self._draft_ns, "endpoint_ns": endpoint_ns}
            sizes = {"audio_ms": samples * 1000 / RATE, "speech_ms": _ms(end - self._start)}
            report = {**data, **marks, **sizes, "vad_ms": self._vad_ms()}
            yield from self._io.map("sink", Kind.DONE, report, turn=self._turn, last=True)
        if self._segmenter.speaking:
            yield from self._open()

    def _close_words(self, behind: int) -> int:
        """Keep the `behind` samples after the last word for what follows; returns the samples to hand over."""
        buffer, idle = self._buffer, self._idle
        words = buffer.used - behind if self._draft is None else self._draft
        kept = words - CONTEXT if self._segmenter.speaking else max(words, buffer.used - self._pre_roll)
        partial = buffer.array[buffer.used : buffer.used + buffer.partial]
        idle.take(buffer.array[max(0, min(kept, buffer.used - CONTEXT)) : buffer.used])
        if self._gain != 1.0:
            idle.array[: idle.used] /= np.float32(self._gain)
        idle.write(partial)
        if self._draft is not None:
            return self._draft
        silence = 0 if self._segmenter.speaking else min(behind, self._trailing)
        buffer.array[words + silence : words + self._trailing] = 0
        return words + self._trailing

    def _hand_over(self, samples: int, captured_ns: int) -> None:
        assert self._slot is not None
        slot, self._slot = self._slot, None
        self._buffer, self._gain = self._idle, 1.0
        slot.send(samples, kind=Kind.AUDIO, turn=self._turn, captured_ns=captured_ns, last=not self._files)

    # --- commands and the end ---

    def _flush(self) -> Steps:
        if self._slot is not None:
            self._segmenter.finish("flush")
            yield from self._end()
        else:
            self._segmenter.forget()
            yield from self._nothing_said("no_speech")

    def _clear(self) -> Steps:
        """Forget what was heard; a turn that had begun is closed without words."""
        self._segmenter.forget()
        self._idle.take(np.zeros(CONTEXT, np.float32))
        if self._slot is None:
            return
        data = {"at_ms": _ms(self._segmenter.now), "start_ms": _ms(self._start), "reason": "clear"}
        yield from self._io.map("sink", Kind.SPEECH_STOPPED, data, turn=self._turn)
        self._hand_over(0, 0)
        yield from self._wordless("clear")

    def _nothing_said(self, reason: str) -> Steps:
        self._turn += TURN_STRIDE
        self._slot = yield from self._io.loan("speech", (1,), "f32")
        self._hand_over(0, 0)
        yield from self._wordless(reason)

    def _wordless(self, reason: str) -> Steps:
        report = {"reason": reason, "audio_ms": 0.0, "speech_ms": 0}
        yield from self._io.map("sink", Kind.DONE, report, turn=self._turn, last=True)

    def _finish(self) -> Steps:
        """The stream has ended: what is in the filters comes out, and speech ends with it."""
        yield from self._blocks(self._timed(self._reader.finish()), self._arrived_ns)
        if self._downmix is not None and self._resampler is not None:
            for mono in self._downmix.finish():
                yield from self._samples(self._resampler.push(mono))
            yield from self._samples(self._resampler.finish())
            if self._buffer.partial:
                yield from self._samples(np.zeros(FRAME - self._buffer.partial, np.float32))
        if self._slot is not None:
            self._segmenter.finish("flush")
            yield from self._end()
        report = self._report()
        if self._files:
            yield from self._io.map("speech", Kind.DONE, report, turn=0, last=True)
        yield from self._io.map("sink", Kind.DONE, report, turn=0, last=True)

    def _report(self) -> dict[str, Any]:
        reader, totals = self._reader, self._totals
        audio_ms = totals.frames_in * 1000 / reader.rate if reader.rate else 0.0
        report: dict[str, Any] = {
            "container": reader.container,
            "rate": reader.rate,
            "channels": reader.channels,
            "audio_ms": audio_ms,
            "speech_ms": _ms(totals.speech_frames),
            "segments": totals.segments,
            "decode_ms": totals.decode_ns / 1e6,
            "vad_ms": self._vad.busy_ns / 1e6,
        }
        if not totals.segments:
            short = "too_short" if audio_ms < _SHORTEST_MS else "no_speech"
            report["reason"] = short if totals.frames_in else "no_audio"
        return report

    def _vad_ms(self) -> float:
        """Since the last call."""
        before, self._vad_ns = self._vad_ns, self._vad.busy_ns
        return (self._vad_ns - before) / 1e6


def _ms(frames: int) -> int:
    return frames * FRAME * 1000 // RATE
