# SPDX-License-Identifier: Apache-2.0
"""Builds of onnxruntime: who owns the folder, and for which GPUs there are kernels; distributions here are fakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpfedge.doctor.wheels import OWNED, check_doubles, check_kernels, check_metadata, wheels

from .conftest import CUBIN, Install, container, machine

CUDA13 = ("nvidia-cuda-runtime~=13.0; extra == 'cuda'",)


def test_wheels__that_own_the_folder(install: Install) -> None:
    """A plugin for onnxruntime lies beside it and owns nothing; the CUDA it was built for is in the metadata."""
    install("onnxruntime-qnn", "2.7.0", files=["onnxruntime_qnn/__init__.py"])
    install("onnxruntime-gpu", "1.31.1", requires=CUDA13)
    install("onnxruntime_training", "1.19", requires=["nvidia-cuda-runtime-cu12"])
    folder = install("numpy", "2.4.6", files=["numpy/__init__.py"])

    found = {wheel.title: wheel.cuda for wheel in wheels(machine("h100", folder))}

    assert found == {"onnxruntime-gpu 1.31.1": 13, "onnxruntime-training 1.19": 12}


def test_check_doubles__names_both(install: Install) -> None:
    """And how to get out of it; one alone is well."""
    folder = install("onnxruntime", "1.32.0")
    assert list(check_doubles(machine("h100", folder))) == []
    install("onnxruntime-gpu", "1.31.1")

    (found,) = check_doubles(machine("h100", folder))

    assert found.level == "fault"
    assert found.what == "2 distributions own its folder: onnxruntime 1.32.0, onnxruntime-gpu 1.31.1"
    assert "pip uninstall -y onnxruntime onnxruntime-gpu" in found.remedy


@pytest.mark.parametrize(("name", "fault"), [("h100", None), ("orin-agx", "sm_87"), ("thor", "sm_110")])
def test_check_kernels__for_the_gpu_that_is_here(install: Install, name: str, fault: str | None) -> None:
    """The build for Arm servers has nothing for Orin and Thor, and nothing that could be compiled for them."""
    library = "onnxruntime/capi/libonnxruntime_providers_cuda.so"
    folder = install("onnxruntime-gpu", "1.31.1", files=[OWNED, library])
    Path(folder, library).write_bytes(container(*((CUBIN, code) for code in (89, 90, 120, 121))))

    found = list(check_kernels(machine(name, folder)))

    assert [(one.level, one.what) for one in found] == (
        [("fault", f"it has no kernels for {fault} (only sm_89, sm_90, sm_120, sm_121, and no PTX)")] if fault else []
    )


def test_check_kernels__of_a_cpu_build(install: Install) -> None:
    """It promises no GPU."""
    assert list(check_kernels(machine("h100", install("onnxruntime", "1.32.0")))) == []


@pytest.mark.parametrize(
    ("file", "data", "what"),
    [
        ("METADATA", b"Name: onnx\xff\xferuntime\n", "it is no UTF-8: invalid start byte at byte 10"),
        ("RECORD", b"\xff\xfe\0,,\n", "it is no UTF-8"),
        ("METADATA", b"", "there is no name in it"),
    ],
)
def test_check_metadata__that_cannot_be_read(install: Install, file: str, data: bytes, what: str) -> None:
    """It is named, keeps no other check from its work, and counts as not installed."""
    folder = install("onnxruntime", "1.0")
    assert list(check_metadata(machine("h100", folder))) == []
    (info,) = Path(folder).glob("*.dist-info")
    (info / file).write_bytes(data)

    (found,) = check_metadata(machine("h100", folder))
    assert str(info) in found.where
    assert what in found.what
    assert wheels(machine("h100", folder)) == ()


def test_wheels__of_a_cuda_that_is_no_number(install: Install) -> None:
    """Its metadata tells no version then."""
    folder = install("onnxruntime-gpu", "1.0", requires=[f"nvidia-cuda-runtime-cu{'9' * 5000}"])

    assert [one.cuda for one in wheels(machine("h100", folder))] == [None]
