# SPDX-License-Identifier: Apache-2.0
"""The text reader: lines of frames in place in, their words out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import cbor2
import numpy as np
import pytest

from dpfedge.backend.api import Budget
from dpfedge.errors import InputError, ModelError
from dpfedge.stage.api import Kind, Mode, Wait
from dpfedge.stage.text_lines import strip_bytes, write_lines
from dpfedge.stage.text_read import stage as module
from dpfedge.stage.text_read.ports import FOUND_BYTES
from dpfedge.stage.text_read.stage import TextReadStage

Written = Callable[[str], np.ndarray]


def page(written: Written, rows: Sequence[Sequence[str]]) -> np.ndarray:
    """One frame: rows of lines that stand beside each other."""
    lines = [(number, place, text) for number, row in enumerate(rows) for place, text in enumerate(row)]
    widths = [8 * len(text) for _, _, text in lines]
    data = np.zeros(strip_bytes(widths, 48), np.uint8)
    boxes = [
        [(100 * x, 40 * y), (100 * x + 80, 40 * y), (100 * x + 80, 40 * y + 30), (100 * x, 40 * y + 30)]
        for y, x, _ in lines
    ]
    corners = np.array(boxes, np.float32).reshape(-1, 4, 2)
    for place, (_, _, text) in zip(
        write_lines(data, corners, np.ones(len(lines)), widths, 48, (480, 640)), lines, strict=True
    ):
        place[:] = written(text)
    data.flags.writeable = False
    return data


def run(
    driver: Any, stage: TextReadStage, pages: Sequence[np.ndarray | Kind], outputs: Sequence[str] = ("found", "text")
) -> Any:
    """A request of these frames (or FLUSH), to its end."""
    io = driver.IO(Mode.RUN, {}, ("sink", *outputs))
    io.inputs = frozenset(("lines",))
    for number, data in enumerate(pages):
        message = io.put(data) if isinstance(data, Kind) else io.put(Kind.DATA, data, turn=0)
        message.port, message.captured_ns = "lines", number + 1
    io.put(Kind.END).port = "lines"
    driver.drive(stage.request(io), io)
    return io


def test_found__lines_with_boxes_and_rows(
    driver: Any, read_stage: Callable[..., TextReadStage], written: Written
) -> None:
    """Words of one row are joined by a space, rows by a line feed; a frame without text says so."""
    io = run(driver, read_stage(), [page(written, [["ab", "cd"], ["e_e"]]), page(written, [])])

    first, second = io.of(Kind.DATA, "found")
    assert first["text"] == "ab cd\nee"
    assert [(line["text"], line["row"]) for line in first["lines"]] == [("ab", 0), ("cd", 0), ("ee", 1)]
    assert first["lines"][1]["box"] == [100, 0, 180, 0, 180, 30, 100, 30]
    assert first["lines"][0]["confidence"] > 0.9
    assert second == {"lines": [], "text": ""}
    done = io.of(Kind.DONE)[0]
    assert {name: done[name] for name in ("messages", "lines", "unsure", "left_out", "texts")} == {
        "messages": 2, "lines": 3, "unsure": 0, "left_out": 0, "texts": 1,
    }  # fmt: skip


def test_found__unsure_lines_are_left_out(
    driver: Any, read_stage: Callable[..., TextReadStage], written: Written
) -> None:
    """They are counted; spaces at the ends go, lines of nothing are none."""
    io = run(driver, read_stage(confidence=0.6), [page(written, [["ab"], ["?"], ["___"], [" c "]])])

    assert io.of(Kind.DATA, "found")[0]["text"] == "ab\nc"
    assert io.of(Kind.DONE)[0]["unsure"] == 1


@pytest.mark.parametrize(
    ("send", "texts"),
    [("each", ["ab", "ab", "cd\nab"]), ("change", ["ab", "cd\nab"]), ("end", ["ab\ncd"])],
)
def test_text__when_it_is_given_on(
    driver: Any, read_stage: Callable[..., TextReadStage], written: Written, send: str, texts: list[str]
) -> None:
    """Of each frame that has any, when it changes, or every line once at the end; then the end itself."""
    frames = [page(written, rows) for rows in ([["ab"]], [["ab"]], [], [["cd"], ["ab"]])]
    io = run(driver, read_stage(send=send), frames)

    assert io.of(Kind.DATA, "text") == texts
    assert io.of(Kind.END, "text") == [""]
    assert io.of(Kind.DONE)[0]["texts"] == len(texts)


def test_text__flushed(driver: Any, read_stage: Callable[..., TextReadStage], written: Written) -> None:
    """A flush gives out what `end` holds back, once."""
    io = run(driver, read_stage(send="end"), [page(written, [["ab"]]), Kind.FLUSH, page(written, [["cd"]])])

    assert io.of(Kind.DATA, "text") == ["ab", "cd"]
    assert io.of(Kind.FLUSH, "text") == [""]


def test_text__no_longer_than_a_slot(driver: Any, read_stage: Callable[..., TextReadStage], written: Written) -> None:
    """Whole rows are left out and counted, in every way of sending."""
    rows = [["abcde" * 6]] * 2 + [["ab"]] + [["edcba" * 6]]
    for send, expected in (("each", "\n".join(["abcde" * 6] * 2)), ("end", "abcde" * 6 + "\nab")):
        io = run(driver, read_stage(send=send, text_bytes=64), [page(written, rows)])

        (text,) = io.of(Kind.DATA, "text")
        assert text.startswith(expected)
        assert len(text.encode()) <= 64
        assert io.of(Kind.DONE)[0]["left_out"] == (2 if send == "each" else 1)


def test_text__without_anyone_to_read_it(
    driver: Any, read_stage: Callable[..., TextReadStage], written: Written
) -> None:
    """Nothing is kept for an output that is not linked."""
    io = run(driver, read_stage(send="end"), [page(written, [["ab"]])], outputs=["found"])

    assert {port for port, *_ in io.sent} == {"found", "sink"}


def test_found__never_larger_than_a_slot(
    driver: Any, read_stage: Callable[..., TextReadStage], written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines that find no room are counted."""
    monkeypatch.setattr(module, "FOUND_BYTES", 800)
    io = run(driver, read_stage(), [page(written, [["abcde"], ["edcba"], ["ab"], ["cd"], ["eb"]])])

    found = io.of(Kind.DATA, "found")[0]
    assert 0 < len(found["lines"]) < 5
    assert len(found["text"].splitlines()) == len(found["lines"])
    assert len(cbor2.dumps(found)) <= 800
    assert io.of(Kind.DONE)[0]["left_out"] == 5 - len(found["lines"])
    assert FOUND_BYTES > 800


