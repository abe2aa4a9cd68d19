# SPDX-License-Identifier: Apache-2.0
"""Children that answer, refuse, write nonsense, and do not answer; vendors' are in tests/unit/plugins."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from dpfedge.backend import telling
from dpfedge.backend.telling import Asked, Teller, ask_once
from dpfedge.errors import BackendError, Unavailable

Program = Callable[[str], Asked]
HEAD = "import os, sys, time\nfrom dpfedge.backend.answering import serve\n"


def refused(answer: Mapping[str, Any]) -> BackendError:
    """The error of an answer that is one."""
    return BackendError(str(answer["error"]), where="backend x")


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Whom to ask, made of a program's body."""

    def made(body: str) -> Asked:
        path = tmp_path / "child.py"
        path.write_text(HEAD + body)
        return Asked(path, "the library", "backend x", "look at dmesg", refused)

    return made


def test_ask__answers_by_one_child(program: Program) -> None:
    """Which stays; after an error another one takes its place."""
    teller = Teller(program("serve(lambda q: {'pid': os.getpid(), **({'error': 'no'} if q['ask'] == 'no' else {})})"))

    first = teller.ask("pid")["pid"]
    assert teller.ask("pid")["pid"] == first
    with pytest.raises(BackendError, match="backend x: no"):
        teller.ask("no")
    assert teller.ask("pid")["pid"] != first
    teller.close()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("print('no JSON', flush=True); time.sleep(60)", "the library wrote into the answer: b'no JSON"),
        ("print('[1]', flush=True); time.sleep(60)", "the library wrote into the answer"),
        ("sys.exit(3)", "the library ended the process that asked it with status 3"),
        ("while True: print('x' * 65536, end='')", "the library ended the process that asked it"),
        ("time.sleep(60)", "the library does not answer within 0.5 s; look at dmesg"),
    ],
)
def test_ask_once__no_answer(program: Program, body: str, words: str) -> None:
    """Each is named; the child is gone."""
    within = 0.5 if body.startswith("time") else 30.0
    with pytest.raises(Unavailable, match=f"backend x: {words}"):
        ask_once(program(body), "anything", within)


def test_ask_once__answers(program: Program) -> None:
    """Or refuses."""
    asked = program("serve(lambda q: {q['ask']: 'no'})")

    assert ask_once(asked, "something", 30.0) == {"something": "no"}
    with pytest.raises(BackendError, match="backend x: no"):
        ask_once(asked, "error", 30.0)


def test_ask__errors_leave_nothing_behind(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each costs a child, which is gone; for a moment the same question is answered without one."""
    teller = Teller(program("serve(lambda q: {'error': str(os.getpid())})"))
    before, open_files = len(weakref.finalize._registry), len(os.listdir("/proc/self/fd"))  # type: ignore[attr-defined]
    told = set()
    for _ in range(3):
        with pytest.raises(BackendError) as caught:
            teller.ask("state")
        told.add(caught.value.what)
    assert len(told) == 1
    monkeypatch.setattr(telling, "_REFUSED_S", 0.0)
    for _ in range(3):
        with pytest.raises(BackendError) as caught:
            teller.ask("state")
        told.add(caught.value.what)
    assert len(told) == 4
    assert len(weakref.finalize._registry) == before  # type: ignore[attr-defined]
    assert len(os.listdir("/proc/self/fd")) == open_files
