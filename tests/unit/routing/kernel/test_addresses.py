# SPDX-License-Identifier: Apache-2.0
"""Addresses as the kernel's maps hold them."""

from __future__ import annotations

import socket

import pytest

from dpfedge.errors import UsageError
from dpfedge.routing.kernel.addresses import Address, Service


def test_address__of_either_family() -> None:
    """Text in, network order out; IPv4 is also an IPv6 address."""
    four, six = Address.parse("10.0.0.1:8000", "x"), Address.parse("[fd00::1]:80", "x")
    assert (four.ip, four.port, str(four), four.host) == (b"\x0a\0\0\1", 8000, "10.0.0.1:8000", "10.0.0.1")
    assert (len(six.ip), six.port, str(six), six.host) == (16, 80, "[fd00::1]:80", "fd00::1")
    assert four.known == bytes(10) + b"\xff\xff\x0a\0\0\1\x1f\x40\0\0"
    assert four.instance == b"\x0a\0\0\1\x1f\x40\0\0"
    assert six.instance == bytes(8)
    assert four.listening(socket.IPPROTO_TCP)[16:] == b"\x1f\x40\x06\0"


@pytest.mark.parametrize(
    "text",
    ["", "gpu0", "10.0.0.1", "10.0.0.1:0", "10.0.0.1:65536", "10.0.0.256:1", "fd00::1:80", "[::x]:1", "a:1"],
)  # fmt: skip
def test_address__is_none_where_it_is_none(text: str) -> None:
    """A name is not looked up."""
    assert Address.of(text) is None
    with pytest.raises(UsageError, match=r"service: no address"):
        Address.parse(text, "service")


def test_service__has_one_address_of_a_family() -> None:
    """One, or two of different families; its settings are the 48 bytes of rh_settings."""
    both = Service.parse(["[::1]:9", "127.0.0.1:8"], "x")
    assert str(both) == "127.0.0.1:8 and [::1]:9"
    assert both.settings(0x0102, True) == (
        b"\2\1" + bytes(6) + b"\x7f\0\0\1" + b"\0\x08\0\x09" + bytes(15) + b"\1" + b"\1\0\0\0" + bytes(4)
    )
    for texts in ([], ["1.2.3.4:5", "1.2.3.4:6"], ["[::1]:1", "[::2]:1"]):
        with pytest.raises(UsageError, match="IPv4, of IPv6, or both"):
            Service.parse(texts, "x")
