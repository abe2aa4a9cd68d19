# SPDX-License-Identifier: Apache-2.0
"""Surroundings of this process and of a recording."""

from __future__ import annotations

import os
import sys

from dpfedge.doctor.surroundings import Finding, Surroundings, User
from dpfedge.hardware.source.root import Root

from .conftest import MACHINES


def test_of__this_machine_and_a_recording() -> None:
    """A recording knows nothing of our environment and our packages."""
    here, there = Surroundings.of(Root("/")), Surroundings.of(Root(MACHINES / "thor"))

    assert list(here.packages) == sys.path
    assert here.environ == dict(os.environ)
    assert (there.environ, there.packages) == ({}, ())
    assert there.machine.arch == "aarch64"


def test_user__current() -> None:
    """Every group counts."""
    assert User.current().groups >= {os.getegid()}


def test_finding__as_a_line() -> None:
    """Level, where, what, and the remedy where there is one."""
    assert str(Finding("c", "fault", "here", "it broke", "mend it")) == "fault: here: it broke; mend it"
    assert str(Finding("c", "note", "here", "it is so")) == "note: here: it is so"
