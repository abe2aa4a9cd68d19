# SPDX-License-Identifier: Apache-2.0
"""Graphs that load while their stage's code is still being imported: a bound model in, it with `load` begun out.

onnxruntime and drivers prepare weights without the interpreter; Python's imports and tokenizers need nothing else. It
chooses no order and no budget: graphs load one after the other, in the model's order, with the stage's budget.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, cast

from dpfedge.backend.api import Backend, Budget, Device, Executable, GraphView
from dpfedge.binding.bound import BoundModel
from dpfedge.errors import BackendError, DpfError
from dpfedge.pipeline.calls import Calls

__all__ = ["load_early"]


def load_early(model: BoundModel, budget: Budget, calls: Calls | None = None) -> BoundModel:
    """The model, all its graphs being loaded by a thread; its `load` waits for that and raises what it raised.

    What it loads goes through `calls`, if there are some.

    Each graph is loaded once: a second `load` of the same one, or one with another budget, loads it anew.
    """
    early = _Early(model if calls is None else calls.through(model), budget)
    threading.Thread(target=early.run, name="dpf-load", daemon=True).start()
    return replace(model, _backend=cast(Backend, early))


class _Early:
    """The model's backend, its first `load` of each graph begun before it was asked for."""

    def __init__(self, model: BoundModel, budget: Budget) -> None:
        self._model, self._budget, self._backend = model, budget, model._backend
        self._loading: dict[str, Future[Executable]] = {model.graph(name).name: Future() for name in model.graphs}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def run(self) -> None:
        """Load every graph; one that fails leaves the others to be loaded."""
        futures = dict(self._loading)
        try:
            for name in self._model.graphs:
                self._load(self._model.graph(name), futures)
        finally:
            for name, future in futures.items():  # a bug, and its traceback is printed: nobody may wait for ever
                future.set_exception(BackendError("loading ended with an unexpected error", where=f"graph {name}"))

    def _load(self, view: GraphView, futures: dict[str, Future[Executable]]) -> None:
        try:
            executable = self._backend.load(view, self._model.device, self._budget)
        except DpfError as error:
            futures.pop(view.name).set_exception(error)
        else:
            futures.pop(view.name).set_result(executable)

    def load(self, graph: GraphView, device: Device, budget: Budget) -> Executable:
        """What the thread loaded, or a load of its own."""
        future = self._loading.pop(graph.name, None) if budget == self._budget else None
        return self._backend.load(graph, device, budget) if future is None else future.result()
