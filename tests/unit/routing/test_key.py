# SPDX-License-Identifier: Apache-2.0
"""Keys: golden vectors, bounds, and that no two sessions share one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from dpfedge import _core
from dpfedge.errors import UsageError
from dpfedge.routing.key import KEY_SEED, bits_for, encode, hash_key, mark_of, slot_of

ROOT = Path(__file__).parents[3]
IDS = st.binary(max_size=120)
TIMES = st.integers(0, (1 << 64) - 1)


def test_hash_key__golden(golden_keys: list[tuple[bytes, bytes, int, int]]) -> None:
    """Every vector of the document; text and its bytes are one id."""
    for model, user, ts_ms, hash in golden_keys:
        assert f"{hash_key(model, user, ts_ms):016x}" == f"{hash:016x}"
    assert hash_key("modèle-é", "用户-42", 1735689600000) == 0x43F43800DD2E4E80


def test_vectors__are_the_same_in_c(document: str) -> None:
    """The C header of the vectors has every hash, digest and cost of the document, and no other."""
    header = (ROOT / "firmware_bridge/tests/route_golden.h").read_text()
    sections = document[document.index("## 5.") : document.index("## 7.")]
    here = set(re.findall(r"(?:\b|0x)([0-9a-f]{16})\b", sections))
    there = set(re.findall(r"0x([0-9a-f]{16})\b", header))
    assert there == here


def test_encode__golden() -> None:
    """Lengths as u16, time as u64, lowest byte first."""
    assert (
        encode("llama-3-8b", "alice", 1735689600000).hex() == "0a006c6c616d612d332d38620500616c696365007c291f94010000"
    )
    assert encode("", "", 0) == bytes(12)


@given(IDS, IDS, TIMES)
def test_encode__as_specified(model: bytes, user: bytes, ts_ms: int) -> None:
    """The layout of section 1, and its hash by another XXH64."""
    key = (
        len(model).to_bytes(2, "little") + model + len(user).to_bytes(2, "little") + user + ts_ms.to_bytes(8, "little")
    )
    assert encode(model, user, ts_ms) == key
    assert hash_key(model, user, ts_ms) == xxhash.xxh64_intdigest(key, KEY_SEED)


@given(st.binary(max_size=300), st.integers(0, (1 << 64) - 1))
def test_xxh64__is_xxh64(data: bytes, seed: int) -> None:
    """Any length, any seed."""
    assert _core.xxh64(data, seed) == xxhash.xxh64_intdigest(data, seed)


def test_hash_key__secret_seed() -> None:
    """Another seed is another hash."""
    assert hash_key("m", "u", 1, 7) != hash_key("m", "u", 1)
    assert hash_key("m", "u", 1, KEY_SEED) == hash_key("m", "u", 1)


@pytest.mark.parametrize(
    ("model", "user", "where"), [("m" * 121, "u", "model"), ("m", b"u" * 121, "user"), ("m", "é" * 61, "user")]
)
def test_encode__refuses_long_ids(model: str | bytes, user: str | bytes, where: str) -> None:
    """121 bytes are refused by name, never cut; 120 are not."""
    with pytest.raises(UsageError, match="the id is too long") as caught:
        encode(model, user, 0)
    assert (caught.value.where, caught.value.allowed) == (where, "0..120 bytes")
    encode("m" * 120, "é" * 60, 0)


def test_encode__takes_any_bytes() -> None:
    """NUL and what is no UTF-8 are bytes like any other."""
    assert encode(b"\0\xff", "a\0b", 0)[:9] == b"\2\0\0\xff\3\0a\0b"


def test_encode__refuses_text_that_is_none() -> None:
    """Half a surrogate pair cannot be written down."""
    with pytest.raises(UsageError, match="cannot be written as UTF-8"):
        encode("\ud800", "u", 0)


@pytest.mark.parametrize("ts_ms", [-1, 1 << 64, 1 << 200])
def test_encode__refuses_impossible_times(ts_ms: int) -> None:
    """64 bits without a sign; 1970 is a time."""
    with pytest.raises(UsageError, match="ts_ms"):
        encode("m", "u", ts_ms)
    encode("m", "u", 0)


def test_encode__refuses_other_types() -> None:
    """No id is made of something else."""
    with pytest.raises(TypeError, match="user: str or bytes"):
        encode("m", 7, 0)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        _core.route_key("m", "u")  # type: ignore[call-arg]


def test_slot_of__is_the_top_of_the_hash() -> None:
    """And the mark keeps it."""
    assert slot_of(0xF20EF91535A05037) == 0xF20E
    assert slot_of(0xF20EF91535A05037, 20) == 0xF20EF
    assert mark_of(0xF20EF91400000000) == 0xF20EF915
    assert mark_of(0) == 1
    with pytest.raises(UsageError, match="64 bits"):
        slot_of(1 << 64)


@pytest.mark.parametrize(
    ("instances", "bits"),
    [(0, 16), (1, 16), (8, 16), (9, 17), (64, 19), (65, 20), (128, 20), (129, 21), (256, 21), (257, 22), (65535, 22)],
)
def test_bits_for__a_number_of_instances(instances: int, bits: int) -> None:
    """One bit for each time that they double."""
    assert bits_for(instances) == bits
