# SPDX-License-Identifier: Apache-2.0
"""Packed weights that processes share: the same numbers, other memory."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from dpfedge_cpu import CpuBackend, packed
from dpfedge_cpu.packed import IMAGE, KEYS, collect, load_shared, private_ranges, share, without
from dpfedge_cpu.session import open_session
from made_graphs import lowered, view

from dpfedge.backend.api import Budget, GraphView, SealedView, sealing
from dpfedge.compiler.nodes import Nodes
from dpfedge.errors import BackendError, Unsupported
from dpfedge.tensors import TensorSpec

SIZE = 512
PAGE = mmap.PAGESIZE
Save = Callable[[Mapping[str, bytes]], dict[str, SealedView]]


def matrix(size: int) -> onnx.ModelProto:
    """y = x·W, x f32[n, size]."""
    nodes = Nodes("matrix")
    weight = np.random.default_rng(1).standard_normal((size, size)).astype(np.float32)
    nodes.add("MatMul", ["x", nodes.constant("w", weight)], "y")
    return nodes.model([TensorSpec("x", "f32", ("n", size))], [TensorSpec("y", "f32", ("n", size))])


@pytest.fixture(scope="module")
def graph() -> GraphView:
    """A graph with one megabyte of weights."""
    return view(lowered(matrix(SIZE)))


@pytest.fixture(scope="module")
def device() -> Any:
    """This machine's."""
    return CpuBackend().devices(Path("/"))[0]


@pytest.fixture(scope="module")
def image(graph: GraphView, device: Any) -> Mapping[str, bytes]:
    """What sealing makes of it."""
    found = CpuBackend().seal(graph, device, Budget())
    assert found is not None
    return {name: b"".join(piece.tobytes() for piece in pieces) for name, pieces in found.items()}


@pytest.fixture
def save(tmp_path: Path) -> Save:
    """Bytes as they would lie in a sidecar: in one file, mapped."""

    def _save(found: Mapping[str, bytes]) -> dict[str, SealedView]:
        path = tmp_path / "sidecar"
        path.write_bytes(found[IMAGE] + found[KEYS])
        file = os.open(path, os.O_RDONLY)
        data = memoryview(mmap.mmap(file, 0, prot=mmap.PROT_READ))
        cut = len(found[IMAGE])
        return {IMAGE: SealedView(data[:cut], file, 0), KEYS: SealedView(data[cut:], file, cut)}

    return _save


def outputs(executable: Any) -> Any:
    return executable.run({"x": np.random.default_rng(2).standard_normal((3, SIZE)).astype(np.float32)})["y"]


def mapped(path: Path) -> int:
    """Bytes of private mappings of a file in this process."""
    size = 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        place, access, *_ = line.split()
        if line.endswith(str(path)) and access == "rw-p":
            start, end = (int(part, 16) for part in place.split("-"))
            size += end - start
    return size


def test_seal__an_image_of_the_packed_pages(image: Mapping[str, bytes]) -> None:
    """About as large as the weights, and a number for each page."""
    assert set(image) == {IMAGE, KEYS}
    assert 0.8 * SIZE * SIZE * 4 < len(image[IMAGE]) < 1.5 * SIZE * SIZE * 4
    assert len(image[IMAGE]) // PAGE == len(image[KEYS]) // 8


def test_load__shared_pages_change_no_bit(
    graph: GraphView, device: Any, image: Mapping[str, bytes], save: Save, tmp_path: Path
) -> None:
    """The executable reads the sidecar's pages and computes the same; they are gone when it is closed."""
    backend = CpuBackend()
    plain = outputs(backend.load(graph, device, Budget()))
    executable = backend.load(replace(graph, sealed=save(image)), device, Budget())

    assert mapped(tmp_path / "sidecar") >= 0.9 * SIZE * SIZE * 4
    np.testing.assert_array_equal(outputs(executable), plain)
    executable.close()
    assert mapped(tmp_path / "sidecar") == 0


