# SPDX-License-Identifier: Apache-2.0
"""One array through a graph of one input, as a call that can be ended; the answer stays where it was made."""

from __future__ import annotations

from dpfedge.backend.api import Array, Binding, Executable

__all__ = ["Answer"]


class Answer:
    """The answer of one graph at a time; it, and the memory that was read, are held until `release` or the next run."""

    def __init__(self) -> None:
        self._call: Binding | None = None

    def of(self, graph: Executable, array: Array) -> Array:
        """The graph's first output, in the backend's memory; `array` is read in place."""
        self.release()
        call = graph.bind()
        call.set_input(graph.inputs[0].name, array)
        call.run()
        self._call = call  # what it gave lives as long as it does
        return call.output(graph.outputs[0].name)

    def release(self) -> None:
        """Give both back: a link keeps a slot that somebody still holds."""
        self._call = None
