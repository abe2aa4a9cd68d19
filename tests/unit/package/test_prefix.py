# SPDX-License-Identifier: Apache-2.0
"""Records of baked prefixes: read, refused at their field's path, and written back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dpfedge.errors import FormatError
from dpfedge.package.fields import Node
from dpfedge.package.prefix import Baked, BakedPrefix, Stored, check_memory, read_prefix


def record() -> dict[str, Any]:
    """Two tokens of one layer's keys."""
    place = {"offset": 64, "size": 48, "dtype": "f32", "dims": [1, 2, 2, 3]}
    return {"section": "prefix.llm", "key": {"device/arch": "x"}, "tokens": [1, 9], "memory": {"past.0.key": place}}


def test_read_prefix__and_back() -> None:
    """Every field goes there and back; an absent field is no prefix."""
    prefix = read_prefix(Node(record(), "prefix"))

    assert prefix == BakedPrefix(
        "prefix.llm", {"device/arch": "x"}, (1, 9), {"past.0.key": Stored(64, 48, "f32", (1, 2, 2, 3))}
    )
    assert prefix.to_map() == record()
    assert read_prefix(Node(None, "prefix")) is None


def test_baked__record_names_its_section() -> None:
    """What was computed becomes a record once it lies somewhere."""
    memory = {"past.0.key": Stored(0, 4, "f32", (1,))}

    assert Baked({"a": "b"}, (3,), memory, (b"1234",)).record("here") == BakedPrefix("here", {"a": "b"}, (3,), memory)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r.update(tokens=[]), r"prefix\.tokens: prefix holds nothing"),
        (lambda r: r.update(tokens=[-1]), r"prefix\.tokens\[0\]: number out of range; found -1"),
        (lambda r: r.update(tokens=[0] * 131073), r"prefix\.tokens: too many elements; found 131073; allowed 131072"),
        (lambda r: r.update(memory={}), r"prefix\.memory: prefix holds nothing"),
        (lambda r: r.update(key={"a": 1}), r"prefix\.key\.a: wrong type or missing; found integer; allowed text"),
        (lambda r: r.update(key={"a": "x" * 1025}), r"prefix\.key\.a: text is too long"),
        (lambda r: r.update(section="../x"), r"prefix\.section: bad name"),
        (lambda r: r["memory"]["past.0.key"].update(size=47), r"\.size: size differs from dtype and dims; found 47; a"),
        (lambda r: r["memory"]["past.0.key"].update(offset=8), r"\.offset: values are not aligned; found 8"),
        (lambda r: r["memory"]["past.0.key"].update(dtype="f31"), r"\.dtype: unknown dtype; found 'f31'"),
        (lambda r: r["memory"]["past.0.key"].update(dims=[-1]), r"\.dims\[0\]: number out of range"),
    ],
)  # fmt: skip
def test_read_prefix__refuses(change: Callable[[dict[str, Any]], object], message: str) -> None:
    """The path of the value is named."""
    data = record()
    change(data)

    with pytest.raises(FormatError, match=message):
        read_prefix(Node(data, "prefix"))


def test_check_memory__behind_the_section() -> None:
    """Memory may end with its section, not behind it."""
    prefix = read_prefix(Node(record(), "prefix"))
    assert prefix is not None

    check_memory(prefix, 112, "here")
    with pytest.raises(FormatError, match=r"here\.memory\.past\.0\.key: values end behind their section; found 112; "):
        check_memory(prefix, 111, "here")
