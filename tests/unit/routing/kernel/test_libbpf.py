# SPDX-License-Identifier: Apache-2.0
"""libbpf: what it cannot do is told as Unavailable, with what the kernel said."""

from __future__ import annotations

import ctypes
from typing import NoReturn

import pytest

from dpfedge.errors import Unavailable
from dpfedge.routing.kernel.attachment import load
from dpfedge.routing.kernel.libbpf import Loaded, Program, library, link
from tests.unit.routing.kernel.conftest import Attach

_OTHERS = (
    "rh_option", "rh_connect6", "rh_sendmsg4", "rh_sendmsg6", "rh_recvmsg4", "rh_recvmsg6", "rh_established",
    "rh_message", "rh_receive",
)  # fmt: skip


@pytest.fixture
def _here() -> None:
    try:
        library()
    except Unavailable as error:
        pytest.skip(str(error))


def test_library__that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says which package has it."""

    def nothing(name: str, **how: object) -> NoReturn:
        raise OSError(f"{name}: no such file")

    monkeypatch.setattr(ctypes, "CDLL", nothing)
    with pytest.raises(Unavailable, match=r"libbpf is not installed.*install libbpf1"):
        library.__wrapped__()


@pytest.mark.usefixtures("_here")
@pytest.mark.parametrize("data", [b"", b"no object", b"\x7fELF" + bytes(100)])
def test_object__that_is_none(data: bytes) -> None:
    """Hostile bytes are refused by the library."""
    with pytest.raises(Unavailable, match="cannot be read"):
        Loaded(data, [])


def test_object__without_the_program(attach: Attach) -> None:
    """An object of another version."""
    with pytest.raises(Unavailable, match=r"no such program; found rh_other"):
        Loaded(_object(), [Program("rh_other", 18, 10)])


def _object() -> bytes:
    from dpfedge.routing.kernel.support import object_bytes

    return object_bytes("route")


def test_object__with_larger_values_and_other_constants(attach: Attach) -> None:
    """They are set before it is loaded; a map or a section that is not there is told, a size that does not fit too."""
    with Loaded(
        _object(), [Program("rh_connect4", 18, 10)], _OTHERS, value_sizes={"rh_table": 1 << 18},
        constants={".rodata.rh_shift": (47).to_bytes(4, "little")},
    ) as one:  # fmt: skip
        assert one.get("rh_table", bytes(4), 1 << 18) == bytes(1 << 18)
        assert one.get(".rodata.rh_shift", bytes(4), 4) == (47).to_bytes(4, "little")
    with pytest.raises(Unavailable, match=r"no such map; found rh_other"):
        Loaded(_object(), [], _OTHERS, value_sizes={"rh_other": 8})
    with pytest.raises(OSError, match="Invalid argument"):
        Loaded(_object(), [], _OTHERS, constants={".rodata.rh_shift": bytes(5)})


def test_maps__put_get_drop(attach: Attach) -> None:
    """Elements by key; a key that is not there is None; a map that is not there is told."""
    with load(short_cut=False, receive=False) as one:
        assert one.get("rh_known", bytes(20), 4) is None
        one.put("rh_known", bytes(20), b"abcd")
        assert one.get("rh_known", bytes(20), 4) == b"abcd"
        assert one.keys("rh_known", 20, 10) == [bytes(20)]
        one.drop("rh_known", bytes(20))
        one.drop("rh_known", bytes(20))
        assert one.keys("rh_known", 20, 10) == []
        with pytest.raises(Unavailable, match="no such map"):
            one.map("rh_other")
    one.close()
    with pytest.raises(Unavailable, match="is closed"):
        one.map("rh_known")


def test_link__to_what_is_no_cgroup(attach: Attach) -> None:
    """The kernel's word for it is told."""
    with load(short_cut=False, receive=False) as one, pytest.raises(Unavailable, match="connect4 cannot be attached"):
        link(one.program("rh_connect4"), 0, 10, "connect4")
