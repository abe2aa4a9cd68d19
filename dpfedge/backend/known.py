# SPDX-License-Identifier: Apache-2.0
"""The machine that is being bound on: told once, so that no backend probes it a second time.

It keeps nothing beyond the context it was told in.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from dpfedge.hardware.probe import Machine, probe

__all__ = ["known_machine", "machine_at"]

_KNOWN: ContextVar[tuple[str, Machine] | None] = ContextVar("machine", default=None)


@contextmanager
def known_machine(sysroot: str | Path, machine: Machine) -> Iterator[None]:
    """Inside, `machine_at(sysroot)` is `machine`."""
    token = _KNOWN.set((str(sysroot), machine))
    try:
        yield
    finally:
        _KNOWN.reset(token)


def machine_at(sysroot: str | Path = "/") -> Machine:
    """The machine below `sysroot`: the known one, else probed now."""
    known = _KNOWN.get()
    return known[1] if known is not None and known[0] == str(sysroot) else probe(sysroot)
