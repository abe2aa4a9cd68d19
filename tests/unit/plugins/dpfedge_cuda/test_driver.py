# SPDX-License-Identifier: Apache-2.0
"""The driver in this process, with the stand-in in its place: bounds, what hangs, errors in words."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from dpfedge_cuda.driver import Context, Driver
from standing import stand_in_driver

from dpfedge.errors import BackendError, Unavailable


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    """Over the stand-in, with a short bound."""
    with stand_in_driver(monkeypatch):
        yield Driver(start_s=20.0, call_s=0.5)


def context(driver: Driver) -> Context:
    """Of the first device."""
    return Context(driver, 0, driver.devices()[0])


def test_context__one_stream_for_each_level(driver: Driver) -> None:
    """Shared by whoever asks for the level."""
    one = context(driver)
    assert one.stream(high=True) == one.stream(high=True) != one.stream(high=False)
    assert one.free_share() == pytest.approx(0.75)
    assert driver.started()


def test_do__a_call_that_hangs(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Named within the bound; afterwards every call is refused at once, by the name of the one that hangs."""
    one = context(driver)
    monkeypatch.setenv("STANDIN", "cuMemGetInfo_v2=hang")
    with pytest.raises(Unavailable, match=r"backend cuda: cuMemGetInfo: .*does not answer"):
        one.free_share()
    monkeypatch.delenv("STANDIN")
    for act in (one.free_share, lambda: one.stream(high=True)):
        with pytest.raises(Unavailable, match=r"cuMemGetInfo hangs in the CUDA driver since .* s; restart the process"):
            act()


def test_devices__asked_in_a_child_first(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that crashes while it starts does not take this process with it."""
    monkeypatch.setenv("STANDIN", "cuInit=crash")
    with pytest.raises(Unavailable, match="ended the process that asked it by signal 11"):
        driver.do("cuMemGetInfo", lambda cuda: cuda.memory())
    assert not driver.started()
    monkeypatch.delenv("STANDIN")
    driver.forget()
    assert driver.devices()[0]["ordinal"] == 0


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (2, BackendError, r"CUDA_ERROR_OUT_OF_MEMORY.*place fewer stages"),
        (35, Unavailable, r"CUDA_ERROR_INSUFFICIENT_DRIVER.*upgrade the NVIDIA driver"),
        (700, BackendError, r"CUDA_ERROR_ILLEGAL_ADDRESS.*restart the process"),
        (999, BackendError, r"CUDA_ERROR_UNKNOWN"),
    ],
)
@pytest.mark.parametrize(
    "function", ["cuDevicePrimaryCtxRetain", "cuCtxGetStreamPriorityRange", "cuStreamCreateWithPriority"]
)
def test_context__each_call_may_fail(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, function: str, code: int, kind: type[BackendError], words: str
) -> None:
    """The error has the driver's own words and says what to do."""
    driver.devices()
    monkeypatch.setenv("STANDIN", f"{function}={code}")
    with pytest.raises(kind, match=rf"backend cuda: the CUDA driver refuses; found {function}: {words}"):
        context(driver).stream(high=True)


def test_do__without_the_library(monkeypatch: pytest.MonkeyPatch, driver: Driver) -> None:
    """It went away between the child's look and this process's."""
    driver.devices()
    monkeypatch.setattr("dpfedge_cuda.libcuda.LIBRARY", "libcuda-that-is-not-there.so.1")
    with pytest.raises(Unavailable, match=r"libcuda\.so\.1 cannot be loaded; found libcuda-that-is-not-there"):
        context(driver)


def test_do__after_a_fork(driver: Driver) -> None:
    """CUDA does not survive it: a forked process is told so instead of crashing."""
    context(driver)
    pid = os.fork()
    if pid == 0:
        told = False
        try:
            context(driver)
        except Unavailable as error:
            told = "begun before this process was forked" in str(error)
        finally:
            os._exit(0 if told else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
