# SPDX-License-Identifier: Apache-2.0
"""The choice of a target and every reason against the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from dpfedge.binding import Refusal
from dpfedge.binding.bind import bind
from dpfedge.errors import BindError
from dpfedge.hardware.board import Board, load_board
from dpfedge.package import Package

Build = Callable[..., Package]
ANY = ["class", "cpu.x86_64", "gpu.nvidia", "cpu.aarch64"]


def test_bind__first_target_that_fits_wins(build: Build, host: Board, parts: Any) -> None:
    """The package's order is the preference; what comes before is in the refusals, what comes after is not judged."""
    package = build(
        parts.target("v4", "cpu", ["arch", "x86-64-v4"]),
        parts.target("v3", "cpu", ["arch", "x86-64-v3"]),
        parts.target("any", "cpu", ANY),
    )

    bound = bind(package, host, parts.found(parts.CPU))
    assert bound.target.id == "v3"
    assert bound.devices == {"llm": parts.CPU, "vad": parts.CPU}
    assert bound.degraded is None
    assert bound.refusals == (
        Refusal("v4", "arch", "arch x86-64-v4", "x86-64-v3 (cpu:0)", "recompile the package with --board host"),
    )


def test_bind__takes_the_device_that_fits(build: Build, host: Board, parts: Any) -> None:
    """Of several devices of one backend the first that fits is used."""
    small = replace(parts.GPU, id="cuda:0", memory_bytes=1 << 30)
    package = build(parts.target("gpu", "cuda", ["memory", 2 << 30]))

    assert bind(package, host, parts.found(small, replace(parts.GPU, id="cuda:1"))).devices["llm"].id == "cuda:1"


def test_bind__closest_device_gives_the_reasons(build: Build, host: Board, parts: Any) -> None:
    """When none fits, the reasons are those of the device with the fewest."""
    package = build(parts.target("gpu", "cuda", ["and", ["arch", "sm_100"], ["memory", 16 << 30]]))
    small = replace(parts.GPU, memory_bytes=1 << 30)

    with pytest.raises(BindError) as caught:
        bind(package, host, parts.found(small, replace(parts.GPU, id="cuda:1")))
    assert [(item.field, item.found) for item in caught.value.refusals] == [("arch", "sm_90 (cuda:1)")]


@pytest.mark.parametrize(
    ("case", "refusal"),
    [
        (
            lambda p: (p.target("t", "cpu", ["board", "orin"]), p.found(p.CPU)),
            Refusal("t", "board", "board orin", "host (cpu:0)", "recompile the package with --board host"),
        ),
        (
            lambda p: (p.target("t", "cpu", ANY, memory_bytes=9 << 30), p.found(p.CPU)),
            Refusal(
                "t", "memory_bytes", "at least 9.00 GiB", "8.00 GiB (cpu:0)",
                "free memory, raise the cgroup's limit, or compile smaller models",
            ),
        ),
        (
            lambda p: (p.target("t", "cuda", ANY), p.found(p.CPU)),
            Refusal("t", "backend", "cuda", "cpu", "pip install dpfedge-cuda"),
        ),
        (
            lambda p: (p.target("t", "cuda", ANY), p.found(broken={"dpfedge-cuda 0.2.0": "import: no libcuda.so.1"})),
            Refusal(
                "t", "backend", "cuda", "none; dpfedge-cuda 0.2.0 is broken: import: no libcuda.so.1",
                "pip install dpfedge-cuda",
            ),
        ),
        (
            lambda p: (p.target("t", "cuda", ANY), p.found(p.CPU, cuda=p.Recorder("cuda"))),
            Refusal("t", "device", "a device of backend cuda", "cpu:0", "see `dpfedge probe`"),
        ),
        (
            lambda p: (p.target("t", "cuda", ANY), p.found(cuda=p.Recorder("cuda"), broken={"cuda": "old driver"})),
            Refusal("t", "device", "a device of backend cuda", "old driver", "see `dpfedge probe`"),
        ),
        (
            lambda p: (p.target("t", "cpu", ANY, backend_abi=2), p.found(p.CPU)),
            Refusal(
                "t", "backend_abi", "cpu ABI 2", "ABI 1", "pip install --upgrade dpfedge-cpu (version 0.1.0 is too old)"
            ),
        ),
        (
            lambda p: (p.target("t", "cpu", ANY), p.found(p.CPU, cpu=p.Recorder("cpu", abi=3))),
            Refusal(
                "t", "backend_abi", "cpu ABI 1", "ABI 3",
                "recompile the package (dpfedge-cpu 0.1.0 is newer than it)",
            ),
        ),
    ],
    ids=["board", "memory", "missing plugin", "broken plugin", "no device", "driver", "old plugin", "new plugin"],
)  # fmt: skip
def test_refusal__names_field_wanted_found_and_remedy(
    build: Build, host: Board, parts: Any, case: Callable[[Any], tuple[Any, Any]], refusal: Refusal
) -> None:
    """Each reason has its own field and says what to do."""
    record, seen = case(parts)
    with pytest.raises(BindError) as caught:
        bind(build(record), host, seen)

    assert caught.value.refusals == (refusal,)
    assert caught.value.exit_code == 3
    assert str(refusal) in str(caught.value)


