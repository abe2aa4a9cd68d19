# SPDX-License-Identifier: Apache-2.0
"""Probabilities of speech in, one per frame; where speech starts, pauses and ends out. It sees no samples."""

from __future__ import annotations

from enum import Enum

from dpfedge.stage.decoder.config import FRAME, RATE, DecoderConfig

__all__ = ["Change", "Segmenter"]

_CUT_WINDOW = 3 * RATE // FRAME  # frames before a forced cut in which the quietest one is looked for


class Change(Enum):
    """What a frame changed."""

    STARTED = "started"
    """Speech is certain; it began at frame `start`."""
    PAUSED = "paused"
    """A pause is long enough for a draft of the words."""
    RESUMED = "resumed"
    """Speech goes on after PAUSED."""
    ENDED = "ended"
    """The endpoint: `reason` is `silence` or `length`, words lie before frame `end`."""


def frames(milliseconds: float) -> int:
    """The frames that cover a duration, at least one."""
    return max(1, -(-int(milliseconds * RATE) // (1000 * FRAME)))


class Segmenter:
    """The state of one stream. `long_audio`: segments for transcription instead of turns of a conversation.

    Speech starts with the first frame at or above `start_threshold` of a run that lasts `min_speech_ms` without falling
    below `end_threshold`; a pause starts below `end_threshold` and ends at `start_threshold` (Silero's own hysteresis).
    """

    def __init__(self, config: DecoderConfig, *, long_audio: bool = False, endpointing: bool = True) -> None:
        self._config, self._long, self._endpointing = config, long_audio, endpointing
        self._least, self._draft = frames(config.min_speech_ms), frames(config.draft_ms)
        self.speaking = False
        self.start = 0
        self.end = 0
        self.reason = ""
        self.now = 0
        """Frames seen."""
        self.speech_frames = 0
        """Frames at or above the start threshold since `start`."""
        self._candidate: int | None = None
        self._strong = 0
        self._pause: int | None = None
        self._drafted = False
        self._recent: list[float] = []

    @property
    def candidate(self) -> int:
        """The first frame that may turn out to be speech; `now` when none does."""
        return self.now if self._candidate is None else self._candidate

    @property
    def last_word(self) -> int:
        """The frame behind the last one with speech."""
        return self.now if self._pause is None else self._pause

    def frame(self, probability: float) -> Change | None:
        """Take the next frame."""
        self.now += 1
        return self._spoken(probability) if self.speaking else self._silent(probability)

    def finish(self, reason: str) -> None:
        """End the speech in progress now."""
        self.end, self.reason = self.last_word, reason
        self._rest()

    def forget(self) -> None:
        """Back to silence, whatever was going on."""
        self._rest()

    def _rest(self) -> None:
        self.speaking, self._drafted = False, False
        self._candidate = self._pause = None
        self._strong = 0
        self._recent.clear()

    def _silent(self, probability: float) -> Change | None:
        if probability < self._config.end_threshold:
            self._candidate, self._strong = None, 0
            return None
        strong = probability >= self._config.start_threshold
        if self._candidate is None and not strong:
            return None
        if self._candidate is None:
            self._candidate = self.now - 1
        self._strong += strong
        if self.now - self._candidate < self._least:
            return None
        self.speaking, self.start, self.speech_frames = True, self._candidate, self._strong
        self._candidate = None
        return Change.STARTED

    def _spoken(self, probability: float) -> Change | None:
        if self._long:
            self._recent = [*self._recent[1 - _CUT_WINDOW :], probability]
        if probability >= self._config.start_threshold:
            self.speech_frames += 1
            self._pause, resumed = None, self._drafted
            self._drafted = False
            return self._too_long() or (Change.RESUMED if resumed else None)
        if self._pause is None and probability < self._config.end_threshold:
            self._pause = self.now - 1
        return self._paused() or self._too_long()

    def _paused(self) -> Change | None:
        if self._pause is None or not self._endpointing:
            return None
        silence = self.now - self._pause
        if silence >= self._endpoint():
            self.finish("silence")
            return Change.ENDED
        if silence >= self._draft and not self._drafted and not self._long:
            self._drafted = True
            return Change.PAUSED
        return None

    def _endpoint(self) -> int:
        config = self._config
        if not self._long:
            return frames(config.endpoint_ms)
        long = self.now - self.start >= frames(config.segment_ms)
        return frames(config.segment_pause_ms if long else config.segment_gap_ms)

    def _too_long(self) -> Change | None:
        length = self.now - self.start
        if self._long and length >= frames(self._config.segment_max_ms):
            self._cut()
            return Change.ENDED
        if length >= frames(self._config.max_utterance_ms):
            self.finish("length")
            return Change.ENDED
        return None

    def _cut(self) -> None:
        """End behind the quietest of the recent frames; speech goes on from there."""
        quietest = min(range(len(self._recent)), key=self._recent.__getitem__)
        after = len(self._recent) - 1 - quietest
        self.end, self.reason = self.now - after, "length"
        self.start = self.end
        self.speech_frames = sum(p >= self._config.start_threshold for p in self._recent[len(self._recent) - after :])
        self._pause = None
        self._recent = self._recent[len(self._recent) - after :]
