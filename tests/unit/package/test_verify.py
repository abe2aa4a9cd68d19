# SPDX-License-Identifier: Apache-2.0
"""Verification: each thing an author can get wrong or forge is refused with its path in the manifest."""

from __future__ import annotations

import importlib.util
import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpfedge import limits
from dpfedge.errors import DigestError, FormatError, PackageError
from dpfedge.package import cbor, open_package

Change = Callable[[dict[str, Any]], object]
ChangeManifest = Callable[[Change], Path]


def graph(manifest: dict[str, Any]) -> dict[str, Any]:
    """The one graph of the test package."""
    found: dict[str, Any] = manifest["targets"][0]["models"]["llm"]["graphs"]["step"]
    return found


REFUSED: list[tuple[str, Change, str]] = [
    ("format", lambda m: m.update(format=[1]), "manifest.format: wrong length; found 1"),
    ("format_differs", lambda m: m.update(format=[1, 9]), r"manifest.format: differs from the header; found 1\.9"),
    ("name", lambda m: m.pop("name"), "manifest.name: wrong type or missing; found nothing; allowed text"),
    ("name_type", lambda m: m.update(name=3), "manifest.name: wrong type or missing; found integer; allowed text"),
    ("name_path", lambda m: m.update(name="../evil"), "manifest.name: bad name; found '../evil'"),
    ("name_long", lambda m: m.update(name="a" * 129), "manifest.name: bad name"),
    ("created", lambda m: m.update(created=-1), "manifest.created: number out of range; found -1"),
    ("models_type", lambda m: m.update(models=[]), "manifest.models: wrong type or missing; found array; allowed map"),
    ("sections_type", lambda m: m.update(sections={}), "manifest.sections: wrong type or missing; found map"),
    ("section_repeated", lambda m: m["sections"][1].update(name="weights"), "two sections have one name"),
    ("section_name", lambda m: m["sections"][1].update(name="/etc/passwd"), r"sections\[1\]\.name: bad name"),
    ("section_dots", lambda m: m["sections"][1].update(name="a/../../b"), r"sections\[1\]\.name: bad name"),
    ("section_zero", lambda m: m["sections"][1].update(name="a\0b"), r"sections\[1\]\.name: bad name"),
    ("not_aligned", lambda m: m["sections"][1].update(offset=131073), r"sections\[1\]\.offset: section is not aligned"),
    ("in_header", lambda m: m["sections"][0].update(offset=0), r"sections\[0\]\.offset: section overlaps the header"),
    ("overlap", lambda m: m["sections"][0].update(size=65537), r"sections\[1\]\.offset: section overlaps sections"),
    ("same_place", lambda m: m["sections"][1].update(offset=65536), r"sections\[1\]\.offset: section overlaps"),
    ("past_end", lambda m: m["sections"][2].update(size=9999), r"sections\[2\]\.size: section ends behind the start"),
    ("offset_huge", lambda m: m["sections"][2].update(offset=1 << 62), r"sections\[2\]\.offset: number out of range"),
    ("size_negative", lambda m: m["sections"][2].update(size=-1), r"sections\[2\]\.size: number out of range"),
    ("digest", lambda m: m["sections"][0].update(sha256=b"x"), r"sections\[0\]\.sha256: digest has a wrong length"),
    ("critical", lambda m: m["sections"][0].update(kind="new"), r"unknown kind of a critical section; found new"),
    ("asset", lambda m: m["models"]["llm"]["assets"].update(tok="no"), r"models\.llm\.assets\.tok: reference leads"),
    ("asset_kind", lambda m: m["models"]["llm"]["assets"].update(tok="graph"), "found 'graph', a graph section"),
    ("graph_section", lambda m: graph(m).update(section="tok"), r"graphs\.step\.section: reference leads nowhere"),
    ("weights", lambda m: graph(m).update(weights=["x"]), r"graphs\.step\.weights\[0\]: reference leads nowhere"),
    ("dtype", lambda m: graph(m)["inputs"][0].update(dtype="f8"), r"inputs\[0\]\.dtype: unknown dtype; found 'f8'"),
    ("rank", lambda m: graph(m)["inputs"][0].update(dims=[1] * 9), r"inputs\[0\]\.dims: too many elements; found 9"),
    ("dim", lambda m: graph(m)["inputs"][0].update(dims=[-1]), r"inputs\[0\]\.dims\[0\]: number out of range"),
    ("dim_huge", lambda m: graph(m)["inputs"][0].update(dims=[1 << 31]), r"dims\[0\]: number out of range"),
    ("dim_bool", lambda m: graph(m)["inputs"][0].update(dims=[True]), r"dims\[0\]: wrong type or missing"),
    ("port", lambda m: graph(m).update(inputs=graph(m)["inputs"] * 2), r"graphs\.step\.inputs: two ports have one"),
    ("model", lambda m: m.update(models={}), r"targets\[0\]\.models: unknown model; found 'llm'"),
    ("target_id", lambda m: m["targets"].append(m["targets"][0]), r"targets\[1\]\.id: two targets have one id"),
    ("abi", lambda m: m["targets"][0].update(backend_abi=0), r"targets\[0\]\.backend_abi: number out of range"),
    ("decision", lambda m: m["targets"][0].update(decisions=[["a"]]), r"decisions\[0\]: wrong length; found 1"),
    ("licence", lambda m: m["licences"][0].update(section="tok"), r"licences\[0\]\.section: reference leads nowhere"),
    ("control", lambda m: m["models"]["llm"].update(source="a\x1b[2J"), r"models\.llm\.source: text holds a control"),
    ("text_long", lambda m: m["models"]["llm"].update(source="a" * 65537), r"models\.llm\.source: text is too long"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "message"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_manifest__refused(change_manifest: ChangeManifest, change: Change, message: str) -> None:
    """A forged manifest with fitting digests is refused by the fast check already, at the field's path."""
    path = change_manifest(change)

    with pytest.raises(FormatError, match=message) as caught:
        open_package(path, check="fast")
    assert str(caught.value).startswith(f"{path}: manifest")


def test_manifest__unknown_fields_and_kinds(change_manifest: ChangeManifest) -> None:
    """A later minor version may add fields anywhere and section kinds that need not be understood."""

    def change(manifest: dict[str, Any]) -> None:
        manifest["new"] = graph(manifest)["new"] = manifest["sections"][0]["new"] = {"a": [1]}
        manifest["models"]["llm"]["assets"] = {}
        manifest["sections"][2].update(kind="index", critical=False)

    with open_package(change_manifest(change)) as package:
        assert package.find("tok").kind == "index"


def test_manifest__later_minor_version(package_file: Path, reseal_file: Callable[..., Path]) -> None:
    """A package of format 1.7 opens; header and manifest must agree on it."""
    with open_package(package_file) as package:
        sections = [section.to_map() for section in package.manifest.sections]
    value = {"format": [1, 7], "name": "later", "version": "1", "sections": sections}
    reseal_file(cbor.encode(value), minor=7)

    with open_package(package_file) as package:
        assert package.manifest.format == (1, 7)
    with pytest.raises(FormatError, match=r"manifest\.format: differs from the header; found 1\.7; allowed 1\.6"):
        open_package(reseal_file(cbor.encode(value), minor=6))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"manifest_offset": 1 << 63}, "header byte 24: manifest offset out of range"),
        ({"manifest_offset": 64}, "header byte 24: manifest offset out of range; found 64"),
        ({"manifest_offset": 196617}, "header byte 24: manifest not aligned"),
        ({"manifest_bytes": 0}, "header byte 32: manifest size out of range"),
        ({"manifest_bytes": limits.MANIFEST_MAX_BYTES + 1}, "header byte 32: manifest size out of range"),
        ({"manifest_bytes": 1 << 62}, "header byte 32: manifest size out of range"),
        ({"signature_offset": 128}, "header byte 40: signature offset out of range"),
        ({"signature_bytes": 1 << 63}, "header byte 48: signature size out of range"),
        ({"signature_bytes": 64}, "header byte 48: signature area does not end the file"),
        ({"file_bytes": 1 << 40}, "expected 1099511627776 bytes, have"),
        ({"file_bytes": 128}, "expected 128 bytes, have [0-9]+: the file has bytes behind its end"),
        ({"manifest_sha256": bytes(32)}, "manifest is damaged, its SHA-256 differs"),
    ],
)
def test_header__ranges(reseal_file: Callable[..., Path], changes: dict[str, Any], message: str) -> None:
    """Header fields with a fitting hash but places outside the file are refused at their byte."""
    path = reseal_file(**changes)

    with pytest.raises(PackageError, match=message):
        open_package(path, check="fast")


