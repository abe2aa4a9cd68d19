# SPDX-License-Identifier: Apache-2.0
"""What a stage takes and gives: typed ports, and whether an output fits an input. It moves no data.

Nothing is converted between ports: a cast, a resample or another layout is a stage that somebody wrote down.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from math import prod

from dpfedge.errors import ConfigError
from dpfedge.limits import KIB
from dpfedge.records import dataclass
from dpfedge.tensors import DTYPE_BYTES, DTYPES

__all__ = ["RANK_MAX", "Dim", "Port", "Ports", "accepts", "difference", "text_port"]

SLOTS_MAX = 4096  # of a link
SINK = "sink"  # the output to the caller
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,23}")
RANK_MAX = 3  # of a message; the descriptor has place for no more


@dataclass(frozen=True, slots=True)
class Dim:
    """A dynamic dimension: its `name`, and the `least` and the `most` it may be."""

    name: str
    least: int
    most: int

    def __str__(self) -> str:
        return f"{self.name} {self.least}..{self.most}"


@dataclass(frozen=True, slots=True)
class Port:
    """One input or output: what every message through it is.

    `shape` has sizes and `Dim`s, at most 3; none: a single number, which arrives as an array of one. `rate` is in Hz,
    of samples or frames; `layout` (`mono`, `hwc`, …) and `unit` (`amplitude`, `rgb`, `utf-8`, …) are words compared as
    they are. Empty, None: not said, which fits anything.
    `slots` is how many messages a link from here holds unless the pipeline says otherwise.
    """

    dtype: str
    shape: tuple[int | Dim, ...] = ()
    rate: float | None = None
    layout: str = ""
    unit: str = ""
    slots: int = 8
    optional: bool = False
    """May stay unlinked; then it is not there: an output gives nothing, an input hears nothing."""

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ConfigError("unknown dtype of a port", found=self.dtype, allowed=", ".join(DTYPES))
        if len(self.shape) > RANK_MAX:
            raise ConfigError("too many dimensions of a port", found=len(self.shape), allowed=f"at most {RANK_MAX}")
        for size in self.shape:
            least, most = (size.least, size.most) if isinstance(size, Dim) else (size, size)
            if not 0 <= least <= most or most == 0:
                raise ConfigError(
                    "a size of a port makes no sense", found=size, allowed="0 <= least <= most, 1 <= most"
                )
        if not 2 <= self.slots <= SLOTS_MAX:
            raise ConfigError("a link of a port cannot be", found=f"{self.slots} slots", allowed=f"2 to {SLOTS_MAX}")

    @property
    def nbytes(self) -> int:
        """The most bytes one message takes."""
        return DTYPE_BYTES[self.dtype] * prod(size.most if isinstance(size, Dim) else size for size in self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class Ports:
    """All ports of a stage by name, and what its two links with the runtime itself hold, as (slots, bytes of one).

    `control`: requests to the stage. `sink`: its reports, and what a voice or an llm says to the caller.
    """

    inputs: Mapping[str, Port] = field(default_factory=dict)
    outputs: Mapping[str, Port] = field(default_factory=dict)
    control: tuple[int, int] = (8, 32 * KIB)
    sink: tuple[int, int] = (16, 8 * KIB)

    def __post_init__(self) -> None:
        for name, port in (*self.inputs.items(), *self.outputs.items()):
            if not isinstance(port, Port):
                raise ConfigError("not a port", where=f"port {name}", found=type(port).__name__, allowed="Port(...)")
            if not isinstance(name, str) or not _NAME.fullmatch(name) or name == SINK:
                allowed = f"{_NAME.pattern}, but not {SINK}, which every stage has"
                raise ConfigError("a port cannot be called that", found=repr(name), allowed=allowed)


def text_port(nbytes: int, slots: int = 8, *, optional: bool = False) -> Port:
    """A port of UTF-8 texts of at most `nbytes` bytes."""
    return Port("bytes", (Dim("bytes", 0, nbytes),), unit="utf-8", slots=slots, optional=optional)


def difference(output: Port, port: Port) -> tuple[str, object, object] | None:
    """The first thing in which an output does not fit an input: its name, the output's and the input's; None: it fits.

    An output's dynamic dimension must stay within the input's bounds; a size must be one the input takes.
    """
    if output.dtype != port.dtype:
        return "dtype", output.dtype, port.dtype
    if len(output.shape) != len(port.shape):
        return "rank", f"{len(output.shape)} dimensions", f"{len(port.shape)} dimensions"
    for place, (given, taken) in enumerate(zip(output.shape, port.shape, strict=True)):
        if not _within(given, taken):
            return f"dimension {place}", given, taken
    for name in ("rate", "layout", "unit"):
        ours, theirs = getattr(output, name), getattr(port, name)
        if ours and theirs and ours != theirs:
            return name, ours, theirs
    return None


def accepts(port: Port, dtype: str, shape: tuple[int, ...]) -> bool:
    """Whether a message of this dtype and shape may go through the port."""
    fits = len(shape) == len(port.shape) and all(map(_within, shape, port.shape))
    return fits and dtype == port.dtype


def _within(given: int | Dim, taken: int | Dim) -> bool:
    least, most = (given.least, given.most) if isinstance(given, Dim) else (given, given)
    low, high = (taken.least, taken.most) if isinstance(taken, Dim) else (taken, taken)
    return low <= least and most <= high
