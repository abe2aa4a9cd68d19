# SPDX-License-Identifier: Apache-2.0
"""Sessions on other providers: what onnxruntime would let the CPU do in silence is an error that names it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from dpfedge_cpu import CpuBackend
from dpfedge_cpu.provider import Provider, Providers, _loads, load_error, open_on
from onnxruntime.capi.onnxruntime_inference_collection import Session

from dpfedge.backend.api import Budget, GraphView
from dpfedge.errors import Unavailable, Unsupported
from dpfedge.testing.loading import lowered, view
from dpfedge.testing.models import affine, right_affine, rows

CPU, AZURE, CUDA = (f"{name}ExecutionProvider" for name in ("CPU", "Azure", "CUDA"))


@pytest.fixture
def graph() -> GraphView:
    """y = x·W, lowered."""
    (device,) = CpuBackend().devices(Path("/"))
    return view(CpuBackend(), lowered(CpuBackend(), device, affine(3)), "affine")


def providers(*names: str) -> Providers:
    """Of a backend that is not there."""
    return Providers("other", [Provider(name) for name in names], "install it")


def test_open_on__says_where_each_operator_is(graph: GraphView) -> None:
    """Run and placed by the provider that was named."""
    session, placed = open_on(graph, Budget(), providers(CPU))

    assert set(placed) == {CPU}
    assert sum(placed[CPU].values()) >= 1
    np.testing.assert_allclose(session.run(["y"], {"x": rows(3)})[0], right_affine(rows(3))["y"], rtol=1e-4)


def test_open_on__a_provider_that_is_not_in_the_build(graph: GraphView) -> None:
    """Unavailable with the build, what it has, and how to get another; an optional one is left out."""
    with pytest.raises(Unavailable) as caught:
        open_on(graph, Budget(), providers(CUDA))
    assert "no CUDAExecutionProvider" in caught.value.what
    assert onnxruntime.__version__ in str(caught.value.found)
    assert caught.value.remedy == "install it"

    both = Providers("other", [Provider(CUDA, needed=False), Provider(CPU)], "")
    assert set(open_on(graph, Budget(), both)[1]) == {CPU}


def test_open_on__operators_that_went_to_the_cpu(graph: GraphView) -> None:
    """A provider that takes no operator (Azure's) leaves all of them to the CPU, which is refused with their names."""
    with pytest.raises(Unsupported, match=r"graph affine: AzureExecutionProvider has no kernel.*1×") as caught:
        open_on(graph, Budget(), providers(AZURE))
    assert "MatMul" in str(caught.value.found) or "Gemm" in str(caught.value.found)


def test_open_on__a_provider_that_does_not_come_up(graph: GraphView, monkeypatch: pytest.MonkeyPatch) -> None:
    """Listed, and then the session is the CPU's: onnxruntime says so on stderr only."""
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [CUDA, CPU])

    with (
        pytest.warns(UserWarning, match="not in available provider names"),
        pytest.raises(Unavailable, match=r"CUDAExecutionProvider does not come up.*driver or device.*dpfedge doctor"),
    ):
        open_on(graph, Budget(), providers(CUDA))


def test_open_on__builds_that_cannot_tell(graph: GraphView, monkeypatch: pytest.MonkeyPatch) -> None:
    """Older ones refuse the CPU by themselves."""
    monkeypatch.delattr(Session, "get_provider_graph_assignment_info")

    with pytest.raises(Unsupported, match="explicitly disabled"):
        open_on(graph, Budget(), providers(AZURE))
    monkeypatch.setattr("dpfedge_cpu.provider.load_error", lambda library: f"{library}: cannot open shared object file")
    with pytest.raises(Unavailable, match=r"does not come up; found libgone\.so is missing; install it"):
        open_on(graph, Budget(), Providers("other", [Provider(AZURE, library="libgone.so")], "install it"))


def test_load_error__of_a_provider(tmp_path: Path) -> None:
    """Among onnxruntime's own files; one that is not there says so."""
    assert load_error("libonnxruntime_providers_of_nobody.so").endswith("providers_of_nobody.so is not there")
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"no library")
    assert "invalid ELF header" in load_error(str(broken)) or "file too short" in load_error(str(broken))


def test_open_on__an_optional_provider_without_its_libraries(graph: GraphView, monkeypatch: pytest.MonkeyPatch) -> None:
    """Is left out: onnxruntime would raise for TensorRT."""
    monkeypatch.setattr("dpfedge_cpu.provider.load_error", lambda library: "libnvinfer.so.10: cannot open")
    optional = Provider(AZURE, library="libonnxruntime_providers_tensorrt.so", needed=False)
    _loads.cache_clear()
    session, _ = open_on(graph, Budget(), Providers("other", [optional, Provider(CPU)], ""))
    assert session.get_providers() == [CPU]
    _loads.cache_clear()
