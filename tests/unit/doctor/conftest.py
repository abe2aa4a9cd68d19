# SPDX-License-Identifier: Apache-2.0
"""Made-up installations: fake distributions, which hold metadata and no code, and roots with fake device nodes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dpfedge.doctor.surroundings import Surroundings, User
from dpfedge.doctor.wheels import OWNED
from dpfedge.hardware.source.root import Root

MACHINES = Path(__file__).parents[2] / "fixtures" / "machines"
SOMEBODY = User(12345, frozenset({12345}))
Install = Callable[..., str]
CUBIN = 2


def container(*entries: tuple[int, int]) -> bytes:
    """What a library with GPU code holds: one container with (kind, compute capability) entries."""
    body = b"".join(
        struct.pack("<HHIQ12xI", kind, 0x101, 64, 24, arch).ljust(64, b"\0") + bytes(24) for kind, arch in entries
    )
    return struct.pack("<4sHHQ", b"\x50\xed\x55\xba", 1, 16, len(body)) + body


@pytest.fixture
def install(tmp_path: Path) -> Install:
    """A function that lays a fake distribution's metadata into a folder of packages, and returns that folder."""

    def _install(name: str, version: str, *, requires: Sequence[str] = (), files: Sequence[str] = (OWNED,)) -> str:
        folder = tmp_path / "fake-packages"
        info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        lines = [f"Requires-Dist: {line}" for line in requires]
        head = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *lines, "", ""]
        (info / "METADATA").write_text("\n".join(head))
        (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))
        for file in files:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).touch()
        return str(folder)

    return _install


def machine(name: str, *packages: str, **environ: str) -> Surroundings:
    """A recorded machine with packages and an environment, for somebody without rights."""
    return Surroundings(Root(MACHINES / name), environ, tuple(dict.fromkeys(packages)), SOMEBODY)
