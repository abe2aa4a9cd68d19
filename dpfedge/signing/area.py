# SPDX-License-Identifier: Apache-2.0
"""The signature area: COSE_Sign1 messages (RFC 9052) with a detached payload, to bytes and from hostile bytes.

FORMAT.md fixes every byte but key id and signature, so reading is comparing: there is no second way to write the same
signatures. Whether a signature is right, and whose it is, others say.
"""

from __future__ import annotations

from collections.abc import Iterable

from dpfedge import limits
from dpfedge.package import cbor
from dpfedge.package.fields import Node
from dpfedge.records import dataclass
from dpfedge.signing.keys import KEY_ID_BYTES

__all__ = ["CONTEXT", "SIGNATURE_BYTES", "Signature", "message", "pack_area", "read_area"]

CONTEXT = b"dpfedge.dpfbin.manifest.v1"
"""The external_aad of every signature: it is good for nothing but a manifest."""

SIGNATURE_BYTES = 64
_ALGORITHM = bytes.fromhex("a20127")  # a map of two, alg (1): EdDSA (-8)
_KEY_ID = bytes.fromhex("0450")  # kid (4): 16 bytes


@dataclass(frozen=True, slots=True)
class Signature:
    """One signature of a manifest."""

    key_id: bytes
    """`PublicKey.id` of who claims to have signed."""
    value: bytes


def message(key_id: bytes, manifest: bytes) -> bytes:
    """What a key signs: the Sig_structure of its protected header, the context and the manifest."""
    return cbor.encode(["Signature1", _protected(key_id), CONTEXT, manifest])


def pack_area(signatures: Iterable[Signature]) -> bytes:
    """The area, in ascending order of key ids; empty for no signatures. At most `SIGNATURES_MAX`, one of each key."""
    ordered = sorted(signatures, key=lambda one: one.key_id)
    if not ordered:
        return b""
    data = cbor.encode([[_protected(one.key_id), {}, None, one.value] for one in ordered])
    read_area(data, "signature area to be written")
    return data


def read_area(data: bytes, where: str, *, newer: bool = False) -> tuple[Signature, ...]:
    """The signatures in the bytes of an area; FormatError names what is wrong with it.

    `newer`: the package is of a later minor version; its unknown algorithms are passed over.
    """
    if not data:
        return ()
    root = Node(cbor.decode(data, where), where)
    elements = root.items(limits.SIGNATURES_MAX)
    if not elements:
        raise root.error("no signatures in it", allowed="an area of 0 bytes, for none")
    signatures = tuple(one for element in elements if (one := _read(element, newer)) is not None)
    for index in range(1, len(signatures)):
        before, key = signatures[index - 1].key_id, signatures[index].key_id
        if key <= before:
            what = "two signatures by one key" if key == before else "signatures are not in the order of their keys"
            raise elements[index].error(what, found=key.hex())
    return signatures


def _read(element: Node, newer: bool) -> Signature | None:
    parts = element.items(4)
    if len(parts) != 4:
        raise element.error("not a COSE_Sign1 message", found=f"{len(parts)} parts", allowed=4)
    protected, unprotected, payload, signature = parts
    head = protected.octets()
    if not head.startswith(_ALGORITHM):
        if newer:
            return None
        raise protected.error(
            "unknown signature algorithm", found=head[:8].hex(" ") or "nothing", allowed="EdDSA (-8), then kid"
        )
    key_id = head[len(_ALGORITHM + _KEY_ID) :]
    if not head.startswith(_ALGORITHM + _KEY_ID) or len(key_id) != KEY_ID_BYTES:
        raise protected.error("bad key id", found=head[len(_ALGORITHM) :][:24].hex(" "), allowed="kid (4) of 16 bytes")
    if unprotected.free():
        raise unprotected.error("unprotected header is not empty", found=f"{len(unprotected.free())} entries")
    if unprotected.absent():
        raise unprotected.error("unprotected header is missing", allowed="an empty map")
    if not payload.absent():
        raise payload.error("payload is not detached", allowed="null: the payload is the manifest")
    return Signature(key_id, signature.digest(SIGNATURE_BYTES))


def _protected(key_id: bytes) -> bytes:
    return _ALGORITHM + _KEY_ID + key_id
