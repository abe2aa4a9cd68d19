# SPDX-License-Identifier: Apache-2.0
"""The choice of a target and every reason against the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from dpfedge.binding import Refusal
from dpfedge.binding.bind import bind
from dpfedge.errors import BindError, UsageError
from dpfedge.hardware.board import Board, load_board
from dpfedge.package import Package

Build = Callable[..., Package]
ANY = ["class", "cpu.x86_64", "gpu.nvidia", "cpu.aarch64"]


def test_bind__first_target_that_fits_wins(build: Build, host: Board, parts: Any) -> None:
    """The package's order is the preference; what fits too is named, what does not has its refusals."""
    package = build(
        parts.target("v4", "cpu", ["arch", "x86-64-v4"]),
        parts.target("v3", "cpu", ["arch", "x86-64-v3"]),
        parts.target("any", "cpu", ANY),
    )

    bound = bind(package, host, parts.found(parts.CPU))
    assert bound.targets[0].id == "v3"
    assert bound.devices == {"llm": parts.CPU, "vad": parts.CPU}
    assert bound.degraded is None
    assert bound.refusals == (
        Refusal("v4", "arch", "arch x86-64-v4", "x86-64-v3 (cpu:0)", "compile the package with --board host"),
    )
    assert bound.also == ("any",)


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
            Refusal("t", "board", "board orin", "host", "compile the package with --board host"),
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
                "pip install --force-reinstall dpfedge-cuda",
            ),
        ),
        (
            lambda p: (
                p.target("t", "cuda", ANY),
                p.found(p.CPU, broken={"dpfedge-cudatoo 1": "import: x", "acme-cuda 9": "import: no libcuda.so.1"}),
            ),
            Refusal(
                "t", "backend", "cuda", "cpu; acme-cuda 9 is broken: import: no libcuda.so.1",
                "pip install --force-reinstall acme-cuda",
            ),
        ),
        (
            lambda p: (p.target("t", "cuda", ANY, backend_abi=2), p.found(p.CPU)),
            Refusal(
                "t", "backend", "cuda", "cpu",
                "pip install --upgrade dpfedge dpfedge-cuda (the package is of a newer dpfedge)",
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
                "t", "backend_abi", "cpu contract 2", "contract 1 (dpfedge-cpu 0.1.0)",
                "pip install --upgrade dpfedge 'dpfedge-cpu>0.1.0' (dpfedge-cpu 0.1.0 is too old for the package)",
            ),
        ),
        (
            lambda p: (p.target("t", "cpu", ANY), p.found(p.CPU, cpu=p.Recorder("cpu", abi=3))),
            Refusal(
                "t", "backend_abi", "cpu contract 1", "contract 3 (dpfedge-cpu 0.1.0)",
                "compile the package again, or pip install dpfedge 'dpfedge-cpu<0.1.0' of the time it was made "
                "(dpfedge-cpu 0.1.0 is too new for it)",
            ),
        ),
        (
            lambda p: (p.target("t", "cuda", ANY), p.found(p.CPU, misfit=("cuda", "dpfedge-cuda 0.9", 0))),
            Refusal(
                "t", "backend_abi", "cuda contract 1", "contract 0 (dpfedge-cuda 0.9)",
                "pip install --upgrade 'dpfedge-cuda>0.9' (too old for this dpfedge)",
            ),
        ),
        (
            lambda p: (p.target("t", "cuda", ANY), p.found(p.CPU, misfit=("cuda", "acme-cuda 9.1", 2))),
            Refusal(
                "t", "backend_abi", "cuda contract 1", "contract 2 (acme-cuda 9.1)",
                "pip install 'acme-cuda<9.1' (too new for this dpfedge), or pip install --upgrade dpfedge",
            ),
        ),
        (
            lambda p: (p.target("t", "cuda", ["driver", "nvidia", ">=560"]), p.found(p.GPU)),
            Refusal(
                "t", "driver", "driver nvidia >=560", "nvidia 550.54.14 (cuda:0)",
                "install a version of the driver that is within these bounds, or compile the package for the one that "
                "is here",
            ),
        ),
    ],
    ids=[
        "board", "memory", "missing plugin", "broken plugin", "broken plugin of another name",
        "plugin of a newer dpfedge", "no device", "driver",
        "old plugin", "new plugin", "plugin too old for dpfedge", "plugin too new for dpfedge", "driver version",
    ],
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
    assert all(part in str(caught.value) for part in (refusal.wanted, refusal.found, refusal.remedy))