def test_lines__each_is_a_step(driver: Any, read_stage: Callable[..., TextReadStage], written: Written) -> None:
    """Others get their turn between two lines; a cancelled frame gives nothing."""
    stage = read_stage()
    io = driver.IO(Mode.RUN, {}, ("sink", "found"))
    io.inputs = frozenset(("lines",))
    io.put(Kind.DATA, page(written, [["ab"], ["cd"], ["ee"]]), turn=0).port = "lines"
    io.put(Kind.END).port = "lines"
    steps = stage.request(io)

    assert [next(steps), next(steps)] == [Wait.STEP, Wait.STEP]
    io.cancel_before = 1
    driver.drive(steps, io)
    assert io.of(Kind.DATA, "found") == []
    assert not stage._pages


def test_message__that_is_none(driver: Any, read_stage: Callable[..., TextReadStage]) -> None:
    """A message of another layout fails the request, and its page is forgotten."""
    stage = read_stage()
    with pytest.raises(InputError, match="not the lines of a frame"):
        run(driver, stage, [np.zeros(4, np.uint8)])
    assert not stage._pages


def test_stage__facts_and_models(read_stage: Callable[..., TextReadStage]) -> None:
    """Fixed widths are all warmed; without a model there is no stage."""
    assert read_stage(64, 128).facts() == {"name": "read", "characters": 6}
    assert TextReadStage.name == "text-read"
    with pytest.raises(ModelError, match="the stage needs a model; allowed family ppocr-read"):
        TextReadStage(None, {}, Budget())
