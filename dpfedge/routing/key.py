# SPDX-License-Identifier: Apache-2.0
"""The key of a session: model, user and start time in, bytes, hash and table slot out; all of it is C.

It knows no table. `ROUTING.md` is normative; ids are bytes as given, text is UTF-8, nothing is normalised or cut.
"""

from __future__ import annotations

from dpfedge import _core
from dpfedge.errors import UsageError

__all__ = ["BITS", "BITS_MAX", "FIELD_MAX_BYTES", "KEY_SEED", "bits_for", "encode", "hash_key", "mark_of", "slot_of"]

KEY_SEED = 0x3159454B54554F52
"""The bytes "ROUTKEY1". A deployment may use a secret one, so that no client can aim at a table slot."""
FIELD_MAX_BYTES = 120
BITS = 16
"""Bits of a table slot's number, unless said."""
BITS_MAX = 22

_BITS_MORE = 13  # table slots of each instance: shares then differ from the mean by 1.1 %, and hardly one by 5 %

_HASH_BITS = 64


def encode(model: str | bytes, user: str | bytes, ts_ms: int) -> bytes:
    """The key: 12 to 252 bytes, different for different sessions.

    `ts_ms` is when the session began, in milliseconds since 1970 UTC, 0 to 2**64 - 1. UsageError names the field that
    is longer than 120 bytes, is no UTF-8, or is out of range.
    """
    return _core.route_key(model, user, ts_ms)


def hash_key(model: str | bytes, user: str | bytes, ts_ms: int, key_seed: int = KEY_SEED) -> int:
    """XXH64 of the key; UsageError as for `encode`."""
    return _core.route_hash(model, user, ts_ms, key_seed)


def slot_of(hash: int, bits: int = BITS) -> int:
    """The table slot of a hash in a table of 2**bits slots."""
    if not 0 <= hash < 1 << _HASH_BITS:
        raise UsageError("a hash has 64 bits", where="hash", found=hash)
    return hash >> (_HASH_BITS - bits)


def bits_for(instances: int) -> int:
    """The bits of a table in which none of so many instances has over 1.05 of the mean share.

    16 up to 8 instances, one more each time that they double, 22 at most. A table of other bits is another one, by
    which nearly every session moves: a fleet that will grow begins with the bits for what it grows to.
    """
    return min(BITS_MAX, max(BITS, _BITS_MORE + max(0, instances - 1).bit_length()))


def mark_of(hash: int) -> int:
    """The short form for channels of 32 bits (SO_MARK): never 0, of the same table slot."""
    return hash >> 32 | 1
