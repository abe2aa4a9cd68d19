# SPDX-License-Identifier: Apache-2.0
"""Building sidecars: complete or not there, with what was built and a progress that ends."""

from __future__ import annotations

import errno
import re
from pathlib import Path
from typing import Any

import pytest
from dpfedge_cpu import CpuBackend
from made_gguf import llama_file

from dpfedge.backend.api import GraphView
from dpfedge.backend.registry import Registry
from dpfedge.binding import Bound, bind_here
from dpfedge.compiler.emit import compile_package
from dpfedge.compiler.recipe import load_recipe
from dpfedge.errors import BackendError, PackageError
from dpfedge.package import open_package
from dpfedge.package.sidecar import sidecar_of
from dpfedge.seal import build as module
from dpfedge.seal.build import build_seal
from dpfedge.signing import PrivateKey
from dpfedge.signing.check import signatures_of

RECIPE = """\
name: tiny
version: "1"
models:
  llm: {family: llama, source: "folder:llm", licence: Apache-2.0, context: 16, mode: fast}
pipeline:
  stages:
    decoder: {model: llm}
"""


class Packing(CpuBackend):
    """Builds the same for every graph, or fails."""

    found: dict[str, bytes] | None = None
    error: BackendError | None = None

    def seal(self, graph: GraphView, device: Any, budget: Any) -> dict[str, bytes] | None:
        assert bytes(graph.code)
        if self.error:
            raise self.error
        return self.found


@pytest.fixture
def backend() -> Packing:
    """One that can be told what to build."""
    return Packing()


@pytest.fixture
def bound(tmp_path: Path, backend: Packing) -> Bound:
    """A tiny package, without an opening."""
    (tmp_path / "llm").mkdir()
    llama_file(tmp_path / "llm")
    (tmp_path / "tiny.yaml").write_text(RECIPE)
    registry = Registry()
    registry.add(backend)
    path = tmp_path / "tiny 1.dpfbin"
    compile_package(load_recipe(tmp_path / "tiny.yaml"), path, boards=["host"], registry=registry)
    return bind_here(open_package(path), registry=registry, sidecar=False)


def test_build__is_found_again(bound: Bound, backend: Packing) -> None:
    """The sidecar fits the package it was built from, here."""
    backend.found = {"b": b"two", "a": b"one"}
    out, seen = sidecar_of(bound.package.path), list[tuple[str, float]]()
    sealed = build_seal(bound, out, progress=lambda text, done: seen.append((text, done)))

    assert sealed is not None
    assert sealed.nbytes == out.stat().st_size
    assert [(item.graph, item.name) for item in sealed.built] == [("llm", "a"), ("llm", "b")]
    registry = Registry()
    registry.add(backend)
    again = bind_here(bound.package, registry=registry, check="full")
    assert again.stale == ()
    assert bytes(again.model("llm").graph("llm").sealed["a"].data) == b"one"
    assert seen == [("llm: llm", 0.0), ("sign", 1.0)]


def test_build__nothing_to_build(bound: Bound) -> None:
    """No file is left, not even an empty one."""
    before = sorted(bound.package.path.parent.iterdir())

    assert build_seal(bound, sidecar_of(bound.package.path)) is None
    assert sorted(bound.package.path.parent.iterdir()) == before


def test_build__that_fails_leaves_the_old_one(bound: Bound, backend: Packing) -> None:
    """Atomic: the old sidecar stays, and nothing half made."""
    out = sidecar_of(bound.package.path)
    backend.found = {"a": b"old"}
    build_seal(bound, out)
    before, files = out.read_bytes(), sorted(out.parent.iterdir())
    backend.error = BackendError("device lost", where="graph llm")

    with pytest.raises(BackendError, match="device lost"):
        build_seal(bound, out)
    assert (out.read_bytes(), sorted(out.parent.iterdir())) == (before, files)


def test_build__signed(bound: Bound, backend: Packing) -> None:
    """The unsigned form never has the sidecar's name, and does not stay."""
    backend.found = {"a": b"one"}
    out, key = sidecar_of(bound.package.path), PrivateKey.generate()
    build_seal(bound, out, keys=[key])

    with open_package(out) as container:
        assert [signature.key_id for signature in signatures_of(container)] == [key.public.id]
    assert [path.name for path in out.parent.glob(".*")] == []


def test_build__signed_while_another_process_is(
    bound: Bound, backend: Packing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each signs the file that it built."""
    out, keys, sign = sidecar_of(bound.package.path), [PrivateKey.generate()], module._sign

    def interrupted(unsigned: Path, *rest: Any) -> None:
        monkeypatch.setattr(module, "_sign", sign)
        backend.found = {"a": b"of the other"}
        build_seal(bound, out, keys=keys)
        assert b"of the other" in out.read_bytes()
        sign(unsigned, *rest)

    backend.found = {"a": b"of this one"}
    monkeypatch.setattr(module, "_sign", interrupted)
    assert build_seal(bound, out, keys=keys) is not None
    assert b"of this one" in out.read_bytes()
    assert [path.name for path in out.parent.glob(".*")] == []


def test_build__a_sidecar_is_no_package(bound: Bound, backend: Packing) -> None:
    """Named in a package's place it is refused."""
    backend.found = {"a": b"one"}
    out = sidecar_of(bound.package.path)
    build_seal(bound, out)

    with pytest.raises(Exception, match="a sidecar, not a package; name the package that it lies beside"):
        bind_here(open_package(out))


@pytest.mark.parametrize(
    ("number", "words", "more"),
    [
        (errno.ENOSPC, "No space left on device", r"; found \d+ bytes free; make room, or write it elsewhere"),
        (errno.EROFS, "Read-only file system", ""),
    ],
)
def test_build__where_nothing_can_be_written(
    bound: Bound, backend: Packing, number: int, words: str, more: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk or a read-only one is named, and the old sidecar stays."""
    out = sidecar_of(bound.package.path)
    backend.found = {"a": b"old"}
    build_seal(bound, out)
    before, files = out.read_bytes(), sorted(out.parent.iterdir())

    def refuse(*_: object) -> int:
        raise OSError(number, words)

    monkeypatch.setattr("dpfedge.package.writer.os.pwrite", refuse)
    with pytest.raises(PackageError) as caught:
        build_seal(bound, out)
    assert re.fullmatch(f"{re.escape(str(out))}: cannot write the package: {words}{more}", str(caught.value))
    assert caught.value.exit_code == 1
    assert (out.read_bytes(), sorted(out.parent.iterdir())) == (before, files)
