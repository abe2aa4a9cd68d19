# SPDX-License-Identifier: Apache-2.0
"""The encoder stage: utterances in, their words out; it owns the recogniser and keeps nothing between requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dpfedge.backend.api import Budget
from dpfedge.stage.api import RequestIO, Steps
from dpfedge.stage.encoder.config import LIVE, EncoderConfig
from dpfedge.stage.encoder.moonshine import Moonshine
from dpfedge.stage.encoder.tokens import Tokens
from dpfedge.stage.encoder.transcriber import Duty, Transcriber
from dpfedge.stage.live import adjusted

__all__ = ["EncoderStage"]

_WARM_SAMPLES = 16000


def _hiss(count: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """f32[count] without a pattern, of 0.001 on the average; numpy.random would take a tenth of a stage's start."""
    bits = np.arange(1, count + 1, dtype=np.uint32) * np.uint32(0x9E3779B1)
    bits ^= bits >> np.uint32(15)
    bits *= np.uint32(0x85EBCA77)
    bits ^= bits >> np.uint32(13)
    return (bits * (4e-3 / (1 << 32)) - 2e-3).astype(np.float32)


class EncoderStage:
    """Owns one Moonshine model."""

    name = "encoder"

    def __init__(self, model: Any, config: Mapping[str, Any], budget: Budget) -> None:
        """`model` is a bound Moonshine model with the asset `tokenizer.bin`; ModelError when it is not."""
        self._own, self._config = config, EncoderConfig.of(config)
        self._title = str(model.name)
        self._tokens = Tokens(model.asset("tokenizer.bin"), first_special=int(model.config["special_from"]))
        self._recogniser = Moonshine(
            model, budget, tokens_per_second=self._config.tokens_per_second, repeats=self._config.repeats
        )
        self._duty = Duty()
        self._running: set[Transcriber] = set()

    def warm(self) -> None:
        """Recognise a hiss, so that every graph has run."""
        for _ in self._recogniser.recognise(_hiss(_WARM_SAMPLES)):
            pass

    def facts(self) -> Mapping[str, Any]:
        """`name` of the model and the `languages` it knows."""
        return {"name": self._title, "languages": ["en"]}

    def adjust(self, settings: Mapping[str, Any]) -> None:
        """Work as configured, except for these settings (of `LIVE`), from the next partial transcript on."""
        self._config = EncoderConfig.of(adjusted(self._own, settings, LIVE, "stage encoder"))
        for transcriber in self._running:
            transcriber.config = self._config

    def request(self, io: RequestIO) -> Steps:
        """TRANSCRIBE: one TEXT per segment, then DONE of turn 0. CONVERSE: DRAFT, TEXT and DONE for each turn."""
        transcriber = Transcriber(io, self._recogniser, self._tokens, self._config, self._duty)
        self._running.add(transcriber)
        try:
            yield from transcriber.run()
        finally:
            self._running.discard(transcriber)
            transcriber.close()