def test_error__says_once_how_to_get_a_target(build: Build, host: Board, parts: Any) -> None:
    """What compiling would mend is one remedy, however many terms failed; other remedies stay with their line."""
    package = build(
        parts.target("new", "cpu", ["and", ["arch", "x86-64-v4"], ["feature", "vnni"], ["memory", 16 << 30]]),
        parts.target("arm", "cpu", ["and", ["class", "cpu.aarch64"], ["arch", "armv8.2-a"], ["feature", "fp16"]]),
    )

    with pytest.raises(BindError) as caught:
        bind(package, host, parts.found(parts.CPU))
    assert str(caught.value).splitlines()[1:] == [
        "  target new: arch: wanted arch x86-64-v4; found x86-64-v3 (cpu:0)",
        "  target new: feature: wanted feature vnni; found avx2 (cpu:0)",
        "  target new: memory: wanted memory at least 16.00 GiB; found 8.00 GiB (cpu:0); free memory, raise the "
        "cgroup's limit, or compile smaller models",
        "  target arm: for another kind of device: wanted class cpu.aarch64; found cpu.x86_64 (cpu:0)",
        "  for this board: compile the package with --board host",
    ]


def test_error__lists_every_target(build: Build, host: Board, parts: Any) -> None:
    """One line per refusal, but one for all of another board's target; what to do about those is said once."""
    package = build(
        parts.target("a", "cpu", ["and", ["board", "orin"], ["arch", "armv8.2-a"], ["feature", "fp16"]]),
        parts.target("b", "cuda", ANY),
        parts.target("c", "cpu", ["and", ["board", "thor"], ["arch", "armv9.0-a"]]),
    )

    with pytest.raises(BindError) as caught:
        bind(package, host, parts.found(parts.CPU))
    assert str(caught.value) == (
        f"{package.path}: no target runs on board host\n"
        "  target a: for another board: wanted board orin; found host\n"
        "  target b: backend: wanted cuda; found cpu; pip install dpfedge-cuda\n"
        "  target c: for another board: wanted board thor; found host\n"
        "  for this board: compile the package with --board host"
    )
    assert [(item.target, item.field) for item in caught.value.refusals] == [
        ("a", "board"), ("a", "arch"), ("a", "feature"), ("b", "backend"), ("c", "board"), ("c", "arch")
    ]  # fmt: skip


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
    assert "for this board" not in str(caught.value)  # it has a target for it


def test_fallback__from_a_driver_of_another_version(build: Build, parts: Any) -> None:
    """The GPU is there and its driver too old: a target of its backend for that one is taken, another only if told."""
    new, old = (parts.target(id, "cuda", ["and", ["class", "gpu.nvidia"], ["driver", "nvidia", bound]])
                for id, bound in (("new", ">=560"), ("old", "<560")))  # fmt: skip
    cpu, here = parts.target("cpu", "cpu", ANY), parts.found(parts.CPU, parts.GPU)

    with pytest.raises(BindError, match="see new, or accept less with --allow-fallback cpu"):
        bind(build(new, cpu), load_board("h100"), here)
    assert (bind(build(new, cpu), load_board("h100"), here, allow_fallback=["cpu"]).degraded or "").startswith("cpu ")
    bound = bind(build(new, old, cpu), load_board("h100"), here)
    assert ([target.id for target in bound.targets], bound.degraded) == (["old"], None)


def test_fallback__driver_of_missing_software_is_not_known_yet(build: Build, parts: Any) -> None:
    """The board's GPU is there and its plugin is not: that nobody knows the driver's version makes no CPU choice."""
    gpu = ["and", ["board", "orin"], ["arch", "sm_87"], ["driver", "l4t", ">=36"]]
    package = build(parts.target("gpu", "jetson", gpu), parts.target("cpu", "cpu", ["class", "cpu.aarch64"]))

    with pytest.raises(BindError) as caught:
        bind(package, load_board("orin"), parts.found(parts.ARM))
    assert [item.field for item in caught.value.refusals] == ["backend", "fallback"]


def test_fallback__from_this_machines_cpu_through_a_driver(build: Build, parts: Any) -> None:
    """A board whose device is the CPU of whatever kind: without its driver the plain CPU is no silent stand-in."""
    ours = ["and", ["board", "host-opencl"], ["class", "cpu.x86_64"], ["arch", "x86-64-v3"]]
    package = build(parts.target("ocl", "opencl", ours), parts.target("cpu", "cpu", ["class", "cpu.x86_64"]))
    without = parts.found(parts.CPU, opencl=parts.Recorder("opencl"), broken={"opencl": "no platform"})

    with pytest.raises(BindError, match="no platform"):
        bind(package, load_board("host-opencl"), without)
    assert bind(package, load_board("host-opencl"), without, allow_fallback=["cpu"]).degraded
    plain = bind(package, load_board("host"), without)
    assert (plain.targets[0].id, plain.degraded) == ("cpu", None)
    assert [(item.target, item.field) for item in plain.refusals] == [("ocl", "board")]


