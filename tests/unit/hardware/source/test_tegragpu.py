# SPDX-License-Identifier: Apache-2.0
"""Load and clock of the GPU inside a Tegra, in each of the places kernels have put them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from dpfedge.hardware.source.root import Root
from dpfedge.hardware.source.tegragpu import find_gpu, read_clock, read_load


def lay(root: Path, **files: str) -> Root:
    """Files by their path."""
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return Root(root)


def read(root: Root) -> tuple[float | None, int | None]:
    """Load and clock."""
    places = find_gpu(root)
    return read_load(root, places), read_clock(root, places)


DEVICE = "sys/devices/platform/bus@0/17000000.gpu"


@pytest.mark.parametrize("entry", ["17000000.gpu", "17000000.ga10b"])
@pytest.mark.parametrize("node", ["gpu", "ga10b"])
def test_load__beside_the_devfreq_entry(tmp_path: Path, entry: str, node: str) -> None:
    """Found by the device tree's node, through the entry's link, whatever the entry and the address are called."""
    root = lay(tmp_path, **{
        f"{DEVICE}/load": "374\n", f"{DEVICE}/of_node/name": f"{node}\0",
        f"sys/class/devfreq/{entry}/cur_freq": "1300500000\n", "sys/class/devfreq/15340000.vic/cur_freq": "1\n",
    })  # fmt: skip
    (tmp_path / f"sys/class/devfreq/{entry}/device").symlink_to(f"/{DEVICE}")

    assert read(root) == (0.374, 1300500000)


@pytest.mark.parametrize("path", ["sys/devices/platform/17000000.gpu/load", f"{DEVICE}/load", "sys/devices/gpu.0/load"])
def test_load__without_devfreq(tmp_path: Path, path: str) -> None:
    """The known places, newest first."""
    assert read(lay(tmp_path, **{path: "1000\n"})) == (1.0, None)


def test_load__of_thor_is_in_no_file(tmp_path: Path) -> None:
    """Only the clock is; NVML has the load."""
    assert read(lay(tmp_path, **{"sys/class/devfreq/gpu-gpc-0/cur_freq": "1575000000\n"})) == (None, 1575000000)
    assert read(Root(tmp_path / "none")) == (None, None)


@pytest.mark.parametrize("text", ["", "N/A", "-1", "1001", "37%"])
def test_load__that_is_none(tmp_path: Path, text: str) -> None:
    """What is no share of a thousand is not known, and not 0."""
    assert read(lay(tmp_path, **{"sys/devices/gpu.0/load": text}))[0] is None


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.EINVAL])
def test_load__while_it_is_gated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """A railgated GPU answers with an error: the load is not known."""
    root = lay(tmp_path, **{"sys/devices/gpu.0/load": "5"})
    places = find_gpu(root)

    def gated(descriptor: int, size: int) -> bytes:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "read", gated)
    assert read_load(root, places) is None
    assert list(root.unreadable.values()) == [os.strerror(number)]
