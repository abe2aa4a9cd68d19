# SPDX-License-Identifier: Apache-2.0
"""Health from sysfs and AMD SMI together."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from dpfedge_rocm.health import Watch
from dpfedge_rocm.smi import Smi, SmiMissing, SmiState

from dpfedge.backend.api import Health
from dpfedge.errors import Unavailable

ADDRESS = "0000:05:00.0"
FILES = {
    "gpu_busy_percent": "37\n", "mem_info_vram_total": "1000\n", "mem_info_vram_used": "250\n",
    "hwmon/hwmon7/temp2_label": "junction\n", "hwmon/hwmon7/temp2_input": "52000\n",
    "hwmon/hwmon7/temp2_crit": "100000\n", "ras/umc_err_count": "ue: 1\nce: 12\n",
}  # fmt: skip


class FakeSmi:
    """Tells what a test wants."""

    def __init__(self, state: SmiState | None, missing: bool = False) -> None:
        self.state, self.missing = state, missing

    def latest(self) -> SmiState:
        """The state, or as it does not answer."""
        if self.missing:
            raise SmiMissing("its library cannot be loaded", where="backend rocm: amdsmi")
        if self.state is None:
            raise Unavailable("the library does not answer", where="backend rocm: amdsmi")
        return self.state


def watch(root: Path, state: SmiState | None = None, *, smi: bool = True, **files: str) -> Watch:
    """A GPU with these files."""
    for name, text in {**FILES, **files}.items():
        path = root / "sys/bus/pci/devices" / ADDRESS / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Watch(ADDRESS, root, cast(Smi, FakeSmi(state)) if smi else None)


def test_health__of_the_files(tmp_path: Path) -> None:
    """They come first; AMD SMI adds what they lack."""
    assert watch(tmp_path, SmiState(0.9, False, 99, 99)).health() == Health(0.37, 0.75, 52.0, False, 12, 1)


@pytest.mark.parametrize(
    ("state", "files", "throttled"),
    [
        (SmiState(throttled=True), {}, True),
        (SmiState(throttled=None), {}, False),
        (SmiState(), {"hwmon/hwmon7/temp2_input": "100000\n"}, True),
    ],
)
def test_health__throttled(tmp_path: Path, state: SmiState, files: dict[str, str], throttled: bool) -> None:
    """As AMD SMI tells it, or a junction at its limit."""
    assert watch(tmp_path, state, **files).health().throttled is throttled


def test_health__of_a_part_without_a_load_file(tmp_path: Path) -> None:
    """A virtual function: AMD SMI's load, or none."""
    assert watch(tmp_path, SmiState(0.5), gpu_busy_percent="").health().utilisation == 0.5
    assert watch(tmp_path, SmiState(), gpu_busy_percent="N/A").health().utilisation == 0.0


def test_health__of_a_gpu_in_reset(tmp_path: Path) -> None:
    """Nothing told is not a healthy GPU."""
    with pytest.raises(Unavailable, match=r"GPU at 0000:05:00.0: the driver tells nothing of the GPU's memory"):
        watch(tmp_path, SmiState(), mem_info_vram_used="").health()


def test_health__when_amd_smi_hangs(tmp_path: Path) -> None:
    """It is installed and does not answer: an error, so that the router takes the GPU out."""
    with pytest.raises(Unavailable, match="does not answer"):
        watch(tmp_path, None).health()


def test_health__without_the_library_is_that_of_the_files(tmp_path: Path) -> None:
    """What an install lacks is told, and takes no GPU out."""
    looking = Watch(ADDRESS, watch(tmp_path, SmiState()) and tmp_path, cast(Smi, FakeSmi(None, missing=True)))

    assert looking.without == ""
    assert [looking.health() for _ in range(2)] == [Health(0.37, 0.75, 52.0, False, 12, 1)] * 2
    assert "its library cannot be loaded" in looking.without
