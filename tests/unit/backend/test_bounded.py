# SPDX-License-Identifier: Apache-2.0
"""Questions to libraries that answer, fail, and hang."""

from __future__ import annotations

import os
import threading
from contextlib import suppress

import pytest

from dpfedge.backend.bounded import Watched, bounded
from dpfedge.errors import BackendError, Unavailable


def forever(watched: Watched[int], *passed: type[Exception]) -> None:
    """Asks until something else than `passed` is raised."""
    while True:
        with suppress(*passed):
            watched.latest()


def test_bounded__answers() -> None:
    """The answer, and None is one, too."""
    assert bounded(lambda: 7, "library x") == 7
    assert bounded(lambda: None, "library x") is None


def test_bounded__raises_what_was_raised() -> None:
    """In the caller's thread."""

    def ask() -> int:
        raise BackendError("no", where="library x")

    with pytest.raises(BackendError, match="library x: no"):
        bounded(ask, "library x")


@pytest.mark.parametrize("error", [KeyError("amdsmi"), SystemExit(3)])
def test_bounded__raises_defects_too(error: BaseException) -> None:
    """At once: they are no library that hangs."""

    def ask() -> int:
        raise error

    with pytest.raises(type(error)):
        bounded(ask, "library x", 600.0)


def test_watched__after_a_fork() -> None:
    """The forked process has none of its parent's threads, and asks anew."""
    watched = Watched(os.getpid, "library x")
    assert watched.latest() == os.getpid()
    pid = os.fork()
    if pid == 0:
        right = False
        try:
            right = watched.latest() == os.getpid()
        finally:
            os._exit(0 if right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    watched.close()


def test_bounded__gives_up_on_what_hangs() -> None:
    """A named error; the thread is left behind."""
    free = threading.Event()
    with pytest.raises(Unavailable, match=r"library x: the library does not answer; found nothing for .* 0.05 s"):
        bounded(free.wait, "library x", 0.05)
    free.set()


def test_watched__asks_again_and_knows_when_it_hangs() -> None:
    """The last answer until it is stale; an error, too, is an answer of its moment."""
    count, hang, error = iter(range(1000)), threading.Event(), threading.Event()
    hang.set()

    def ask() -> int:
        assert hang.wait(60)
        if error.is_set():
            raise OSError(5, "Input/output error")
        return next(count)

    watched = Watched(ask, "library x", period_s=0.01, stale_s=0.2)
    assert watched.latest() >= 0
    while watched.latest() < 3:
        pass
    error.set()
    with pytest.raises(OSError, match="Input/output error"):
        forever(watched)
    error.clear()
    hang.clear()
    with pytest.raises(Unavailable, match="library x"):
        forever(watched, OSError)
    hang.set()
    watched.close()


def test_watched__begins_at_the_first_question() -> None:
    """A process that is forked before has no thread to lose."""
    before = threading.active_count()
    watched = Watched(lambda: 1, "library x")

    assert threading.active_count() == before
    assert watched.latest() == 1
    watched.close()