def test_fallback__when_the_operator_allows_it(build: Build, parts: Any) -> None:
    """An allowed fallback binds and says that it is one."""
    bound = bind(
        build(*(parts.target(*item) for item in ORIN_FIRST)),
        load_board("orin"),
        parts.found(parts.ARM),
        allow_fallback=["cpu"],
    )

    assert bound.targets[0].id == "cpu"
    assert bound.degraded == (
        "cpu instead of: target gpu: backend: wanted jetson; found cpu; pip install dpfedge-jetson"
    )


def test_fallback__that_the_package_has_no_target_for(build: Build, host: Board, parts: Any) -> None:
    """A misspelt name allows nothing, and says so."""
    package = build(*(parts.target(*item) for item in ORIN_FIRST))

    with pytest.raises(UsageError, match="for this backend; found cup; allowed jetson, cpu"):
        bind(package, host, parts.found(parts.CPU), allow_fallback=["cup"])


def test_fallback__is_none_where_the_board_lacks_the_hardware(build: Build, host: Board, parts: Any) -> None:
    """On a board without that GPU the CPU target is simply the one that fits."""
    bound = bind(build(*(parts.target(*item) for item in ORIN_FIRST)), host, parts.found(parts.ARM))

    assert bound.targets[0].id == "cpu"
    assert bound.degraded is None


def test_bind__package_without_targets_that_fit_any(build: Build, host: Board, parts: Any) -> None:
    """A package for other architectures is refused before anything is loaded."""
    recorder = parts.Recorder("cpu")

    with pytest.raises(BindError):
        bind(build(parts.target("arm", "cpu", ["arch", "armv8.2-a"])), host, parts.found(parts.CPU, cpu=recorder))
    assert recorder.loaded == []


def split(parts: Any, gpu: str = "cuda", **more: Any) -> list[dict[str, Any]]:
    """The llm for a GPU, and everything for the CPU."""
    fast = parts.target("gpu", gpu, ["class", "gpu.nvidia"], **more)
    return [{**fast, "models": {"llm": fast["models"]["llm"]}}, parts.target("cpu", "cpu", ANY)]


def test_bind__each_model_has_its_own_target(build: Build, host: Board, parts: Any) -> None:
    """A model that the first target does not hold is taken from the next one, and nothing is degraded by that."""
    bound = bind(build(*split(parts)), host, parts.found(parts.CPU, parts.GPU))

    assert {name: (place.target.id, place.device.id) for name, place in bound.places.items()} == {
        "llm": ("gpu", "cuda:0"), "vad": ("cpu", "cpu:0"),
    }  # fmt: skip
    assert [target.id for target in bound.targets] == ["gpu", "cpu"]
    assert {name: backend.name for name, backend in bound.backends.items()} == {"cuda": "cuda", "cpu": "cpu"}
    assert [bound.held(target) for target in bound.targets] == [("llm",), ("vad",)]
    assert (bound.degraded, bound.refusals, bound.also) == (None, (), ())


def test_bind__fallback_is_a_choice_for_the_models_it_concerns(build: Build, parts: Any) -> None:
    """Where the GPU's software is missing the llm needs leave to run on the CPU; the vad was placed there anyway."""
    package, here = build(*split(parts, "jetson")), parts.found(parts.ARM)

    with pytest.raises(BindError) as caught:
        bind(package, load_board("orin"), here)
    assert caught.value.what.splitlines()[0] == "no target runs llm on board orin"
    assert [(item.target, item.field) for item in caught.value.refusals] == [("gpu", "backend"), ("cpu", "fallback")]  # type: ignore[attr-defined]
    bound = bind(package, load_board("orin"), here, allow_fallback=["cpu"])
    assert {name: place.degraded is not None for name, place in bound.places.items()} == {"llm": True, "vad": False}
    assert (bound.degraded or "").startswith("llm: cpu instead of: target gpu: backend: wanted jetson")


def test_bind__refused_for_another_reason_the_next_target_counts(build: Build, host: Board, parts: Any) -> None:
    """A GPU too small for its target is a refusal with its reason, as it was for whole packages."""
    bound = bind(build(*split(parts, memory_bytes=90 << 30)), host, parts.found(parts.CPU, parts.GPU))

    assert {place.target.id for place in bound.places.values()} == {"cpu"}
    assert [(item.target, item.field) for item in bound.refusals] == [("gpu", "memory_bytes")]


def test_bind__names_the_model_that_has_no_place(build: Build, host: Board, parts: Any) -> None:
    """One model without a target refuses the package, also when no target has it at all."""
    only = split(parts)[:1]

    with pytest.raises(BindError, match="no target runs vad on board host\n  none of its targets has the model"):
        bind(build(*only), host, parts.found(parts.CPU, parts.GPU))
    with pytest.raises(BindError, match="no target runs llm, vad on board host\n  the package has no targets"):
        bind(build(), host, parts.found(parts.CPU))