def test_manifest__cbor_place(reseal_file: Callable[..., Path]) -> None:
    """A manifest that breaks the encoding rules is refused with the byte inside the manifest."""
    path = reseal_file(cbor.encode({"a": 1})[:-1] + b"\xf7")

    with pytest.raises(FormatError, match=r"test\.dpfbin: manifest byte 3: unknown simple value"):
        open_package(path)


def test_sections__damage_is_found_by_the_full_check(package_file: Path) -> None:
    """The full check names section and bytes; the fast check does not read sections, by promise."""
    with package_file.open("r+b") as file:
        file.seek(131072 + 3)
        file.write(b"!")

    open_package(package_file, check="fast").close()
    with pytest.raises(DigestError, match=r"section 'graph', bytes 131072 to 131083: section is damaged"):
        open_package(package_file)


@pytest.mark.parametrize("place", [128, 65535, 80000, 131083, 196614])
def test_padding__not_zero(package_file: Path, place: int) -> None:
    """The full check finds bytes hidden between the parts."""
    with package_file.open("r+b") as file:
        file.seek(place)
        file.write(b"!")

    with pytest.raises(FormatError, match=f"byte {place}: padding is not zero; found 33"):
        open_package(package_file)


def test_open__not_a_package(tmp_path: Path) -> None:
    """Folders, pipes, absent and empty files are refused with the reason and never block."""
    fifo, empty = tmp_path / "fifo", tmp_path / "empty"
    os.mkfifo(fifo)
    empty.touch()

    for path, message in (
        (tmp_path, "not a regular file"), (fifo, "not a regular file"), (Path("/dev/zero"), "not a regular file"),
        (tmp_path / "no", "cannot open the package: No such file or directory"),
        (empty, "expected at least 128 bytes of header, have 0"),
    ):  # fmt: skip
        with pytest.raises(PackageError, match=message):
            open_package(path)


def test_open__reads_header_and_manifest_only(package_file: Path) -> None:
    """From a cold disk the fast check reads the pages of header and manifest, and read-ahead adds none."""
    spec = importlib.util.spec_from_file_location("cached_pages", Path(__file__).parents[2] / "cached_pages.py")
    assert spec is not None
    assert spec.loader is not None
    pages = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pages)
    if not pages.make_cold(package_file):
        pytest.skip("the kernel does not forget this file: its file system is memory")

    with open_package(package_file, check="fast") as package:
        read = [place for place, cached in enumerate(pages.cached_pages(package_file)) if cached]
        first, last = package.header.manifest_offset, package.header.manifest_offset + package.header.manifest_bytes

    assert read == [0, *range(first // mmap.PAGESIZE, (last - 1) // mmap.PAGESIZE + 1)]
