# SPDX-License-Identifier: Apache-2.0
"""Device nodes that a user may not open; the nodes here are plain files, fakes with a mode and a group."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dpfedge.doctor.nodes import check_nodes, nodes
from dpfedge.doctor.surroundings import Surroundings, User
from dpfedge.hardware.source.root import Root

from .conftest import SOMEBODY


def fake(root: Path, path: str, mode: int) -> None:
    """A node below a made-up root."""
    place = root / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.touch()
    place.chmod(mode)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root whose table of groups calls ours `render`."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/group").write_text(f"daemon:x:1:\nrender:x:{os.getgid()}:\n")
    return tmp_path


@pytest.mark.parametrize(
    ("path", "backends"),
    [
        ("dev/mali0", ("opencl",)),
        ("dev/kfd", ("rocm",)),
        ("dev/dri/renderD128", ("opencl", "rocm")),
        ("dev/nvidia0", ("cuda",)),
        ("dev/nvmap", ("jetson",)),
    ],
)
def test_check_nodes__names_the_group(root: Path, path: str, backends: tuple[str, ...]) -> None:
    """Whoever is in it may open the node; others are told its name, and how to join."""
    fake(root, path, 0o660)

    (found,) = check_nodes(Surroundings(Root(root), user=SOMEBODY))
    assert (found.where, found.level, found.backends) == (f"/{path}", "fault", backends)
    assert found.what == "may not be opened by this user: mode 0660, group render"
    assert found.remedy == 'sudo usermod -aG render "$USER", then log in anew'
    member = User(12345, frozenset({os.getgid()}))
    assert list(check_nodes(Surroundings(Root(root), user=member))) == []


def test_check_nodes__of_no_group(root: Path) -> None:
    """A node for its owner only needs a rule; its owner and root may open it."""
    fake(root, "dev/mali0", 0o600)

    (found,) = check_nodes(Surroundings(Root(root), user=SOMEBODY))
    assert 'KERNEL=="mali0"' in found.remedy
    for user in (User(os.getuid(), frozenset()), User(0, frozenset())):
        assert list(check_nodes(Surroundings(Root(root), user=user))) == []


def test_nodes__that_are_none_of_ours(root: Path) -> None:
    """Terminals and disks are not looked at; a group without a name keeps its number."""
    for path in ("dev/tty0", "dev/sda", "dev/dri/card0", "dev/nvidia-modeset"):
        fake(root, path, 0o600)
    (root / "etc/group").write_text("")
    fake(root, "dev/kfd", 0o666)

    (found,) = nodes(Root(root))
    assert found.path == "/dev/kfd"
    assert found.group == f"with number {os.getgid()}"
    assert found.open_to(SOMEBODY)


def test_nodes__with_a_table_of_groups_that_is_no_table(tmp_path: Path) -> None:
    """Numbers without end are none; the group is told by its number."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/group").write_bytes(b"a:x:" + b"9" * 5000 + b":\n\xff:x:-1:\nb\n")
    fake(tmp_path, "dev/kfd", 0o660)

    (node,) = nodes(Root(tmp_path))
    assert node.group == f"with number {os.getgid()}"
