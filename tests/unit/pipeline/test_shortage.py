# SPDX-License-Identifier: Apache-2.0
"""What ran short at a start, by name."""

from __future__ import annotations

import asyncio
import errno
import os
import threading

import pytest

from dpfedge.errors import StageError
from dpfedge.pipeline.shortage import beside, names_shortage, shortage


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (
            errno.EMFILE,
            r"start: the pipeline cannot be started: Too many open files; found a limit of \d+ open files; raise",
        ),
        (errno.ENFILE, "fs.file-max"),
        (errno.EAGAIN, r"found (no limit|a limit of \d+) on processes and threads; raise it \(ulimit -u\)"),
        (errno.ENOMEM, r"Cannot allocate memory; free memory, or raise"),
    ],
)
def test_start__says_what_is_short(number: int, text: str) -> None:
    """The limit that counts, and how to raise it; the error behind it is kept."""

    @names_shortage
    def start() -> None:
        raise OSError(number, os.strerror(number))

    with pytest.raises(StageError, match=text) as caught:
        start()
    assert isinstance(caught.value.__cause__, OSError)


def test_start__without_a_thread() -> None:
    """Python names no errno there."""

    @names_shortage
    def start() -> None:
        raise RuntimeError("can't start new thread")

    with pytest.raises(StageError, match="on processes and threads"):
        start()


@pytest.mark.parametrize("error", [OSError(errno.ENOENT, "x"), RuntimeError("x"), ValueError("x")])
def test_start__other_errors_stay(error: Exception) -> None:
    """They are of something else."""

    @names_shortage
    def start() -> None:
        raise error

    with pytest.raises(type(error)):
        start()
    assert shortage(None) is None


def test_start__that_works() -> None:
    """Nothing is changed."""
    assert names_shortage(lambda one, *, two: (one, two))(1, two=2) == (1, 2)


@pytest.mark.parametrize("threads", [True, False])
def test_end__with_and_without_a_thread(threads: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was started is ended where nothing more can be started, too."""
    seen: list[bool] = []

    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    async def test() -> None:
        with monkeypatch.context() as patch:
            if not threads:
                patch.setattr(threading.Thread, "start", refuse)
            await beside(lambda: seen.append(threading.current_thread() is threading.main_thread()))

    asyncio.run(test())
    assert seen == [not threads]


def test_end__whose_own_error_is_another() -> None:
    """It is the caller's."""

    def end() -> None:
        raise RuntimeError("x")

    with pytest.raises(RuntimeError, match="x"):
        asyncio.run(beside(end))
