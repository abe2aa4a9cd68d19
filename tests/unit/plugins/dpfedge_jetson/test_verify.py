# SPDX-License-Identifier: Apache-2.0
"""The checks for a Jetson, with a fake of it."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from dpfedge_jetson import JetsonBackend, verify
from dpfedge_jetson.loading import JetsonLoader

from dpfedge.backend.api import Health
from dpfedge.errors import BackendError

MACHINES = Path(__file__).parents[3] / "fixtures/machines"


class _Same:
    def at(self, address: int) -> int:
        """CPU and DLA have one address for it."""
        return address


class FakeBackend(JetsonBackend):
    """An AGX Orin whose CUDA is not asked."""

    def devices(self, sysroot: Path) -> Any:
        """Those of the recording."""
        return super().devices(MACHINES / "orin-agx")

    def health(self, device: Any) -> Health:
        """Of a healthy one."""
        return Health(0.0, 1.0)


@pytest.fixture
def backend(fake_tensorrt: ModuleType, monkeypatch: pytest.MonkeyPatch) -> JetsonBackend:
    """With a fake TensorRT that computes what a Relu does."""
    import numpy as np

    def compute(self: Any, stream: int) -> bool:
        x, y = (self._array(name) for name in ("x", "y"))
        np.maximum(x, 0, out=y)
        return True

    monkeypatch.setattr(fake_tensorrt._Context, "execute_async_v3", compute)
    monkeypatch.setattr("dpfedge_cuda.memory.CudaMemory.hold", lambda self, array: _Same())

    class _Context:
        ordinal, facts = 0, {"maps": True}

        def stream(self, *, high: bool) -> int:
            return 7

        def do(self, what: str, act: object) -> None:
            return None

    monkeypatch.setattr(JetsonLoader, "_context", lambda self, device: _Context())
    return FakeBackend()


def test_checks__of_a_module_with_two_dlas(backend: JetsonBackend) -> None:
    """Each is sealed, run and refused what it cannot run."""
    found = dict(verify.checks(backend, backend.devices(Path("/"))[0]))

    assert list(found)[:5] == ["module", "libraries", "sensors", "power", "health"]
    assert found["module"].startswith("AGX Orin 64GB")
    assert found["jetson:dla1: run"] == "off by 0.0e+00, 0 copies"
    assert "Erf" in found["jetson:dla0: what it cannot run"]


def test_checks__of_a_dla_that_computes_something_else(backend: JetsonBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """The difference is told."""
    monkeypatch.setattr("dpfedge_jetson.verify._TOLERANCE", -1.0)

    with pytest.raises(BackendError, match="jetson:dla0: the DLA computes something else"):
        list(verify.checks(backend, backend.devices(Path("/"))[0]))


def test_script__calls_what_doctor_calls() -> None:
    """One way to verify, two ways to start it."""
    text = (Path(__file__).parents[4] / "plugins/dpfedge-jetson/verify_on_device.py").read_text()

    assert '["doctor", "--backend", "jetson", "--verify"' in text
