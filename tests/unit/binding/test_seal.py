# SPDX-License-Identifier: Apache-2.0
"""Seals beside packages: used when everything is the same, refused by name when anything differs."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dpfedge.backend.api import Budget, Device, Identity
from dpfedge.binding import Bound, Chosen
from dpfedge.binding.bind import bind
from dpfedge.binding.seal import attach_seal, seal_record
from dpfedge.errors import SignatureError, Unsupported
from dpfedge.hardware.board import Board
from dpfedge.package import Package, PackageWriter
from dpfedge.package.sidecar import Built, SealRecord, sidecar_of

Build = Callable[..., Package]


@pytest.fixture
def recorder(parts: Any) -> Any:
    """A backend that says what its seals are bound to."""
    made = parts.Recorder("cpu")
    made.identity = lambda device: Identity({"arch": device.arch, "features": "avx2"}, {"onnxruntime": "1.32.0"})
    made.seal = lambda *parts: None
    made.compares_sealed = False
    return made


@pytest.fixture
def bound(build: Build, host: Board, parts: Any, recorder: Any) -> Bound:
    """The small package on this machine."""
    package = build(parts.target("t", "cpu", ["board", "host"]))
    return bind(package, host, parts.found(parts.CPU, cpu=recorder))


def write(bound: Bound, **changes: Any) -> Path:
    """A sidecar beside the package of `bound`; `changes` are made to what it is sealed for."""
    path = sidecar_of(bound.package.path)
    built = (Built("llm", "step", "packed", "sealed"),)
    record = replace(seal_record(bound), **{"built": built, **changes})
    with PackageWriter(path, name="small", version="1.2") as writer:
        writer.add("sealed", "sealed", b"packed")
        writer.finish({"seal": record.to_map()})
    return path


def test_attach__fits(bound: Bound, recorder: Any) -> None:
    """What was built reaches the backend with the graph, also in another process."""
    write(bound)
    sealed = attach_seal(bound, check="full")

    assert (sealed.stale, sealed.sidecar is not None) == ((), True)
    sealed.model("llm").load("step", Budget())
    [(graph, _, _)] = recorder.loaded
    assert bytes(graph.sealed["packed"].data) == b"packed"
    assert sealed.model("vad").graph("step").sealed == {}

    class Only:
        def get(self, name: str) -> Any:
            return recorder

    assert sealed.sidecar is not None
    again = Chosen.again(bound.package, sealed.chosen.record(), Only())  # type: ignore[arg-type]
    assert bytes(again.model("llm").graph("step").sealed["packed"].data) == b"packed"
    sealed.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(graph.sealed["packed"].file)


def test_attach__no_sidecar(bound: Bound) -> None:
    """Nothing beside the package, nothing said."""
    assert attach_seal(bound) is bound
    assert bound.chosen.record()["seal"] is None


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        ({"libraries": {"onnxruntime": "1.31.0"}}, ["library/onnxruntime: wanted 1.31.0; found 1.32.0"]),
        ({"libraries": {"onnxruntime": "1.32.0", "x": "1"}}, ["library/x: wanted 1; found nothing"]),
        (
            {"device": {"arch": "x86-64-v4", "features": "avx512 vnni"}},
            ["device/arch: wanted x86-64-v4; found x86-64-v3", "device/features: wanted avx512 vnni; found avx2"],
        ),
        ({"driver": "nvidia 550.54"}, ["driver: wanted nvidia 550.54; found nothing"]),
        ({"backend": "cuda"}, ["backend: wanted cuda; found cpu"]),
        ({"target": "other"}, ["target: wanted other; found t"]),
    ],
)
def test_attach__stale_is_refused_and_named(bound: Bound, changes: dict[str, Any], lines: list[str]) -> None:
    """A sidecar of another device, driver, library or target: each field with both values and what to do."""
    path = write(bound, **changes)
    before = path.read_bytes()
    found = attach_seal(bound)

    assert found.sidecar is None
    assert [str(stale) for stale in found.stale] == [
        f"seal small.dpfbin.dpfseal: refused: {line}; run `dpfedge seal`" for line in lines
    ]
    assert path.read_bytes() == before, "nothing is built anew"
    assert found.model("llm").graph("step").sealed == {}


def test_attach__of_another_package(bound: Bound) -> None:
    """Only the package is named then: everything else may differ for that reason."""
    write(bound, package=b"\xab" * 32, target="other")
    [stale] = attach_seal(bound).stale

    here = bound.package.manifest_sha256.hex()[:16]
    assert str(stale) == (
        f"seal small.dpfbin.dpfseal: refused: package: wanted {'ab' * 8}; found {here}; run `dpfedge seal`"
    )


def test_attach__nobody_trusted_signed_it(bound: Bound) -> None:
    """Where packages must be signed, sidecars must be; the reason is the signature's own."""
    path = write(bound)

    def vouch(package: Package) -> None:
        raise SignatureError("nobody has signed it", where=str(package.path))

    [stale] = attach_seal(bound, vouch=vouch).stale
    assert str(stale) == (
        "seal small.dpfbin.dpfseal: refused: file: wanted a sidecar that can be trusted; "
        f"found {path}: nobody has signed it; run `dpfedge seal --key KEY` with a key that is trusted here"
    )


