# SPDX-License-Identifier: Apache-2.0
"""A folder of kernel modules, a busybox, an init script and folders of files in, an initial memory disk out.

The archive is in the kernel's `newc` form, uncompressed: an emulated core unpacks slowly. No file of this machine but
those named goes in, and the same files give the same bytes.
"""

from __future__ import annotations

import argparse
import lzma
import re
from collections.abc import Iterator
from pathlib import Path

_FILE, _FOLDER = 0o100755, 0o040755
_FOLDERS = ("dev", "proc", "sys", "lower", "upper", "real", "root", "modules")


def entry(number: int, path: str, mode: int, data: bytes = b"") -> bytes:
    """One entry: a header of hexadecimal fields, the name and the content, each on a multiple of four bytes."""
    name = path.encode() + b"\0"
    fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name), 0)
    head = b"070701" + b"".join(b"%08x" % field for field in fields) + name
    return _padded(head) + _padded(data)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def in_order(folder: Path) -> Iterator[tuple[str, bytes]]:
    """(name, module), each behind those it depends on as its `.modinfo` says."""
    loaded = {path.name.partition(".")[0].replace("-", "_"): lzma.decompress(path.read_bytes())
              for path in sorted(folder.glob("*.ko.xz"))}  # fmt: skip
    done: set[str] = set()

    def place(name: str) -> Iterator[tuple[str, bytes]]:
        if name in done or name not in loaded:
            return
        done.add(name)
        found = re.search(rb"\0depends=([^\0]*)\0", loaded[name])
        for needed in found[1].decode().split(",") if found else ():
            yield from place(needed.replace("-", "_"))
        yield name, loaded[name]

    for name in loaded:
        yield from place(name)


def tree(root: Path, below: str) -> Iterator[tuple[str, int, bytes]]:
    """(path, mode, content) of a folder and all in it, placed at `below`."""
    yield below, _FOLDER, b""
    for path in sorted(root.rglob("*")):
        name = f"{below}/{path.relative_to(root)}"
        yield (name, _FOLDER, b"") if path.is_dir() else (name, _FILE, path.read_bytes())


def content(arguments: argparse.Namespace) -> Iterator[tuple[str, int, bytes]]:
    """Everything in the disk; folders before what they hold."""
    for name in _FOLDERS:
        yield name, _FOLDER, b""
    yield "busybox", _FILE, arguments.busybox.read_bytes()
    yield "init", _FILE, arguments.init.read_bytes()
    for number, (name, data) in enumerate(in_order(arguments.modules)):
        yield f"modules/{number:02d}-{name}.ko", _FILE, data
    for item in arguments.add:
        folder, _, below = item.partition(":")
        yield from tree(Path(folder), below)


def main() -> None:
    """Write the disk."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("modules", "busybox", "init", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--add", action="append", default=[], metavar="FOLDER:BELOW")
    arguments = parser.parse_args()
    rows = [*content(arguments), ("TRAILER!!!", 0, b"")]
    arguments.out.write_bytes(b"".join(entry(number, *row) for number, row in enumerate(rows)))


if __name__ == "__main__":
    main()
