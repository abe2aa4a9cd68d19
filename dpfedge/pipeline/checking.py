# SPDX-License-Identifier: Apache-2.0
"""A package's weights compared with their digests while its stages load them: an opened package in, one verdict out.

What anybody parses (graphs, tokenizers, templates) must have been checked before; weights are numbers that no code
interprets. Nothing may be answered before the verdict; whoever owns the stages sees to that.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

from dpfedge.errors import PackageError

if TYPE_CHECKING:
    from dpfedge.package import Package, Section

__all__ = ["Checking", "is_weights"]

_NICE = 10  # what loads goes first: the start ends when both are done


def is_weights(section: Section) -> bool:
    """Whether a section may be mapped by a stage before its digest was compared."""
    return section.kind == "weights"


class Checking:
    """The check of one package's weights, begun when this is made; the package must stay open until it ended."""

    def __init__(self, package: Package) -> None:
        self._package = package
        self._verdict: Future[None] = Future()
        self._given_up = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dpf-check", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        from dpfedge.package.verify import check_content

        try:
            _be_nice()
            check_content(self._package, is_weights, given_up=self._given_up.is_set)
        except PackageError as error:
            self._verdict.set_exception(error)
        else:
            self._verdict.set_result(None)
        finally:
            if not self._verdict.done():  # a bug, and its traceback is printed: nobody may wait for ever
                self._verdict.set_exception(PackageError("the check ended unexpectedly", where=str(self._package.path)))

    @property
    def passed(self) -> bool:
        """Whether every byte was found to be right."""
        return self._verdict.done() and self._verdict.exception() is None

    def wait(self) -> None:
        """Block until the check ended; DigestError or FormatError names what is damaged."""
        self._verdict.result()

    def stop(self) -> None:
        """Give the check up if it goes on; nothing reads the package after this."""
        self._given_up.set()
        self._thread.join()


def _be_nice() -> None:
    """Threads made by this one inherit it; only what is nicer already is left as it is: back there is no way."""
    thread = threading.get_native_id()
    if os.getpriority(os.PRIO_PROCESS, thread) < _NICE:
        os.setpriority(os.PRIO_PROCESS, thread, _NICE)
