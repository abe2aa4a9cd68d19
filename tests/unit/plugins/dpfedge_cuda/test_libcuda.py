# SPDX-License-Identifier: Apache-2.0
"""Calls of the driver's library, with the stand-in in its place."""

from __future__ import annotations

import mmap

import numpy as np
import pytest
import standin
from dpfedge_cuda.libcuda import NO_FUNCTION, CudaError, Libcuda


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Libcuda:
    """The stand-in, initialised, with a context."""
    monkeypatch.setattr("dpfedge_cuda.libcuda.LIBRARY", str(standin.build("cuda.c", "libcuda.so.1") / "libcuda.so.1"))
    one = Libcuda()
    one.call("cuInit", 0)
    one.retain(0)
    return one


def test_streams__by_priority(cuda: Libcuda) -> None:
    """Smaller numbers go first."""
    first, last = cuda.priorities()
    assert (first, last) == (-5, 0)
    assert cuda.stream(first) != cuda.stream(last)


def test_memory__free_and_total(cuda: Libcuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """In bytes."""
    monkeypatch.setenv("CUDA_FREE", "25")
    free, total = cuda.memory()
    assert total == 80 << 30
    assert free / total == pytest.approx(0.25)


def test_register__gives_back_what_it_cannot_map(cuda: Libcuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory pinned without an address on the device stays nobody's."""
    memory = mmap.mmap(-1, 1 << 16)
    address = np.frombuffer(memory, np.uint8).__array_interface__["data"][0]
    assert cuda.register(address, 1 << 16) == address
    cuda.call("cuMemHostUnregister", address)
    monkeypatch.setenv("STANDIN", "cuMemHostGetDevicePointer_v2=1")
    with pytest.raises(CudaError, match="cuMemHostGetDevicePointer_v2"):
        cuda.register(address, 1 << 16)
    with pytest.raises(CudaError) as caught:
        cuda.call("cuMemHostUnregister", address)
    assert (caught.value.code, caught.value.text) == (713, "as the driver puts it")


def test_call__a_function_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """An old driver says which."""
    old = standin.build("cuda.c", "libcuda.so.1", "cuDeviceGetUuid_v2", "cuGetErrorString") / "libcuda.so.1"
    monkeypatch.setattr("dpfedge_cuda.libcuda.LIBRARY", str(old))
    one = Libcuda()
    one.call("cuInit", 0)
    with pytest.raises(CudaError, match="cuDeviceGetUuid_v2: this driver does not have it") as caught:
        one.devices()
    assert caught.value.code == NO_FUNCTION
    with pytest.raises(CudaError, match=r"an error without a name \(201\)"):
        one.memory()
