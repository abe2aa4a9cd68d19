# SPDX-License-Identifier: Apache-2.0
"""Sessions on MIGraphX as far as they go without it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from dpfedge_rocm import RocmBackend
from dpfedge_rocm.session import RocmMemory, providers

from dpfedge.backend.api import Budget, Device, GraphView, LowerRequest
from dpfedge.errors import Unsupported
from dpfedge.testing.models import affine

Child = Callable[..., str]
BACKEND = RocmBackend()
MACHINES = Path(__file__).parents[3] / "fixtures/machines"


def graph(rows: int | str = 4, arch: str = "gfx942") -> GraphView:
    """A lowered graph as a package holds it."""
    low = BACKEND.lower(LowerRequest("g", affine(rows).SerializeToString(), "gfx942", frozenset()))
    return GraphView("g", memoryview(low.code), low.inputs, low.outputs, {}, {"arch": arch})


@pytest.fixture
def device() -> Device:
    """An MI300X."""
    return BACKEND.devices(MACHINES / "mi300x")[0]


def test_providers__of_one_device() -> None:
    """Nothing may stay on the CPU; the folder is named only where there is one."""
    found = providers(3, "/x")

    assert (found.host, found.level) == (frozenset(), "ORT_DISABLE_ALL")
    assert dict(found.providers[0].options) == {"device_id": "3", "migraphx_model_cache_dir": "/x"}
    assert dict(providers(0).providers[0].options) == {"device_id": "0"}


def test_load__of_a_graph_for_another_gpu(device: Device) -> None:
    """Before any library is looked for."""
    with pytest.raises(Unsupported, match="lowered for another GPU; found gfx942; allowed gfx90a"):
        BACKEND.load(graph(arch="gfx90a"), device, Budget())


def test_load__of_a_graph_with_open_sizes(device: Device) -> None:
    """A program would be compiled during a request."""
    with pytest.raises(Unsupported, match=r"graph g: a size is left open.*found n; compile the package with buckets"):
        BACKEND.load(graph("n"), device, Budget())


LOAD = """
    from pathlib import Path
    from dataclasses import replace
    from dpfedge_rocm import RocmBackend
    from dpfedge.backend.api import Budget, GraphView, LowerRequest
    from dpfedge.testing.models import affine
    backend = RocmBackend()
    low = backend.lower(LowerRequest("g", affine(4).SerializeToString(), "gfx942", frozenset()))
    view = GraphView("g", memoryview(low.code), low.inputs, low.outputs, {}, {"arch": "gfx942"})
    device = backend.devices(Path(MACHINE))[0]
    backend.load(view, device, Budget())
"""


def test_load__without_rocm_or_its_provider(child: Child) -> None:
    """First the runtime, then the GPU, then the build of onnxruntime: each named, and never the CPU instead."""
    code = LOAD.replace("MACHINE", repr(str(MACHINES / "mi300x")))

    assert "Unavailable: backend rocm: the HIP runtime cannot be loaded" in child(code)
    assert "HIP does not show the device" in child(code, "hip.c", STANDIN_HIP="0000:99:00.0")
    assert "this build of onnxruntime has no MIGraphXExecutionProvider" in child(code, "hip.c")
    assert "pip install onnxruntime-migraphx" in child(code, "hip.c")


def test_memory__is_copied_to() -> None:
    """Under the name that onnxruntime has for it."""
    memory = RocmMemory(2)

    assert (memory.kind, memory.number, memory.hold(np.zeros(4))) == ("gpu", 2, None)
