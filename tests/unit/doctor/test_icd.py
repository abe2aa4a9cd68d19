# SPDX-License-Identifier: Apache-2.0
"""OpenCL's loader and its list of drivers below made-up roots; libraries are empty files, fakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpfedge.doctor.icd import check_icd
from dpfedge.doctor.surroundings import Surroundings
from dpfedge.hardware.source.root import Root


def write(root: Path, path: str, text: str = "") -> None:
    """A file below a root."""
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with the loader."""
    write(tmp_path, "usr/lib/aarch64-linux-gnu/libOpenCL.so.1")
    return tmp_path


def whats(root: Path, **environ: str) -> list[str]:
    """What is found, without levels."""
    return [f"{one.where}: {one.what}; {one.remedy}" for one in check_icd(Surroundings(Root(root), environ))]


def test_check_icd__nothing_installed(tmp_path: Path) -> None:
    """No loader, no list; of a recording without libraries nothing is claimed."""
    assert whats(tmp_path) == []
    write(tmp_path, "usr/lib/libc.so.6")
    loader, drivers = whats(tmp_path)

    assert "the OpenCL loader is not installed" in loader
    assert drivers == "/etc/OpenCL/vendors: no driver is registered (no .icd file); install a driver"


def test_check_icd__loader_of_a_wheel(tmp_path: Path) -> None:
    """pyopencl's wheel has one inside: what is missing then is a driver only."""
    write(tmp_path, "root/usr/lib/libc.so.6")
    write(tmp_path, "packages/pyopencl/.libs/libOpenCL-5519dec5.so.1.0.0")

    (drivers,) = check_icd(Surroundings(Root(tmp_path / "root"), {}, (str(tmp_path / "packages"),)))
    assert drivers.what == "no driver is registered (no .icd file)"


def test_check_icd__driver_without_a_file(root: Path) -> None:
    """A vendor's library that nobody registered: the file to write is named."""
    write(root, "usr/lib/aarch64-linux-gnu/libmali.so")

    (found,) = whats(root)
    assert found.endswith("write libmali.so into /etc/OpenCL/vendors/mali.icd")


def test_check_icd__file_without_a_driver(root: Path) -> None:
    """Each file's library must be there, by name or by path; an empty file names none."""
    write(root, "etc/OpenCL/vendors/good.icd", "/opt/vendor/libcl.so\n")
    write(root, "opt/vendor/libcl.so")
    write(root, "etc/OpenCL/vendors/mali.icd", "libmali.so\n")
    write(root, "etc/OpenCL/vendors/none.icd")

    assert [line.partition(";")[0] for line in whats(root)] == [
        "/etc/OpenCL/vendors/mali.icd: it names libmali.so, which is not there",
        "/etc/OpenCL/vendors/none.icd: it is empty, or may not be read",
    ]


def test_check_icd__list_elsewhere(root: Path) -> None:
    """A variable of the loader replaces the folder."""
    (found,) = whats(root, OCL_ICD_VENDORS="/home/me/icd")

    assert found.startswith("OCL_ICD_VENDORS: the loader takes drivers from /home/me/icd")
