# SPDX-License-Identifier: Apache-2.0
"""The bar of `dpfedge compile`: what the compiler says it does in, one line on the terminal with an estimate out.

Steps are weighed by the size of the models' files. Without a terminal, or when asked to be quiet, nothing is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from dpfedge.compiler.recipe import Recipe

__all__ = ["Work", "compile_progress", "model_bytes"]

_SHARES: Mapping[str, float] = {"import": 1.0, "lower": 2.0, "golden": 1.0, "convert": 2.0, "quality": 4.0}
"""Step → its share of a model's work; lowering happens once for each target, the last two where weights change form."""
_WRITE, _BAKE = 0.2, 1.0  # of all models together
_LEAST_BYTES = 1 << 20  # a step costs something however small the model is


class Work:
    """All steps of one compilation, each with its weight; `start` says how much lies behind when a step begins."""

    def __init__(self, sizes: Mapping[str, int], targets: int, formed: Collection[str] = ()) -> None:
        self._sizes = {name: max(size, _LEAST_BYTES) for name, size in sizes.items()}
        everything = sum(self._sizes.values())
        self._bake, self._write = _BAKE * everything, _WRITE * everything
        one = _SHARES["import"] + _SHARES["golden"] + targets * _SHARES["lower"]
        changed = (_SHARES["convert"] + _SHARES["quality"]) * sum(self._sizes[name] for name in formed)
        self.total = one * everything + changed + targets * self._bake + self._write
        self._done, self._running = 0.0, 0.0

    def start(self, text: str) -> float:
        """The work behind the step that `text` begins; a text that begins none changes nothing."""
        weight = self._weight(text)
        if weight:
            self._done = min(self._done + self._running, self.total)
            self._running = weight
        return self._done

    def _weight(self, text: str) -> float:
        name, _, step = text.partition(": ")
        if name in self._sizes:
            return self._sizes[name] * _SHARES.get(step.partition(" ")[0], 0.0)
        return self._write if text == "write" else self._bake if text.startswith("bake ") else 0.0


def model_bytes(recipe: Recipe) -> dict[str, int]:
    """Model → the size of its files, as far as it is known before anything is fetched."""
    from dpfedge.models import catalogue

    sizes = {}
    for source in recipe.models:
        if source.kind == "catalogue":
            found = catalogue().get(source.place)
            sizes[source.name] = 0 if found is None else found.nbytes
        else:
            folder = (recipe.path.parent / source.place).resolve()
            files = folder.iterdir() if folder.is_dir() else ()
            sizes[source.name] = sum(path.stat().st_size for path in files if path.is_file())
    return sizes


@contextmanager
def compile_progress(
    recipe: Recipe, targets: int, *, quiet: bool, console: Console | None = None
) -> Iterator[Callable[[str], None]]:
    """A function for the compiler to call with what it does now; the bar is gone when the context ends."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = console or Console(stderr=True)
    if quiet or not console.is_terminal:
        yield lambda text: None
        return
    formed = [source.name for source in recipe.models if source.weights != "keep"]
    work = Work(model_bytes(recipe), targets, formed)
    columns = (
        SpinnerColumn(),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("compile", total=work.total)
        yield lambda text: progress.update(task, description=text, completed=work.start(text))
