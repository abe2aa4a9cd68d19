# SPDX-License-Identifier: Apache-2.0
"""Drivers that are missing or too old, and lists of devices that CUDA misreads; distributions here are fakes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dpfedge.doctor.drivers import check_age, check_drivers, check_hidden, check_visible
from dpfedge.doctor.surroundings import Surroundings
from dpfedge.hardware.source.root import Root

from .conftest import MACHINES, Install, machine

CUDA13 = ("nvidia-cuda-runtime~=13.0; extra == 'cuda'",)
UUID = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"


def test_check_drivers__none_loaded(tmp_path: Path) -> None:
    """A GPU on the bus without its kernel module; with it nothing is said."""
    bare = tmp_path / "bare"
    shutil.copytree(MACHINES / "h100", bare, symlinks=True)
    shutil.rmtree(bare / "proc" / "driver")

    (found, *more) = check_drivers(Surroundings(Root(bare)))
    assert "no kernel driver is loaded for it" in found.what
    assert found.backends == ("cuda", "jetson")
    assert all(one.what == found.what for one in more)
    assert list(check_drivers(machine("h100"))) == []


@pytest.mark.parametrize(("version", "level"), [("535.104.05", "fault"), ("580.65.06", "note")])
def test_check_age__of_the_cuda_in_the_wheel(tmp_path: Path, install: Install, version: str, level: str) -> None:
    """CUDA 13 needs driver 580; both numbers are named either way."""
    root = tmp_path / "root"
    shutil.copytree(MACHINES / "h100", root, symlinks=True)
    text = (root / "proc/driver/nvidia/version").read_text()
    old = next(word for word in text.split() if word.count(".") == 2 and word[0].isdigit())
    (root / "proc/driver/nvidia/version").write_text(text.replace(old, version))
    folder = install("onnxruntime-gpu", "1.31.1", requires=CUDA13)

    found = list(check_age(Surroundings(Root(root), {}, (folder,))))

    assert {one.level for one in found} == {level}
    assert found[0].where == f"driver nvidia {version}"
    assert "built for CUDA 13" in found[0].what


@pytest.mark.parametrize("text", ["0", UUID, "GPU-8932f937", f"MIG-{UUID}/1/0", f"MIG-{UUID[4:]}"])
def test_check_visible__forms_that_cuda_knows(text: str) -> None:
    """Indices, GPUs by their whole or short UUID, MIG instances in the old and the new form."""
    assert list(check_visible(machine("h100", CUDA_VISIBLE_DEVICES=text))) == []


@pytest.mark.parametrize(
    ("text", "level", "what"),
    [
        ("", "warning", "hides every GPU"),
        ("-1", "warning", "hides every GPU"),
        ("all", "fault", "'all' is no form that CUDA knows: no GPU is seen"),
        ("cuda:0", "fault", "no GPU is seen"),
        ("0,,1", "fault", "only the 1 before it are seen"),
        ("0;1", "fault", "is no form"),
        ("0,0", "fault", "one device stands in it twice"),
        (f"0,{UUID}", "fault", "it mixes"),
        ("0,99", "fault", "there is no GPU 99"),
        (f"MIG-{UUID[4:]},MIG-{UUID}/1/0", "warning", "one MIG instance only"),
    ],
)
def test_check_visible__forms_it_does_not(text: str, level: str, what: str) -> None:
    """CUDA says nothing and shows fewer devices; here each is named."""
    (found,) = check_visible(machine("h100", CUDA_VISIBLE_DEVICES=text))

    assert found.level == level
    assert what in found.what
    assert found.where == f"CUDA_VISIBLE_DEVICES={text}"


def test_check_visible__unset() -> None:
    """Every GPU is seen."""
    assert list(check_visible(machine("h100"))) == []


@pytest.mark.parametrize(
    ("name", "text", "level", "what"),
    [
        ("ROCR_VISIBLE_DEVICES", "0,GPU-4b2c1a9f8d3e6f7a", "note", "other GPUs are hidden"),
        ("ROCR_VISIBLE_DEVICES", "0,all", "fault", "'all' is no form that it knows"),
        ("HIP_VISIBLE_DEVICES", "GPU-4b2c1a9f8d3e6f7a", "fault", "is no form that it knows"),
        ("HIP_VISIBLE_DEVICES", "", "warning", "hides every GPU"),
        ("HIP_VISIBLE_DEVICES", "-1", "warning", "hides every GPU"),
        ("GPU_DEVICE_ORDINAL", "0,", "fault", "an empty item"),
    ],
)
def test_check_hidden__by_amds_runtimes(name: str, text: str, level: str, what: str) -> None:
    """Numbers in each; UUIDs in ROCR's only."""
    (found,) = check_hidden(machine("mi300x", **{name: text}))

    assert (found.level, found.where, found.backends) == (level, f"{name}={text}", ("rocm",))
    assert what in found.what
    assert list(check_hidden(machine("h100", **{name: text}))) == []


@pytest.mark.parametrize("text", ["", "void", "none"])
def test_check_hidden__by_a_container(text: str) -> None:
    """NVIDIA's runtime gave it none; `all`, and a list, are as they should be."""
    (found,) = check_hidden(machine("h100", NVIDIA_VISIBLE_DEVICES=text))

    assert found.level == "fault"
    assert "--gpus all" in found.remedy
    assert list(check_hidden(machine("h100", NVIDIA_VISIBLE_DEVICES="all"))) == []
    assert list(check_hidden(machine("mi300x", NVIDIA_VISIBLE_DEVICES=text))) == []
