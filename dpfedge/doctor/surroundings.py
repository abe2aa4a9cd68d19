# SPDX-License-Identifier: Apache-2.0
"""What the checks look at, and what they find: a root, an environment and folders of packages; findings.

It checks nothing itself.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from dpfedge.hardware.probe import Machine, probe_root
from dpfedge.hardware.source.root import Root

__all__ = ["Finding", "Level", "Surroundings", "User"]

Level = Literal["fault", "warning", "note"]
"""A fault keeps a wanted backend from working; a warning may surprise; a note is good to know."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found, and what to do about it."""

    check: str
    level: Level
    where: str
    what: str
    remedy: str = ""
    backends: tuple[str, ...] = ()
    """Those it concerns; none: all."""

    def __str__(self) -> str:
        return f"{self.level}: {self.where}: {self.what}{self.remedy and '; '}{self.remedy}"


@dataclass(frozen=True, slots=True)
class User:
    """Who wants to open device nodes."""

    uid: int
    groups: frozenset[int]

    @classmethod
    def current(cls) -> User:
        """The user of this process."""
        return cls(os.geteuid(), frozenset({os.getegid(), *os.getgroups()}))


@dataclass(frozen=True)
class Surroundings:
    """One machine, or a recording of it, with the Python installation that dpfedge would run in there."""

    root: Root
    environ: Mapping[str, str] = field(default_factory=dict)
    packages: Sequence[str] = ()
    """Folders that Python imports from."""
    user: User = field(default_factory=lambda: User.current())

    @classmethod
    def of(cls, root: Root) -> Surroundings:
        """This process's, on this machine; a recording has neither an environment nor packages."""
        return cls(root, dict(os.environ), tuple(sys.path)) if root.live else cls(root)

    @cached_property
    def machine(self) -> Machine:
        """What the machine is."""
        return probe_root(self.root)
