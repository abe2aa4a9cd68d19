# SPDX-License-Identifier: Apache-2.0
"""Backends with one fault, and the suite on them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from dpfedge_reference import ReferenceBackend

from dpfedge.backend.api import Backend, Budget, Device, GraphView
from dpfedge.backend.host import HostBinding, HostExecutable
from dpfedge.testing.backend_suite import BackendSuite
from dpfedge.testing.judging import judge

Fault = Callable[[HostBinding], None]


class Faulty(ReferenceBackend):
    """The reference with something done to its binding after each run."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault

    def load(self, graph: GraphView, device: Device, budget: Budget) -> HostExecutable:
        fault = self.fault

        class Binding(HostBinding):
            def run(self) -> None:
                super().run()
                fault(self)

        loaded = super().load(graph, device, budget)
        loaded.bind = lambda: Binding(loaded)  # type: ignore[method-assign]
        return loaded


def suite(backend: Backend) -> tuple[BackendSuite, Device]:
    """The suite on a backend, and its device."""
    made = type("Made", (BackendSuite,), {"backend": backend})()
    return made, backend.devices(Path("/"))[0]


def judged(reason: str | None = None) -> Callable[[], Any]:
    """As the fixture of that name gives it."""
    return lambda: judge(reason)
