# SPDX-License-Identifier: Apache-2.0
"""One program that holds several kernels and runs a list of their launches one behind the other, in one launch.

A launch costs a CPU's driver some microseconds, and more to wake a second thread, which sleeps between launches. The
text of each kernel becomes a function here, with its names made its own; what is launched with which arguments stands
in a table in memory, so that a program serves every plan that has these kernels or fewer.

The launch's groups share the work: the items of all launches of the list are parted into tickets with numbers that go
through, and a group takes the next one once all tickets of the launches before are done. Nobody waits for a group that
does not run: one alone, or one that comes late, is as right as all of them side by side.

It knows no operator. Kernels ask for nothing of an item but `get_global_id`.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from dpfedge_opencl.ops.source import OPTIONS
from dpfedge_opencl.plan import Kernel, Launch, Scalar, Tensor

__all__ = ["HEAD", "STATE", "Joined", "digest", "signature", "words_of"]

_ENTRY = "joined"
_MARK = "// holds "
_KINDS: Mapping[type, str] = {np.int32: "i", np.uint32: "u", np.int64: "l", np.uint64: "k", np.float32: "f"}
_WORDS = {"t": 3, "i": 1, "u": 1, "l": 2, "k": 2, "f": 1}
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)
_TYPEDEF = re.compile(r"^typedef [^;]*?(\w+)(?: __attribute__\(\(.*?\)\)\))?;$", re.MULTILINE)
_FUNCTION = re.compile(
    r"^(?:static|inline|INNER) [^(;=]*?(?:__attribute__\(\(\w+\)\) [^(;=]*?)?(?!__attribute__)\b(\w+)\(", re.MULTILINE
)
_KERNEL = re.compile(r"__kernel\s+void\s+(\w+)\s*\(")
_NUMBER = {4: struct.Struct("=I"), 8: struct.Struct("=II")}
HEAD = 7
"""Words of a launch in the table before its arguments: number of the kernel, words in all, three sizes, its first
ticket, items of a ticket."""
_LOOKS = 1 << 18
"""How often a group looks whether it can go on: some 200 µs."""
STATE = 48
"""Words before the first launch of a list: the next ticket, how many are done, how many groups are; each in a line of
the cache of its own. All are zero between runs."""


def signature(launch: Launch) -> str:
    """The kinds of a launch's arguments, a letter each."""
    return "".join("t" if isinstance(one, Tensor) else _KINDS[type(one)] for one in launch.args)


@lru_cache(maxsize=4096)
def digest(kernel: Kernel, kinds: str) -> str:
    """What a kernel is known by, with arguments of these kinds."""
    text = "\0".join((kernel.entry, kernel.source, *kernel.options, kinds))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class Joined:
    """A program of several kernels: its text, and which number each of them has in the table."""

    def __init__(self, text: str) -> None:
        self.kernel = Kernel(_ENTRY, text, OPTIONS)
        first = text.partition("\n")[0]
        memories, *digests = first.removeprefix(_MARK).split()
        self.memories = int(memories)
        """How many pieces of memory its launches may name."""
        self.numbers = {one: number for number, one in enumerate(digests)}

    @classmethod
    def of(cls, kernels: Mapping[str, tuple[Kernel, str]], memories: int) -> Joined:
        """The program of these kernels (digest → kernel and the kinds of its arguments)."""
        order = sorted(kernels)
        parts = [_part(number, kernels[one][0]) for number, one in enumerate(order)]
        cases = [_case(number, kernels[one][1]) for number, one in enumerate(order)]
        head = f"{_MARK}{memories} {' '.join(order)}\n"
        return cls(head + "".join(parts) + _dispatch(cases, memories))


