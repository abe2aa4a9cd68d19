# SPDX-License-Identifier: Apache-2.0
"""Wheels in; the tag, architecture and C library version of each out; exit 1 where a tag promises too much.

It reads names and ELF tables only; whether a module works is shown by loading it (`check.sh`).
"""

from __future__ import annotations

import hashlib
import re
import struct
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

_MACHINES = {62: "x86_64", 183: "aarch64"}
_ALLOWED = {"libc.so.6", "libpthread.so.0", "libm.so.6", "librt.so.1", "libdl.so.2", "ld-linux-aarch64.so.1"}
"""What every manylinux machine has."""
_DYNAMIC, _VERNEED, _NEEDED = 6, 0x6FFFFFFE, 1


def sections(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Type, content and linked strings of each section of a little-endian 64-bit ELF file."""
    (start,) = struct.unpack_from("<Q", data, 40)
    (size, count) = struct.unpack_from("<HH", data, 58)
    table = [struct.unpack_from("<IIQQQQII", data, start + size * index) for index in range(count)]
    for row in table:
        link = table[row[6]]
        yield row[1], data[row[4] : row[4] + row[5]], data[link[4] : link[4] + link[5]]


def text_at(strings: bytes, place: int) -> str:
    """The NUL-terminated name at `place`."""
    return strings[place : strings.index(b"\0", place)].decode()


def needed(data: bytes) -> tuple[set[str], set[str]]:
    """Libraries, and versions of their symbols, that a shared object asks for."""
    libraries: set[str] = set()
    versions: set[str] = set()
    for kind, content, strings in sections(data):
        if kind == _DYNAMIC:
            pairs = struct.iter_unpack("<QQ", content)
            libraries |= {text_at(strings, value) for tag, value in pairs if tag == _NEEDED}
        elif kind == _VERNEED:
            at = 0
            while True:
                _, count, _, first, step = struct.unpack_from("<HHIII", content, at)
                one = at + first
                for _ in range(count):
                    _, _, _, name, onward = struct.unpack_from("<IHHII", content, one)
                    versions.add(text_at(strings, name))
                    one += onward
                if step == 0:
                    break
                at += step
    return libraries, versions


def problems(wheel: Path) -> Iterator[str]:
    """What the tag of a wheel promises and its modules do not keep."""
    tag = wheel.stem.split("-", 2)[2]
    promised = re.search(r"manylinux_2_(\d+)_(\w+)$", tag)
    with zipfile.ZipFile(wheel) as archive:
        modules = [name for name in archive.namelist() if re.search(r"\.so(\.\d+)*$", name)]
        if bool(modules) != bool(promised):
            yield f"tag {tag}, but the compiled modules are {modules}"
        for name in modules if promised else ():
            assert promised is not None
            data = archive.read(name)
            machine = _MACHINES.get(struct.unpack_from("<H", data, 18)[0], "unknown")
            libraries, versions = needed(data)
            newest = max((int(v.split(".")[1]) for v in versions if v.startswith("GLIBC_2.")), default=0)
            print(f"  {name}: {machine}, glibc 2.{newest}, {' '.join(sorted(libraries))}")
            if machine != promised[2]:
                yield f"{name} is for {machine}"
            if newest > int(promised[1]):
                yield f"{name} needs glibc 2.{newest}"
            if libraries - _ALLOWED:
                yield f"{name} needs {libraries - _ALLOWED}"
            if not name.endswith(".abi3.so") and "/_client/lib/libdpfedge.so" not in name:
                yield f"{name} is for one version of Python"


def main(arguments: list[str]) -> int:
    """Exit code: 1 when a wheel breaks a promise."""
    bad = 0
    for path in map(Path, arguments):
        print(f"{path.name} {path.stat().st_size} bytes, sha256 {hashlib.sha256(path.read_bytes()).hexdigest()[:16]}")
        for problem in problems(path):
            print(f"{path.name}: {problem}", file=sys.stderr)
            bad = 1
    return bad


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