def test_error__lists_every_target(build: Build, host: Board, parts: Any) -> None:
    """The text is one line per refusal, under the package's path."""
    package = build(parts.target("a", "cpu", ["board", "orin"]), parts.target("b", "cuda", ANY))

    with pytest.raises(BindError) as caught:
        bind(package, host, parts.found(parts.CPU))
    assert str(caught.value) == (
        f"{package.path}: no target runs on board host\n"
        "  target a: board: wanted board orin; found host (cpu:0); recompile the package with --board host\n"
        "  target b: backend: wanted cuda; found cpu; pip install dpfedge-cuda"
    )


ORIN_FIRST = (
    ("gpu", "jetson", ["and", ["board", "orin"], ["arch", "sm_87"]]),
    ("cpu", "cpu", ["class", "cpu.aarch64"]),
)


def test_fallback__is_never_silent(build: Build, parts: Any) -> None:
    """The board's GPU has a target and only its plugin is missing: the CPU target is not taken by itself."""
    with pytest.raises(BindError) as caught:
        bind(build(*(parts.target(*item) for item in ORIN_FIRST)), load_board("orin"), parts.found(parts.ARM))

    assert [(item.target, item.field, item.remedy) for item in caught.value.refusals] == [
        ("gpu", "backend", "pip install dpfedge-jetson"),
        ("cpu", "fallback", "see gpu, or accept less with --allow-fallback cpu"),
    ]


def test_fallback__when_the_operator_allows_it(build: Build, parts: Any) -> None:
    """An allowed fallback binds and says that it is one."""
    bound = bind(
        build(*(parts.target(*item) for item in ORIN_FIRST)),
        load_board("orin"),
        parts.found(parts.ARM),
        allow_fallback=["cpu"],
    )

    assert bound.target.id == "cpu"
    assert bound.degraded == (
        "cpu instead of: target gpu: backend: wanted jetson; found cpu; pip install dpfedge-jetson"
    )


def test_fallback__is_none_where_the_board_lacks_the_hardware(build: Build, host: Board, parts: Any) -> None:
    """On a board without that GPU the CPU target is simply the one that fits."""
    bound = bind(build(*(parts.target(*item) for item in ORIN_FIRST)), host, parts.found(parts.ARM))

    assert bound.target.id == "cpu"
    assert bound.degraded is None


def test_bind__package_without_targets_that_fit_any(build: Build, host: Board, parts: Any) -> None:
    """A package for other architectures is refused before anything is loaded."""
    recorder = parts.Recorder("cpu")

    with pytest.raises(BindError):
        bind(build(parts.target("arm", "cpu", ["arch", "armv8.2-a"])), host, parts.found(parts.CPU, cpu=recorder))
    assert recorder.loaded == []