def test_load__of_other_weights_shares_nothing(
    device: Any, image: Mapping[str, bytes], save: Save, tmp_path: Path
) -> None:
    """Only equal pages are replaced: an image of something else is harmless."""
    other = np.random.default_rng(9).integers(0, 2**63, len(image[IMAGE]) // 8, np.uint64)
    sealed = save({IMAGE: other.tobytes(), KEYS: image[KEYS]})  # the numbers fit, the pages do not
    graph = view(lowered(matrix(SIZE)))
    plain = outputs(CpuBackend().load(graph, device, Budget()))
    executable = CpuBackend().load(replace(graph, sealed=sealed), device, Budget())

    assert mapped(tmp_path / "sidecar") == 0
    np.testing.assert_array_equal(outputs(executable), plain)


def test_share__leaves_pages_that_differ(save: Save, tmp_path: Path) -> None:
    """Equal pages before and behind a changed one are shared, itself it stays; writing copies a page."""
    pages = np.random.default_rng(3).integers(0, 2**63, (8, PAGE // 8), np.uint64)
    keys = packed._keys(pages)
    memory = mmap.mmap(-1, 10 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    words = np.frombuffer(memory, np.uint64).reshape(10, -1)
    words[1:9] = pages
    words[4, 3] ^= 1  # a word that the keys do not look at
    expected = words.copy()
    sealed = save({IMAGE: pages.tobytes(), KEYS: keys.tobytes()})
    start = words.ctypes.data

    assert share([(start, start + 10 * PAGE)], sealed[IMAGE], keys) == 7 * PAGE
    assert mapped(tmp_path / "sidecar") == 7 * PAGE
    np.testing.assert_array_equal(words, expected)
    words[2, 0] = 5
    assert words[2, 0] == 5
    assert np.frombuffer(sealed[IMAGE].data, np.uint64)[PAGE // 8] == pages[1, 0]


def test_share__repeated_pages(save: Save) -> None:
    """Pages that occur more than once in the image are found in their order."""
    one, two = np.random.default_rng(4).integers(0, 2**63, (2, PAGE // 8), np.uint64)
    pages = np.stack([one, two, one, one, two])
    memory = mmap.mmap(-1, 5 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    words = np.frombuffer(memory, np.uint64).reshape(5, -1)
    words[:] = pages
    keys = packed._keys(pages)
    sealed = save({IMAGE: pages.tobytes(), KEYS: keys.tobytes()})

    assert share([(words.ctypes.data, words.ctypes.data + 5 * PAGE)], sealed[IMAGE], keys) == 5 * PAGE
    np.testing.assert_array_equal(words, pages)


def test_share__memory_given_back_meanwhile(save: Save) -> None:
    """A range that is no longer there is left out, not read."""
    pages = np.ones((1, PAGE // 8), np.uint64)
    sealed = save({IMAGE: pages.tobytes(), KEYS: packed._keys(pages).tobytes()})

    assert share([(1 << 30, (1 << 30) + PAGE)], sealed[IMAGE], packed._keys(pages)) == 0


def test_collect__nothing_to_share() -> None:
    """A graph without large weights has no image, also when a few pages of objects are alike by chance."""
    assert collect(lambda: b"nothing") is None
    assert collect(lambda: np.ones(PAGE // 4)) is None
    assert collect(lambda: np.ones(PAGE * 4)) is not None
    assert collect(lambda: np.ones(PAGE * 4), 128 * 31 * PAGE) is not None
    assert collect(lambda: np.ones(PAGE * 4), 128 * 64 * PAGE) is None


def test_collect__memory_freed_between_the_loads_is_not_packed_into(graph: GraphView) -> None:
    """It lies in the heap, where no page is like another run's; the second load gets pages of its own all the same."""
    libc = packed._libc()

    def load() -> object:
        loaded = open_session(graph, Budget())
        # less than gets pages of its own, and together more than the matrix
        pieces = [libc.malloc(8000) for _ in range(400)]
        for piece in pieces:
            libc.free(piece)
        return loaded

    found = collect(load)
    assert found is not None
    assert sum(map(len, found[IMAGE])) * PAGE >= SIZE * SIZE * 4


def test_load_shared__a_load_that_fails(image: Mapping[str, bytes], save: Save) -> None:
    """The error is the load's own, and the next load works."""

    def fail() -> None:
        raise ValueError("broken")

    sealed = save(image)
    for _ in range(2):
        with pytest.raises(ValueError, match="broken"):
            load_shared(fail, sealed)


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found.pop(KEYS),
        lambda found: found.update({KEYS: found[KEYS][:-1]}),
        lambda found: found.update({IMAGE: found[IMAGE][:-1]}),
        lambda found: found.update({IMAGE: b"", KEYS: b""}),
        lambda found: found.update({"more": b"x"}),
    ],
)
def test_load__what_was_not_sealed_by_this_backend(
    change: Callable[[dict[str, bytes]], object], graph: GraphView, device: Any, image: Mapping[str, bytes]
) -> None:
    """Whatever a sidecar holds, it is refused by name and nothing is read outside of it."""
    found = dict(image)
    change(found)
    sealed = {name: SealedView(memoryview(data), -1, 0) for name, data in found.items()}

    with pytest.raises(
        BackendError, match=r"backend cpu: sealed weights have another form; found .*packed.* of \d+ byt"
    ):
        CpuBackend().load(replace(graph, sealed=sealed), device, Budget())


def test_load__an_image_that_lies_outside_of_its_file(
    graph: GraphView, device: Any, image: Mapping[str, bytes], save: Save
) -> None:
    """Its pages would be mapped, and reading them would kill the process."""
    sealed = save(image)
    one = sealed[IMAGE]
    for place, words in (((one.file, 1 << 40), "lie outside of their file"), ((-1, 0), "cannot map packed weights")):
        wrong = {**sealed, IMAGE: SealedView(one.data, *place)}
        with pytest.raises(BackendError, match=words):
            CpuBackend().load(replace(graph, sealed=wrong), device, Budget())


def test_without__ranges() -> None:
    """What is new: before, between and behind what was there."""
    assert without([(0, 10), (20, 30)], [(2, 4), (6, 21), (28, 40)]) == [(0, 2), (4, 6), (21, 28)]
    assert without([(0, 10)], []) == [(0, 10)]
    assert without([(0, 10)], [(0, 10)]) == []


def test_private_ranges__see_a_new_mapping() -> None:
    """Large allocations show."""
    before = private_ranges()
    memory = mmap.mmap(-1, 1 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    assert sum(end - start for start, end in without(private_ranges(), before)) >= 1 << 20
    memory.close()


def test_another_c_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without glibc's allocator nothing can be shared, and that is said."""
    packed._libc.cache_clear()
    monkeypatch.setattr(packed.ctypes, "CDLL", lambda *_, **__: object())

    with pytest.raises(Unsupported, match="packed weights are shared with glibc only"):
        collect(lambda: None)
    monkeypatch.undo()
    packed._libc.cache_clear()


def test_own_memory_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a filter refuses the call no page would ever be shared; that is said, not passed over."""
    libc = SimpleNamespace(process_vm_readv=lambda *_: -1)

    with pytest.raises(Unsupported, match=r"may read its own memory by process_vm_readv.*or remove the seal"):
        packed._check_reads(libc)  # type: ignore[arg-type]


def test_another_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that places memory as it likes is refused, with what to do."""
    monkeypatch.setattr(packed, "_has_own_pages", lambda address: False)

    with pytest.raises(Unsupported, match=r"allocator only; found another one.*start without it, or remove the seal"):
        collect(lambda: None)


def test_identity__names_what_kernels_depend_on(device: Any) -> None:
    """Architecture, features, page size and versions."""
    seals = sealing(CpuBackend())
    assert seals is not None
    identity = seals.identity(device)

    assert set(identity.device) == {"kind", "arch", "features", "page_bytes"}
    assert set(identity.libraries) == {"onnxruntime", "dpfedge-cpu", "libc"}
    assert identity.driver == ""


def test_identity__version_without_loading_it(device: Any) -> None:
    """A process that only binds and one that runs the library say the same, and the first does not import it."""
    code = (
        "import sys; from pathlib import Path; from dpfedge_cpu import CpuBackend; backend = CpuBackend();"
        "print(backend.identity(backend.devices(Path('/'))[0]).libraries['onnxruntime']);"
        "sys.exit(str({'onnxruntime', 'numpy', 'importlib.metadata'} & set(sys.modules) or ''))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert (done.stdout.strip(), done.stderr.strip()) == (version("onnxruntime"), "")
