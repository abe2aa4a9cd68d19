# SPDX-License-Identifier: Apache-2.0
"""Addresses as the kernel's maps hold them: `A.B.C.D:PORT` and `[IPv6]:PORT` in, bytes in network order out.

Host names are not looked up: an instance without a number is not reached through the kernel.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from dpfedge.errors import UsageError

__all__ = ["Address", "Service"]

_V4 = re.compile(r"(\d{1,3}(?:\.\d{1,3}){3}):(\d{1,5})", re.ASCII)
_V6 = re.compile(r"\[([0-9A-Fa-f:.]+)\]:(\d{1,5})", re.ASCII)
_MAPPED = bytes(10) + b"\xff\xff"


@dataclass(frozen=True, slots=True)
class Address:
    """An IP address and a port."""

    ip: bytes
    """4 or 16 bytes."""
    port: int

    @classmethod
    def of(cls, text: str) -> Address | None:
        """The address in a text; None when it is none."""
        match = _V4.fullmatch(text) or _V6.fullmatch(text)
        if match is None or not 0 < int(match[2]) < 1 << 16:
            return None
        try:
            return cls(ipaddress.ip_address(match[1]).packed, int(match[2]))
        except ValueError:
            return None

    @classmethod
    def parse(cls, text: str, where: str) -> Address:
        """The address in a text; UsageError when it is none."""
        found = cls.of(text)
        if found is None:
            raise UsageError("no address", where=where, found=repr(text), allowed="A.B.C.D:PORT or [IPv6]:PORT")
        return found

    @property
    def is_v4(self) -> bool:
        """Whether it is of IPv4."""
        return len(self.ip) == 4

    @property
    def host(self) -> str:
        """The IP address as text, as a socket takes it."""
        return str(ipaddress.ip_address(self.ip))

    @property
    def known(self) -> bytes:
        """`rh_address`: 16 bytes of IPv6, IPv4 as ::ffff:a.b.c.d; port; 0."""
        return (_MAPPED + self.ip if self.is_v4 else self.ip) + self.port.to_bytes(2) + bytes(2)

    def listening(self, protocol: int) -> bytes:
        """`rh_address` of a socket that serves it; `protocol` is IPPROTO_TCP or IPPROTO_UDP."""
        return self.known[:18] + protocol.to_bytes(2, "little")

    @property
    def instance(self) -> bytes:
        """`rh_instance`: 4 bytes of IPv4, port, 0; zeros for IPv6."""
        return self.ip + self.port.to_bytes(2) + bytes(2) if self.is_v4 else bytes(8)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}" if self.is_v4 else f"[{self.host}]:{self.port}"


@dataclass(frozen=True, slots=True)
class Service:
    """What clients connect to: an IPv4 address, an IPv6 one, or both; nobody needs to have it."""

    v4: Address | None = None
    v6: Address | None = None

    @classmethod
    def parse(cls, texts: list[str], where: str) -> Service:
        """One or two addresses, at most one of a family."""
        found = [Address.parse(text, where) for text in texts]
        v4, v6 = [one for one in found if one.is_v4], [one for one in found if not one.is_v4]
        if not found or len(v4) > 1 or len(v6) > 1:
            raise UsageError(
                "a service has an address of IPv4, of IPv6, or both", where=where, found=", ".join(texts) or "none"
            )
        return cls(v4[0] if v4 else None, v6[0] if v6 else None)

    def settings(self, key_seed: int, short_cut: bool) -> bytes:
        """`rh_settings`."""
        v4, v6 = self.v4 or Address(bytes(4), 0), self.v6 or Address(bytes(16), 0)
        ports = v4.port.to_bytes(2) + v6.port.to_bytes(2)
        return key_seed.to_bytes(8, "little") + v4.ip + ports + v6.ip + short_cut.to_bytes(4, "little") + bytes(4)

    def __str__(self) -> str:
        return " and ".join(str(one) for one in (self.v4, self.v6) if one is not None)
