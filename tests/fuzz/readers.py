# SPDX-License-Identifier: Apache-2.0
"""The two readers of a package behind one question: the bytes of a file in, the refusal out, in words both share.

The C reader is the one inside `dpfedge._core`, or the shared object that DPF_READER names (one with sanitizers, say).
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import re
from typing import NamedTuple

import dpfedge._core
from dpfedge.errors import PackageError
from dpfedge.package import open_package
from dpfedge.package.layout import Header, align, pack_header
from dpfedge.package.verify import check_manifest

__all__ = [
    "Verdict",
    "ask_c",
    "ask_c_manifest",
    "ask_python",
    "ask_python_manifest",
    "disagreement",
    "header_of",
    "wrap",
]

_PACKAGE_BYTES = 1 << 16  # more than sizeof(dpf_package)


class Verdict(NamedTuple):
    """Why a file was refused: the rule's text and the place; both are empty for a file that was accepted."""

    rule: str
    where: str
    allowed: int = 0


ACCEPTED = Verdict("", "")


class _Refusal(ctypes.Structure):
    _fields_ = (
        ("rule", ctypes.c_int), ("missing", ctypes.c_bool), ("byte", ctypes.c_uint64), ("field", ctypes.c_char_p),
        ("found", ctypes.c_uint64), ("allowed", ctypes.c_uint64),
    )  # fmt: skip


class _Header(ctypes.Structure):
    _fields_ = (
        ("numbers", ctypes.c_uint64 * 5), ("header_bytes", ctypes.c_uint32), ("major", ctypes.c_uint16),
        ("minor", ctypes.c_uint16), ("manifest_sha256", ctypes.c_ubyte * 32),
    )  # fmt: skip


@functools.cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(os.environ.get("DPF_READER") or dpfedge._core.__file__)
    package, refusal, size = ctypes.c_char_p, ctypes.POINTER(_Refusal), ctypes.c_uint64
    library.dpf_package_open.argtypes = (ctypes.c_char_p, size, package, refusal)
    library.dpf_package_read_manifest.argtypes = (ctypes.POINTER(_Header), ctypes.c_char_p, package, refusal)
    library.dpf_package_check.argtypes = (package, ctypes.c_char_p, refusal)
    library.dpf_package_where.argtypes = (package, refusal, ctypes.c_char_p, size)
    library.dpf_package_where.restype = size
    library.dpf_package_rule_text.restype = ctypes.c_char_p
    return library


def header_of(manifest: bytes, *, sections_end: int = 0) -> Header:
    """A header that fits `manifest`, as a forger would make it."""
    start = align(max(sections_end, 128), 64)
    end = align(start + len(manifest), 64)
    return Header(end, start, len(manifest), hashlib.sha256(manifest).digest(), end, 0)


def wrap(manifest: bytes, *, sections_end: int = 0) -> bytes:
    """A file with this manifest and a header that fits; sections, if any, are zero bytes."""
    header = header_of(manifest, sections_end=sections_end)
    padding = header.file_bytes - header.manifest_offset - len(manifest)
    return pack_header(header) + bytes(header.manifest_offset - 128) + manifest + bytes(padding)


_package = ctypes.create_string_buffer(_PACKAGE_BYTES)
_text = ctypes.create_string_buffer(1 << 14)


def ask_c(data: bytes, *, full: bool = False) -> Verdict:
    """What the C reader says of a file with these bytes."""
    library, refusal = _library(), _Refusal()
    rule = library.dpf_package_open(data, len(data), _package, ctypes.byref(refusal))
    if not rule and full:
        rule = library.dpf_package_check(_package, data, ctypes.byref(refusal))
    return _verdict(rule, refusal)


def ask_c_manifest(manifest: bytes, header: Header) -> Verdict:
    """What the C reader says of a manifest behind a header that was accepted."""
    refusal, order = (
        _Refusal(),
        ("file_bytes", "manifest_offset", "manifest_bytes", "signature_offset", "signature_bytes"),
    )
    numbers = (ctypes.c_uint64 * 5)(*(getattr(header, name) for name in order))
    digest = (ctypes.c_ubyte * 32)(*header.manifest_sha256)
    given = _Header(numbers, header.header_bytes, header.major, header.minor, digest)
    rule = _library().dpf_package_read_manifest(ctypes.byref(given), manifest, _package, ctypes.byref(refusal))
    return _verdict(rule, refusal)


def _verdict(rule: int, refusal: _Refusal) -> Verdict:
    if not rule:
        return ACCEPTED
    _library().dpf_package_where(_package, ctypes.byref(refusal), _text, len(_text))
    return Verdict(_library().dpf_package_rule_text(rule).decode(), _text.value.decode(), refusal.allowed)


@functools.cache
def _memory_file() -> int:
    return os.memfd_create("package", os.MFD_CLOEXEC)


def ask_python(data: bytes, *, full: bool = False) -> Verdict:
    """What the Python reader says; any other error than its own refusals gets out."""
    fd = _memory_file()
    os.ftruncate(fd, 0)
    os.pwrite(fd, data, 0)
    place = f"/proc/self/fd/{fd}"
    try:
        open_package(place, check="full" if full else "fast").close()
    except PackageError as error:
        where = str(error.where).removeprefix(place).removeprefix(": ")
        return Verdict(error.what, where)
    return ACCEPTED


def ask_python_manifest(manifest: bytes, header: Header) -> Verdict:
    """What the Python reader says of a manifest behind a header that was accepted."""
    try:
        check_manifest(manifest, header, "m")
    except PackageError as error:
        return Verdict(error.what, str(error.where).removeprefix("m: "))
    return ACCEPTED


_WORDED = re.compile(r"expected .* bytes of header, have \d+|expected \d+ bytes, have \d+: ")


def disagreement(c: Verdict, python: Verdict) -> str:
    """In what the two differ; empty when they agree on rule and place."""
    worded = _WORDED.sub(lambda match: "" if match[0].endswith(": ") else "header is cut", python.rule)
    if worded != c.rule and (not c.rule or not worded.startswith(c.rule + " ")):
        return f"rule: C {c}, Python {python}"
    if c.where.startswith("manifest") and c.where != python.where:
        return f"place: C {c}, Python {python}"
    return ""