def test_attach__damaged(bound: Bound) -> None:
    """A cut file is refused as such, and the package runs without it."""
    path = write(bound)
    path.write_bytes(path.read_bytes()[:-1])
    found = attach_seal(bound)

    assert found.sidecar is None
    assert "the file was cut" in str(found.stale[0])


@pytest.mark.parametrize("compares", [False, True])
def test_attach__damaged_inside(bound: Bound, recorder: Any, compares: bool) -> None:
    """The full check reads sealed bytes, unless the backend compares each of them itself."""
    path = write(bound)
    data = bytearray(path.read_bytes())
    data[65536] ^= 1
    path.write_bytes(data)
    recorder.compares_sealed = compares

    found = attach_seal(bound, check="full")
    assert (found.sidecar is not None) is compares
    assert compares or "section 'sealed'" in str(found.stale[0])


def test_attach__a_link_to_nowhere(bound: Bound) -> None:
    """Somebody put the seal on a disk that is not there: that is said."""
    sidecar_of(bound.package.path).symlink_to("gone")

    [stale] = attach_seal(bound).stale
    assert "No such file or directory" in str(stale)


def test_attach__a_package_in_its_place(bound: Bound) -> None:
    """A package under a sidecar's name is not taken for one."""
    path = sidecar_of(bound.package.path)
    path.write_bytes(bound.package.path.read_bytes())

    assert "a package, not a sidecar" in str(attach_seal(bound).stale[0])


def test_attach__a_backend_that_seals_nothing(bound: Bound, build: Build, host: Board, parts: Any) -> None:
    """It cannot say what a seal is bound to, so none is used."""
    write(bound)
    plain = bind(bound.package, host, parts.found(parts.CPU))

    [stale] = attach_seal(plain).stale
    assert str(stale) == (
        "seal small.dpfbin.dpfseal: refused: backend: wanted one that seals; found cpu; remove the seal"
    )
    with pytest.raises(Unsupported, match="backend cpu: the backend seals nothing"):
        seal_record(plain)


def test_record__of_this_machine(bound: Bound) -> None:
    """Package, target, backend and the backend's own facts."""
    assert seal_record(bound) == SealRecord(
        bound.package.manifest_sha256, "t", "cpu", {"arch": "x86-64-v3", "features": "avx2"}, "",
        {"onnxruntime": "1.32.0"},
    )  # fmt: skip
    assert isinstance(bound.devices["llm"], Device)


@pytest.fixture
def mixed(build: Build, host: Board, parts: Any, recorder: Any) -> Bound:
    """The llm on a GPU whose backend seals, the vad on the CPU."""
    gpu = parts.Recorder("cuda")
    gpu.identity = lambda device: Identity({"arch": device.arch}, {"cudnn": "9.1"}, "nvidia 550.54")
    gpu.seal, gpu.compares_sealed = (lambda *parts: None), False
    fast = parts.target("gpu", "cuda", ["class", "gpu.nvidia"])
    fast["models"].pop("vad")
    package = build(fast, parts.target("cpu", "cpu", ["class", "cpu.x86_64"]))
    return bind(package, host, parts.found(parts.CPU, parts.GPU, cuda=gpu, cpu=recorder))


def test_seal__of_several_targets_is_one_file(mixed: Bound) -> None:
    """The first target's facts stand where they always did, the others' beside them; a model gets what is its own."""
    record = seal_record(mixed)

    assert (record.target, record.backend, record.driver) == ("gpu", "cuda", "nvidia 550.54")
    assert record.device == {
        "arch": "sm_90", "target2/target": "cpu", "target2/backend": "cpu", "target2/driver": "none",
        "target2/arch": "x86-64-v3", "target2/features": "avx2",
    }  # fmt: skip
    assert record.libraries == {"cudnn": "9.1", "target2/onnxruntime": "1.32.0"}
    write(mixed)
    sealed = attach_seal(mixed, check="full")
    assert sealed.stale == ()
    assert bytes(sealed.model("llm").graph("step").sealed["packed"].data) == b"packed"


def test_seal__stale_when_the_other_target_changed(mixed: Bound) -> None:
    """A library of the second device counts as one of the first does."""
    old = {**seal_record(mixed).libraries, "target2/onnxruntime": "1.31.0"}
    write(mixed, libraries=old)

    [stale] = attach_seal(mixed).stale
    assert (stale.field, stale.wanted, stale.found) == ("library/target2/onnxruntime", "1.31.0", "1.32.0")


def test_seal__beside_a_target_whose_backend_seals_nothing(mixed: Bound, parts: Any) -> None:
    """One backend that seals is enough; of the other its version counts."""
    place = replace(mixed.places["vad"], backend=parts.Recorder("cpu"))
    record = seal_record(replace(mixed, places={**mixed.places, "vad": place}))

    assert record.device["target2/kind"] == "cpu.x86_64"
    assert record.libraries == {"cudnn": "9.1", "target2/dpfedge-cpu": "0.1.0"}
