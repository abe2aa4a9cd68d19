# SPDX-License-Identifier: Apache-2.0
"""The C reader and the Python reader accept and refuse the same packages, for the same rule at the same place."""

from __future__ import annotations

import hashlib
import random
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import cases
import pytest
import readers
import target
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfedge import limits
from dpfedge.package.layout import unpack_header

ROOT = Path(__file__).parents[1]
CORPUS = ROOT / "fuzz" / "corpus" / "package"
GOLDEN = ROOT / "golden" / "v1"
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.binary(max_size=40) | st.text(max_size=40)
    | st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(["x", "weights", "graph", "f32", "llm"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=20), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


def both(manifest: bytes, *, sections_end: int = 0) -> readers.Verdict:
    """The verdict both readers share."""
    header = readers.header_of(manifest, sections_end=sections_end)
    c, python = readers.ask_c_manifest(manifest, header), readers.ask_python_manifest(manifest, header)
    assert readers.disagreement(c, python) == "", manifest.hex()
    return c


def whole(**changes: Any) -> bytes:
    """The manifest that uses every field, with other values under some of its keys."""
    return cases.encode({**cases.WHOLE, **changes})


def section(**changes: Any) -> dict[str, Any]:
    """A section of the manifest, changed."""
    return {**cases.WHOLE["sections"][1], **changes}


def with_section(**changes: Any) -> bytes:
    """The manifest with its second section changed."""
    first, _, *rest = cases.WHOLE["sections"]
    return whole(sections=[first, section(**changes), *rest])


MANY_TENSORS = {**cases.WHOLE["golden"][1], "inputs": {f"p{i}": cases.values() for i in range(1024)}}
BY_NAME: list[tuple[str, bytes, str, str]] = [
    ("duplicate_keys", b"\xa2\x61a\x00\x61a\x01", "duplicate key", "manifest byte 4"),
    ("unsorted_keys", b"\xa2\x61b\x00\x61a\x01", "keys are not sorted", "manifest byte 4"),
    ("nan", b"\xa1\x61a\xf9\x7e\x00", "number is not finite", "manifest byte 3"),
    ("nan_double", b"\xfb\x7f\xf8\x00\x00\x00\x00\x00\x01", "number is not finite", "manifest byte 0"),
    ("infinite", b"\xf9\xfc\x00", "number is not finite", "manifest byte 0"),
    ("indefinite_map", b"\xbf\x61a\x00\xff", "indefinite length", "manifest byte 0"),
    ("indefinite_array", b"\xa1\x61a\x9f\xff", "indefinite length", "manifest byte 3"),
    ("indefinite_text", b"\x7f\x61a\xff", "indefinite length", "manifest byte 0"),
    ("shared_value", b"\xd8\x1c\x81\xd8\x1d\x00", "tag or shared reference", "manifest byte 0"),
    ("self_reference", b"\x82\x80\xd8\x1d\x00", "tag or shared reference", "manifest byte 2"),
    ("big_number", b"\xc2\x41\x01", "tag or shared reference", "manifest byte 0"),
    ("deep_arrays", b"\x81" * 100_000 + b"\x00", "nested too deep", "manifest byte 16"),
    ("deep_maps", b"\xa1\x61a" * 50_000 + b"\x00", "nested too deep", "manifest byte 48"),
    ("absurd_array", b"\x9b\x7f\xff\xff\xff\xff\xff\xff\xff", "count is larger than the bytes left", "manifest byte 0"),
    ("absurd_map", b"\xbb\x80\x00\x00\x00\x00\x00\x00\x00", "count is larger than the bytes left", "manifest byte 0"),
    ("absurd_text", b"\x7b\x00\x00\x00\xff\xff\xff\xff\xff", "value is cut", "manifest byte 0"),
    ("absurd_items", b"\x9a\x00\x10\x00\x00" + bytes(1 << 20), "too many items", "manifest byte 0"),
    ("overlap", with_section(offset=65536), "section overlaps", "manifest.sections[1].offset"),
    ("out_of_order", with_section(offset=0), "section overlaps", "manifest.sections[1].offset"),
    ("past_the_end", with_section(offset=1 << 37), "section ends behind the start of the manifest",
     "manifest.sections[1].size"),
    ("too_long", with_section(size=1 << 38), "section ends behind the start of the manifest",
     "manifest.sections[1].size"),
    ("beyond_all", with_section(offset=(1 << 63) - 1), "number out of range", "manifest.sections[1].offset"),
    ("negative", with_section(size=-1), "number out of range", "manifest.sections[1].size"),
    ("many_sections", whole(sections=[{}] * 4097), "too many elements", "manifest.sections"),
    ("many_targets", whole(targets=[{}] * 257), "too many elements", "manifest.targets"),
    ("many_models", whole(models={f"m{i}": {} for i in range(1025)}), "too many elements", "manifest.models"),
    ("many_tensors", whole(golden=[MANY_TENSORS] * 17), "too many tensors in all records", "manifest.golden"),
    ("many_records", whole(golden=[{}] * 1025), "too many elements", "manifest.golden"),
    ("escape", with_section(name="../graph"), "bad name", "manifest.sections[1].name"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("manifest", "rule", "where"), [case[1:] for case in BY_NAME], ids=[case[0] for case in BY_NAME]
)
def test_refused__by_name(manifest: bytes, rule: str, where: str) -> None:
    """What attackers try first is refused by both readers with its name and its place."""
    verdict = both(manifest, sections_end=cases.SECTIONS_END)

    assert (verdict.rule, verdict.where) == (rule, where)


def test_golden_files__accepted_by_both() -> None:
    """The files of version 1 pass the full check of both."""
    for path in sorted(GOLDEN.glob("*.dpfbin")):
        data = path.read_bytes()
        assert readers.ask_c(data, full=True) == readers.ask_python(data, full=True) == readers.ACCEPTED, path.name


def test_whole__accepted_by_both() -> None:
    """Changes of a manifest prove something only while the manifest itself is accepted, as are its parts."""
    assert both(whole(), sections_end=cases.SECTIONS_END) == readers.ACCEPTED
    for part in cases.parts():
        end = max((place["offset"] + place["size"] for place in part["sections"]), default=0)
        assert both(cases.encode(part), sections_end=end) == readers.ACCEPTED, sorted(part)


def test_models_of_several_targets__accepted_by_both() -> None:
    """A model for each target, none for a third, and a sidecar that names two devices: nothing new to a reader."""
    first, second = cases.WHOLE["targets"]
    split = [first, {**second, "models": {"vad": second["models"]["llm"]}}, {**second, "id": "none", "models": {}}]
    device = {"kind": "gpu.nvidia", "target2/target": "any", "target2/backend": "cpu", "target2/kind": "cpu.x86_64"}
    seal = {**cases.WHOLE["seal"], "device": device, "libraries": {"target2/onnxruntime": "1.32"}}

    assert both(whole(targets=split, seal=seal), sections_end=cases.SECTIONS_END) == readers.ACCEPTED


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 1 << 32))
def test_changed_values__same_verdict(seed: int) -> None:
    """A manifest of other values."""
    both(cases.encode(cases.change(random.Random(seed))), sections_end=cases.SECTIONS_END)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 1 << 32))
