# SPDX-License-Identifier: Apache-2.0
"""The text reader: the lines of a frame where they lie in, their words out, one bounded step per line.

It owns the model and finds no lines. What it gives per frame is the CBOR map {lines: [{text, confidence, box, row}],
text}, `box` the eight numbers x, y of the corners from where reading starts, clockwise, in pixels of the frame; lines
of one `row` stand beside each other.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import field
from typing import Any

import numpy as np

from dpfedge.backend.api import Array, Budget
from dpfedge.errors import ModelError
from dpfedge.records import dataclass
from dpfedge.stage.api import Kind, Message, RequestIO, Steps, Wait
from dpfedge.stage.each import Each
from dpfedge.stage.text_lines import read_lines, rows_of
from dpfedge.stage.text_read.config import TextReadConfig
from dpfedge.stage.text_read.ctc import Characters, decode
from dpfedge.stage.text_read.model import Reader
from dpfedge.stage.text_read.ports import FOUND_BYTES, ports

__all__ = ["TextReadStage"]

_FOUND_SPARE = 256  # bytes of a map beside its lines
_LINE_SPARE = 160  # bytes of a line's numbers and keys


@dataclass(slots=True)
class _Page:
    """What one request has read."""

    last: str = ""
    seen: dict[str, None] = field(default_factory=dict)
    seen_bytes: int = 0
    captured_ns: int = 0
    lines: int = 0
    unsure: int = 0
    left_out: int = 0
    texts: int = 0
    read_ns: int = 0


class TextReadStage(Each):
    """Owns one PP-OCR reader."""

    name = "text-read"
    ports = staticmethod(ports)

    def __init__(self, model: Any, config: Mapping[str, Any], budget: Budget) -> None:
        """`model` is a bound model of the family `ppocr-read`; ModelError when it is not."""
        super().__init__(model, config, budget)
        if model is None:
            raise ModelError("the stage needs a model", where="stage text-read", allowed="family ppocr-read")
        self._config = TextReadConfig.of(config)
        where = f"model {model.name}"
        self._characters = Characters(model.asset("characters.txt"), int(model.config["classes"]), where)
        self._reader = Reader(model, budget)
        self._pages: dict[int, _Page] = {}

    def warm(self) -> None:
        """Read an empty line of every width there is a graph for."""
        for width in self._reader.widths or (320,):
            self._decoded(np.full((self._reader.rows, width, 3), 255, np.uint8))

    def facts(self) -> Mapping[str, Any]:
        """`name` of the model and how many `characters` it knows."""
        return {"name": self.model.name, "characters": len(self._characters) - 1}

    def request(self, io: RequestIO) -> Steps:
        """See `Each`."""
        self._pages[io.key] = _Page()
        try:
            yield from super().request(io)
        finally:
            del self._pages[io.key]

    def report(self, io: RequestIO) -> Mapping[str, Any]:
        """Lines read, those too unsure, those for which there was no room, texts given on, and what reading took."""
        page = self._pages[io.key]
        counts = {name: getattr(page, name) for name in ("lines", "unsure", "left_out", "texts")}
        return {**counts, "read_ms": page.read_ns / 1e6}

    def each(self, io: RequestIO, message: Message) -> Steps:
        """The lines of one frame."""
        page, turn = self._pages[io.key], message.turn
        lines = read_lines(message.array())
        page.captured_ns = message.captured_ns
        rows = rows_of(np.stack([line.corners for line in lines])).tolist() if lines else []
        found: list[dict[str, Any]] = []
        for line, row in zip(lines, rows, strict=True):
            text, confidence = self._read(page, line.pixels)
            yield Wait.STEP
            if io.cancelled(turn):
                return
            if text and confidence >= self._config.confidence:
                box = [round(float(number), 1) for number in line.corners.reshape(-1)]
                found.append({"text": text, "confidence": round(confidence, 4), "box": box, "row": row})
            elif text:
                page.unsure += 1
        page.lines += len(found)
        text = _running(found)
        if io.has("found"):
            kept = self._that_fit(page, found)
            data = {"lines": kept, "text": text if len(kept) == len(found) else _running(kept)}
            yield from io.map("found", Kind.DATA, data, turn=turn, captured_ns=message.captured_ns)
        yield from self._give_on(io, page, text, turn)

    def finish(self, io: RequestIO) -> Steps:
        """With `send: end`, the lines of the whole request."""
        yield from self._give_all(io)

    def flush(self, io: RequestIO) -> Steps:
        """As at the end; what is read later begins anew."""
        yield from self._give_all(io)

    def _read(self, page: _Page, pixels: Array) -> tuple[str, float]:
        started = time.monotonic_ns()
        text, confidence = self._decoded(pixels)
        page.read_ns += time.monotonic_ns() - started
        return text.strip(), confidence

    def _decoded(self, pixels: Array) -> tuple[str, float]:
        try:
            return decode(self._reader.run(pixels), self._characters)
        finally:
            self._reader.release()

    def _that_fit(self, page: _Page, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The lines that one message has room for: each may be there twice, alone and in the running text."""
        sizes = np.cumsum([2 * len(line["text"].encode()) + _LINE_SPARE for line in found])
        count = int(np.count_nonzero(sizes <= FOUND_BYTES - _FOUND_SPARE))
        page.left_out += len(found) - count
        return found[:count]

    def _give_on(self, io: RequestIO, page: _Page, text: str, turn: int) -> Steps:
        if not io.has("text"):
            return
        if self._config.send == "end":
            self._keep(page, text)
        elif text and (self._config.send == "each" or text != page.last):
            page.last = text
            yield from self._send(io, page, self._cut(page, text), turn)

    def _give_all(self, io: RequestIO) -> Steps:
        page = self._pages[io.key]
        if page.seen:
            text = "\n".join(page.seen)
            page.seen, page.seen_bytes = {}, 0
            yield from self._send(io, page, text, 0)

    def _send(self, io: RequestIO, page: _Page, text: str, turn: int) -> Steps:
        yield from io.text("text", Kind.DATA, text, turn=turn, captured_ns=page.captured_ns)
        page.texts += 1

    def _keep(self, page: _Page, text: str) -> None:
        """The rows not seen before, as far as there is room."""
        for row in text.splitlines():
            size = len(row.encode()) + 1
            if row in page.seen:
                continue
            if page.seen_bytes + size > self._config.text_bytes:
                page.left_out += 1
                continue
            page.seen[row] = None
            page.seen_bytes += size

    def _cut(self, page: _Page, text: str) -> str:
        """As many whole rows as one message takes."""
        rows = text.split("\n")
        sizes = np.cumsum([len(row.encode()) + 1 for row in rows])
        count = int(np.count_nonzero(sizes <= self._config.text_bytes))
        page.left_out += len(rows) - count
        return "\n".join(rows[:count])


def _running(found: list[dict[str, Any]]) -> str:
    """The words as one text: lines of a row joined by spaces, rows by line feeds."""
    rows: dict[int, list[str]] = {}
    for line in found:
        rows.setdefault(line["row"], []).append(line["text"])
    return "\n".join(" ".join(words) for words in rows.values())
