# SPDX-License-Identifier: Apache-2.0
"""A model split over several GGUF files in, one model out; every part is checked, a missing one is named.

llama.cpp's gguf-split calls the parts `NAME-00001-of-0000N.gguf`; the first holds the metadata.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from dpfedge.compiler.importer.gguf import Gguf, open_gguf
from dpfedge.errors import ModelError

__all__ = ["first_parts", "open_gguf_parts"]

PARTS_MAX = 1000  # the largest published models have about 30
_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")


def first_parts(names: Iterable[str]) -> list[str]:
    """`names` with the parts of each split model replaced by their first."""
    found: dict[tuple[str, str], str] = {}
    for name in sorted(names):
        match = _NAME.fullmatch(name)
        found.setdefault((match["stem"], match["count"]) if match else (name, ""), name)
    return list(found.values())


def open_gguf_parts(path: Path) -> Gguf:
    """The model that `path`, a whole file or any part of a split one, belongs to; ModelError names what is wrong."""
    opened = open_gguf(path)
    count = opened.get("split.count", int, 1)
    if count <= 1:
        return opened
    match = _NAME.fullmatch(path.name)
    if match is None or int(match["count"]) != count or count > PARTS_MAX:
        raise ModelError(
            "a part of a split model has another name",
            where=str(path),
            found=path.name,
            allowed=f"NAME-00001-of-{count:05}.gguf, at most {PARTS_MAX} parts",
            remedy="give the file back the name it was published under",
        )
    paths = [path.with_name(f"{match['stem']}-{number:05}-of-{count:05}.gguf") for number in range(1, count + 1)]
    for number, part in enumerate(paths, 1):
        if not part.is_file():
            raise ModelError(
                f"part {number} of {count} of the model is missing", where=str(part), remedy="fetch all parts"
            )
    parts = [_part(part, number, count) for number, part in enumerate(paths)]
    _check_tensors(parts)
    return Gguf.joined(parts)


def _part(path: Path, number: int, count: int) -> Gguf:
    part = open_gguf(path)
    found = part.get("split.no", int), part.get("split.count", int)
    if found != (number, count):
        raise ModelError(
            "this file is another part than its name says",
            where=str(path),
            found=f"split.no {found[0]} of {found[1]}",
            allowed=f"split.no {number} of {count}",
            remedy="fetch the file again",
        )
    return part


def _check_tensors(parts: list[Gguf]) -> None:
    names = [name for part in parts for name in part.tensors]
    wanted = parts[0].get("split.tensors.count", int)
    if len(names) != wanted:
        raise ModelError("the parts hold another number of tensors", where=str(parts[0].path), found=len(names),
                         allowed=wanted, remedy="fetch all parts again")  # fmt: skip
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ModelError(f"two tensors are called {twice}", where=str(parts[0].path))