def test_damaged_bytes__same_verdict(seed: int) -> None:
    """A manifest of other bytes."""
    both(cases.damage(random.Random(seed), whole()), sections_end=cases.SECTIONS_END)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(cases.WHOLE)), VALUES)
def test_any_value__same_verdict(key: str, value: Any) -> None:
    """Any value at all under a key of the manifest."""
    both(whole(**{key: value}), sections_end=cases.SECTIONS_END)


PORTS = ["x", "y", "past"]


def some_ports(dice: random.Random) -> list[dict[str, Any]]:
    """Ports of a graph, of few kinds."""
    dims: list[list[Any]] = [[1, 3], [1, "n"], [2, 2], [], [1 << 30, 1 << 30]]
    chosen = dice.sample(PORTS, dice.randrange(4))
    return [{"name": name, "dtype": dice.choice(["f32", "i32"]), "dims": dice.choice(dims)} for name in chosen]


def some_values(dice: random.Random) -> dict[str, Any]:
    """Values for some of the ports, most of which fit."""
    chosen = dice.sample(PORTS, dice.choice([0, 1, 1, 2, 3]))
    sizes = [[1, 3], [1, 3], [2, 2], [], [3]]
    found = {}
    for name in chosen:
        dims = dice.choice(sizes)
        offset = dice.choice([0, 0, 0, 0, 4, 4, 4, 4, 96])
        found[name] = {"dtype": dice.choice(["f32", "f32", "i32"]), "dims": dims, "offset": offset, "size": 4}
        for size in dims:
            found[name]["size"] *= size
    return found


