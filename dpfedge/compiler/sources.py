# SPDX-License-Identifier: Apache-2.0
"""A model's source in, the paths of its files by role out; what is not cached is fetched through the catalogue."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dpfedge.compiler.families import FAMILIES, Family
from dpfedge.compiler.importer.gguf_parts import first_parts
from dpfedge.compiler.importer.safetensors import INDEX
from dpfedge.compiler.recipe import ModelSource
from dpfedge.compiler.sbom import spdx
from dpfedge.errors import ModelError
from dpfedge.models import catalogue, pull
from dpfedge.records import dataclass

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
    homepage: str = ""


def find_files(
    source: ModelSource, base: Path, on_progress: Callable[[str, int, int], None] | None = None
) -> ModelFilesFound:
    """Fetch or find the files of `source`; folders are relative to `base`. ModelError when a role has not one."""
    if source.kind == "catalogue":
        progress = None if on_progress is None else lambda done, total: on_progress(source.name, done, total)
        files = pull(source.place, progress)
        folder, names = files.dir, sorted(catalogue()[source.place].files)
        title, licence = f"catalogue:{source.place} ({files.model.source})", source.licence or files.licence
        homepage = files.model.homepage
    else:
        folder = (base / source.place).resolve()
        if not folder.is_dir():
            raise ModelError("no such folder", where=source.where, found=str(folder))
        names = sorted(path.name for path in folder.iterdir() if path.is_file())
        title, licence, homepage = f"folder:{source.place}", source.licence or "", ""
    taken = {path for pattern in _LICENCES for path in names if Path(path).match(pattern)}
    roles = _roles(FAMILIES[source.family], source, names)
    paths = {role: folder / _one(role, pattern, source, names) for role, pattern in roles.items()}
    texts = tuple(_text(folder, name, source.where) for name in sorted(taken))
    return ModelFilesFound(paths, title, spdx(licence, source.where), texts, homepage)


def _text(folder: Path, name: str, where: str) -> Path:
    """A licence file goes into the package unread: a link in a foreign folder must not put another file there."""
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ModelError(
            "licence file lies outside the model's folder", where=where, found=f"{name}, a link to {path.resolve()}",
            remedy="copy the folder with its links followed",
        )  # fmt: skip
    return path


def _roles(family: Family, source: ModelSource, names: Sequence[str]) -> Mapping[str, str]:
    """Role → pattern: of an open family those the recipe names; of two kinds of files the one the folder holds."""
    if family.open and source.files:
        return source.files
    kinds = [kind for kind in (family.files, family.other_files) if kind]
    if source.files:
        held = [kind for kind in kinds if source.files.keys() <= kind.keys()]
    else:
        held = [kind for kind in kinds if all(_matching(pattern, names) for pattern in kind.values())]
    if len(kinds) == 1 or len(held) == 1:
        return held[0] if held else kinds[0]
    raise ModelError(
        "the folder holds several kinds of files" if held else "no kind of files is complete",
        where=source.where,
        found=", ".join(source.files or names),
        allowed=" or ".join(" with ".join(kind.values()) for kind in kinds),
        remedy=f"name one: files: {{{next(iter(kinds[0]))}: …}}",
    )


def _matching(pattern: str, names: Sequence[str]) -> list[str]:
    """The files that fit; of a split model its first part, of several safetensors files their index."""
    found = first_parts([name for name in names if Path(name).match(pattern)])
    return [INDEX] if INDEX in found else found


def _one(role: str, pattern: str, source: ModelSource, names: Sequence[str]) -> str:
    wanted = source.files.get(role, pattern)
    found = _matching(wanted, names)
    if len(found) != 1:
        raise ModelError(
            f"{'several files' if found else 'no file'} for {role}",
            where=source.where,
            found=", ".join(found or names),
            allowed=wanted,
            remedy=f"name it: files: {{{role}: …}}",
        )
    return found[0]