def _part(number: int, kernel: Kernel) -> str:
    """The kernel's text as a function `f<number>`; every name that it declares ends with its number."""
    source = kernel.source
    names = {*_TYPEDEF.findall(source), *_FUNCTION.findall(source), *_KERNEL.findall(source)} - {kernel.entry}
    macros = set(_MACRO.findall(source))
    begin = "".join(f"#define {name} {name}_{number}\n" for name in sorted(names - macros))
    begin += "#define get_global_id(d) ((d) == 0 ? dpf_x : (d) == 1 ? dpf_y : dpf_z)\n"
    end = "".join(f"#undef {name}\n" for name in sorted({*names, *macros, "get_global_id"}))
    ids = "const size_t dpf_x, const size_t dpf_y, const size_t dpf_z, "

    def function(found: re.Match[str]) -> str:
        name = f"f{number}" if found[1] == kernel.entry else found[1]
        return f"static __attribute__((noinline)) void {name}({ids}"

    return f"{begin}{_KERNEL.sub(function, source)}\n{end}"


def _case(number: int, kinds: str) -> str:
    """The call of a kernel for each of its items."""
    at, given = HEAD, ["x", "y", "z"]
    for kind in kinds:
        given += _read(kind, at)
        at += _WORDS[kind]
    return f"case {number}: EACH f{number}({', '.join(given)}); }} break;\n"


def _read(kind: str, at: int) -> list[str]:
    if kind == "t":
        return [f"m[t[{at}]]", _wide(at + 1)]
    if kind in "lk":
        return [f"(long){_wide(at)}" if kind == "l" else _wide(at)]
    return [{"i": f"(int)t[{at}]", "u": f"t[{at}]", "f": f"as_float(t[{at}])"}[kind]]


def _wide(at: int) -> str:
    return f"((ulong)t[{at + 1}] << 32 | t[{at}])"


def _dispatch(cases: Sequence[str], memories: int) -> str:
    given = ", ".join(f"__global uchar *m{index}, const ulong a{index}" for index in range(memories))
    places = ", ".join(f"m{index} + a{index}" for index in range(memories))
    return f"""
#define EACH                                                      \\
    for (uint item = begin; item < end; item++, x++) {{            \\
        if (x == t[2]) x = 0, y++;                                \\
        if (y == t[3]) y = 0, z++;
__kernel void {_ENTRY}(__global uchar *table, const ulong table_at, const uint first, const uint tickets,
                       {given}) {{
    __global uchar *m[{memories}] = {{{places}}};
    volatile __global uint *next = (volatile __global uint *)(table + table_at) + first, *done = next + 16;
    __global const uint *t = (__global const uint *)(table + table_at) + first + {STATE};
    uint seen = 0;
    for (;;) {{
        const uint ticket = *next;
        if (ticket >= tickets) break;
        uint items = t[2] * t[3] * t[4];
        while ((ticket - t[5]) * t[6] >= items) {{
            t += t[1];
            items = t[2] * t[3] * t[4];
        }}
        uint looks = 0;
        while (*done < t[5] && looks < {_LOOKS}) looks++;
        if (looks == {_LOOKS}) break; // a group that holds a ticket does the rest, and has this core if it lost its own
        if (atomic_cmpxchg(next, ticket, ticket + 1) != ticket) continue;
        if (t[5] != seen) atomic_add(done, 0u); // what was done before is seen from here on
        seen = t[5];
        const uint begin = (ticket - t[5]) * t[6], end = begin + t[6] < items ? begin + t[6] : items;
        uint x = begin % t[2], y = begin / t[2] % t[3], z = begin / t[2] / t[3];
        switch (t[0]) {{
{"".join(cases)}        }}
        atomic_inc(done);
    }}
    if (atomic_inc(next + 32) == get_global_size(0) - 1) next[0] = next[16] = next[32] = 0;
}}
"""


def words_of(launch: Launch) -> tuple[list[int], tuple[int, ...]]:
    """(a launch's words in the table, with zeros for its kernel's number, its tickets, and for (memory, offset) of each
    tensor; where in them each tensor's three words begin)."""
    found, places = [0, 0, *launch.global_size, *(1,) * (3 - len(launch.global_size)), 0, 0], []
    for one in launch.args:
        if isinstance(one, Tensor):
            places.append(len(found))
            found += [0, 0, 0]
        else:
            found += _scalar(one)
    found[1] = len(found)
    return found, tuple(places)


def _scalar(value: Scalar) -> Sequence[int]:
    raw = value.tobytes()
    return _NUMBER[len(raw)].unpack(raw)