@settings(max_examples=600, deadline=None)
@given(st.integers(0, 1 << 32))
def test_golden_records__same_verdict(seed: int) -> None:
    """Several records about several graphs of several targets: both readers name the same one of the wrong ones."""
    dice = random.Random(seed)
    targets, records = [], []
    for name in ("a", "b", "c")[: dice.choice([1, 2, 3])]:
        graphs = {
            graph: {"section": "graph", "inputs": some_ports(dice), "outputs": some_ports(dice)}
            for graph in dice.sample(["step", "tail", "one"], dice.choice([1, 2, 3]))
        }
        models = {model: {"graphs": graphs} for model in dice.sample(["llm", "vad"], dice.choice([1, 2]))}
        targets.append({**cases.WHOLE["targets"][1], "id": name, "models": models})
    for _ in range(dice.choice([1, 1, 2, 4])):
        record = {"model": dice.choice(["llm", "llm", "vad"]), "graph": dice.choice(["step", "step", "tail"])}
        record |= {"section": "golden", "inputs": some_values(dice), "outputs": some_values(dice)}
        records.append(record | dice.choice([{}, {}, {"target": None}, {"target": "a"}, {"target": "b"}]))

    both(whole(targets=targets, golden=records, seal=None), sections_end=cases.SECTIONS_END)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=80))
def test_any_bytes__same_verdict(data: bytes) -> None:
    """Any bytes for a manifest."""
    if data:
        both(data)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 127), st.binary(min_size=1, max_size=8), st.booleans())
def test_header__same_verdict(place: int, data: bytes, repaired: bool) -> None:
    """Any change of a header, also with digests that fit."""
    file = bytearray((GOLDEN / "smallest.dpfbin").read_bytes())
    file[place : place + len(data)] = data[: 128 - place]
    target.try_input(bytes([repaired]) + bytes(file))


def test_cut_and_flipped_files__same_verdict() -> None:
    """A file cut or changed anywhere, by the fast and by the full check."""
    data = (GOLDEN / "tiny.dpfbin").read_bytes()
    dice = random.Random(3)
    manifest_at = unpack_header(data, "tiny").manifest_offset
    places = [*dice.sample(range(manifest_at), 60), *dice.sample(range(manifest_at, len(data)), 60), *range(0, 128, 5)]
    for place in places:
        target.try_input(b"\x00" + data[:place])
        target.try_input(b"\x00" + data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :])


@pytest.mark.parametrize("length", [128, 136, 4096, 4104, 65536])
def test_later_minor__longer_header(length: int) -> None:
    """A later minor version has more in its header and its manifest; both readers pass it over, whatever is there."""
    manifest = cases.encode(
        {"format": [1, 7], "name": "later", "version": "2", "sections": [], "unknown": [1, {"a": 2}]}
    )
    start = -(-length // 64) * 64
    end = -(-(start + len(manifest)) // 64) * 64
    numbers = (end, start, len(manifest), end, 0)
    head = b"\x89DPF\r\n\x1a\n" + struct.pack("<HHI5Q", 1, 7, length, *numbers) + hashlib.sha256(manifest).digest()
    head += b"\xa5" * (length - 8 - len(head))
    head += struct.pack("<Q", xxhash.xxh3_64_intdigest(head))
    file = head + bytes(start - length) + manifest + bytes(end - start - len(manifest))

    assert readers.ask_c(file, full=True) == readers.ask_python(file, full=True) == readers.ACCEPTED
    for place in (9, 88, length - 9, length - 1):
        changed = file[:place] + bytes([file[place] ^ 1]) + file[place + 1 :]
        target.try_input(b"\x00" + changed)
        assert readers.ask_c(changed).rule


def test_corpus__replay() -> None:
    """Every input the fuzzers kept still gets one answer from both readers."""
    inputs = sorted(CORPUS.iterdir())
    for path in inputs:
        try:
            target.try_input(path.read_bytes())
        except AssertionError as error:
            raise AssertionError(f"{path.name}: {error}") from error

    assert len(inputs) >= 100


@pytest.mark.parametrize("head", [b"\x9b\x00\x00\x00\x00\xff\xff\xff\xff", b"\x5b\x00\x00\x00\x00\xff\xff\xff\xff",
                                  b"\xbb\x00\x00\x00\x00\x7f\xff\xff\xff", b"\x9a\x00\x0f\xff\xf0"])  # fmt: skip
def test_memory__is_bounded_by_the_manifest(head: bytes) -> None:
    """A count that the bytes do not warrant reserves nothing."""
    manifest = head + bytes(1000)
    header = readers.header_of(manifest)
    tracemalloc.start()
    try:
        readers.ask_python_manifest(manifest, header)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 256 * limits.KIB


def test_memory__of_many_items() -> None:
    """The smallest items take no more than two hundred bytes each, so that as many as are allowed fit anywhere."""
    count = 1 << 16
    manifest = b"\x9a" + count.to_bytes(4, "big") + b"\x80" * count
    header = readers.header_of(manifest)
    tracemalloc.start()
    try:
        verdict = readers.ask_python_manifest(manifest, header)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert verdict.rule == "wrong type or missing"
    assert peak < 200 * count
