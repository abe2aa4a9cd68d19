# SPDX-License-Identifier: Apache-2.0
"""A model's source in, the paths of its files by role out; what is not cached is fetched through the catalogue."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dpfedge.compiler.families import FAMILIES
from dpfedge.compiler.importer.gguf_parts import first_parts
from dpfedge.compiler.recipe import ModelSource
from dpfedge.errors import ModelError
from dpfedge.models import catalogue, pull

__all__ = ["ModelFilesFound", "find_files"]

_LICENCES = ("LICENSE*", "LICENCE*", "COPYING*", "MODEL_CARD*")


@dataclass(frozen=True, slots=True)
class ModelFilesFound:
    """Paths by role, and what the package says of their origin."""

    paths: Mapping[str, Path]
    source: str
    licence: str
    texts: Sequence[Path]
    """Licence and model card files."""


def find_files(
    source: ModelSource, base: Path, on_progress: Callable[[str, int, int], None] | None = None
) -> ModelFilesFound:
    """Fetch or find the files of `source`; folders are relative to `base`. ModelError when a role has not one."""
    if source.kind == "catalogue":
        progress = None if on_progress is None else lambda done, total: on_progress(source.name, done, total)
        files = pull(source.place, progress)
        folder, names = files.dir, sorted(catalogue()[source.place].files)
        title, licence = f"catalogue:{source.place} ({files.model.source})", source.licence or files.licence
    else:
        folder = (base / source.place).resolve()
        if not folder.is_dir():
            raise ModelError("no such folder", where=source.where, found=str(folder))
        names = sorted(path.name for path in folder.iterdir() if path.is_file())
        title, licence = f"folder:{source.place}", source.licence or ""
    taken = {path for pattern in _LICENCES for path in names if Path(path).match(pattern)}
    family = FAMILIES[source.family]
    roles = source.files if family.open and source.files else family.files
    paths = {role: folder / _one(role, pattern, source, names) for role, pattern in roles.items()}
    return ModelFilesFound(paths, title, licence, tuple(folder / name for name in sorted(taken)))


def _one(role: str, pattern: str, source: ModelSource, names: Sequence[str]) -> str:
    wanted = source.files.get(role, pattern)
    found = first_parts([name for name in names if Path(name).match(wanted)])
    if len(found) != 1:
        raise ModelError(
            f"{'several files' if found else 'no file'} for {role}",
            where=source.where,
            found=", ".join(found or names),
            allowed=wanted,
            remedy=f"name it: files: {{{role}: …}}",
        )
    return found[0]
