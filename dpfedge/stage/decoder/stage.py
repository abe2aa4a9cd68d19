# SPDX-License-Identifier: Apache-2.0
"""The decoder stage: audio as it arrives in, utterances of 16 kHz mono samples out; it runs no recognition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dpfedge.backend.api import Budget
from dpfedge.errors import ModelError
from dpfedge.stage.api import TURN_STRIDE, Mode, RequestIO, Steps
from dpfedge.stage.decoder.config import FRAME, RATE, DecoderConfig
from dpfedge.stage.decoder.container import open_reader
from dpfedge.stage.decoder.listener import Listener
from dpfedge.stage.decoder.resample import Resampler
from dpfedge.stage.decoder.vad import WINDOW, VoiceActivity

__all__ = ["DecoderStage"]


class DecoderStage:
    """Owns one Silero model."""

    name = "decoder"

    def __init__(self, model: Any, config: Mapping[str, Any], budget: Budget) -> None:
        """`model` is a bound Silero model; ModelError when it is not."""
        self._config = DecoderConfig.of(config)
        graphs = tuple(model.graphs)
        if len(graphs) != 1:
            where, found = f"model {model.name}", ", ".join(graphs)
            raise ModelError("a voice activity model has one graph", where=where, found=found)
        self._executable = model.load(graphs[0], budget)
        ports = {spec.name for spec in (*self._executable.inputs, *self._executable.outputs)}
        if not ports >= {"input", "state", "output", "stateN"}:
            found, allowed = ", ".join(sorted(ports)), "input, state, output, stateN"
            raise ModelError("not a Silero model's ports", where=f"model {model.name}", found=found, allowed=allowed)

    def warm(self) -> None:
        """Judge two frames of silence, and load the resampler."""
        vad = VoiceActivity(self._executable)
        for _ in range(2):
            vad.probability(np.zeros(WINDOW, np.float32))
        Resampler(2 * RATE).push(np.zeros(FRAME, np.float32))

    def facts(self) -> Mapping[str, Any]:
        """`rate` in Hz of what the encoder is given, and the times of endpointing in ms."""
        config = self._config
        times = {"draft_ms": config.draft_ms, "endpoint_ms": config.endpoint_ms, "pre_roll_ms": config.pre_roll_ms}
        return {"rate": RATE, **times}

    def request(self, io: RequestIO) -> Steps:
        """TRANSCRIBE: segments of a file, numbered from 1. CONVERSE: turns, numbered in strides, until the last audio.

        START's options: `format` {encoding, rate, channels}, `vad` (see `DecoderConfig.for_request`; with
        `{"type": "none"}` only FLUSH ends a turn) and `turn`, the newest number so far.
        """
        vad = io.options.get("vad") or {}
        newest = int(io.options.get("turn", 0))
        listener = Listener(
            io,
            open_reader(io.options.get("format")),
            VoiceActivity(self._executable),
            self._config.for_request(vad),
            endpointing=vad.get("type") != "none",
            first_turn=newest // TURN_STRIDE * TURN_STRIDE if io.mode is Mode.CONVERSE else 0,
        )
        try:
            yield from listener.run()
        finally:
            listener.close()
