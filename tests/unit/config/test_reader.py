# SPDX-License-Identifier: Apache-2.0
"""The strict YAML reader."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpfedge import limits
from dpfedge.config import Items, Section, load_key, load_yaml, parse_yaml, plain
from dpfedge.errors import ConfigError


def test_section__knows_lines() -> None:
    """Every key and item answers file:line."""
    data = parse_yaml("title: x\ncores:\n  - 1\n  - 2\nmore:\n  deep: true\n", "a.yaml")

    cores, more = data["cores"], data["more"]
    assert isinstance(cores, Items)
    assert isinstance(more, Section)
    assert (data.where(), data.where("cores"), cores.where(1), more.where("deep")) == (
        "a.yaml:1",
        "a.yaml:2",
        "a.yaml:4",
        "a.yaml:6",
    )
    assert data.where("missing") == "a.yaml:1"
    assert cores.where() == "a.yaml:3"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1), ("-3", -3), ("0x10de", 0x10DE), ("1.5", 1.5), ("1e3", 1000.0), ("true", True),
        ("null", None), ("", None),
        ("010", "010"), ("1:30", "1:30"), ("1_000", "1_000"), ("2026-11-30", "2026-11-30"), ("64GiB", "64GiB"),
        ("'1'", "1"),
        ('"no"', "no"), (".inf", ".inf"), ("1e999", "1e999"),
        ("9" * 5000, "9" * 5000),
    ],
)  # fmt: skip
def test_scalar__has_one_reading(text: str, value: object) -> None:
    """Only plain decimal and hexadecimal numbers, true, false and null are not text."""
    found = parse_yaml(f"k: {text}\n", "a.yaml")["k"]

    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("a: 1\nb: no\n", "a.yaml:2", "write false if a boolean is meant"),
        ("a: 1\na: 2\n", "a.yaml:2", "key 'a' is given twice; found the first at line 1"),
        ("a: &x 1\nb: *x\n", "a.yaml:1", "anchors and aliases are not read"),
        ("b: *x\n", "a.yaml:1", "aliases"),
        ("a: !!python/object:os.system x\n", "a.yaml:1", "tags are not read"),
        ("<<: {a: 1}\n", "a.yaml:1", "merge keys are not read"),
        ("? [a]\n: 1\n", "a.yaml:1", "a key must be one word"),
        ("- a\n", "a.yaml:1", "must hold one mapping; found a list"),
        ("", "a.yaml:1", "must hold one mapping; found nothing"),
        ("a: 1\n---\nb: 2\n", "a.yaml:3", "second document"),
        ("a: 1\n b: [\n", "a.yaml:2", "this is not YAML"),
        ("a:\n\t- 1\n", "a.yaml:2", "this is not YAML"),
        ("a: " + "[" * 40 + "]" * 40, "a.yaml:1", "nested too deep"),
    ],
)
def test_parse__refuses_with_place(text: str, place: str, words: str) -> None:
    """Each refusal names the line and what is wrong."""
    with pytest.raises(ConfigError) as caught:
        parse_yaml(text, "a.yaml")

    assert caught.value.where == place
    assert words in str(caught.value)


@pytest.mark.parametrize("data", [b"a: \xff\xfe", b"\x00", b"a: \x07"])
def test_parse__bytes_that_are_no_text(data: bytes) -> None:
    """Bytes outside YAML's character set are a ConfigError, never a decoder's own error."""
    with pytest.raises(ConfigError):
        parse_yaml(data, "a.yaml")


def test_parse__too_large() -> None:
    """A file beyond the limit is refused before it is parsed."""
    with pytest.raises(ConfigError, match="too large"):
        parse_yaml(b"#" * (limits.YAML_MAX_BYTES + 1), "a.yaml")


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="ab:-,[]{}?!&*|>%@#'\"\n \t01.~é\ufeff", max_size=60))
def test_parse__any_text(text: str) -> None:
    """Whatever the text, the answer is a mapping or a ConfigError that names the file."""
    try:
        place = parse_yaml(text, "a.yaml").where()
    except ConfigError as error:
        place = str(error.where)

    assert place.startswith("a.yaml")


def test_load__missing_file(tmp_path: Path) -> None:
    """A path that cannot be read is named with the reason."""
    with pytest.raises(ConfigError, match=r"no\.yaml: the file cannot be read; found No such file"):
        load_yaml(tmp_path / "no.yaml")


def test_load__names_the_file(tmp_path: Path) -> None:
    """Places carry the path that was given."""
    path = tmp_path / "ä b.yaml"
    path.write_text("a: 1\n")

    assert load_yaml(path).where("a") == f"{path}:1"


def test_load_key__stops_behind_the_key(tmp_path: Path) -> None:
    """What follows the key is not read; a missing key is None; what comes before is still checked."""
    path = tmp_path / "a.yaml"
    path.write_text("a: 1\nb: {c: 2}\nd: [unclosed\n")

    assert load_key(path, "b") == {"c": 2}
    path.write_text("a: 1\n")
    assert load_key(path, "b") is None
    path.write_text("a: yes\nb: 1\n")
    with pytest.raises(ConfigError, match="write true"):
        load_key(path, "b")


def test_plain__drops_places() -> None:
    """The plain copy holds builtin types only."""
    copy = plain(parse_yaml("a: [{b: 1}]\n", "a.yaml"))

    assert copy == {"a": [{"b": 1}]}
    assert [type(copy), type(copy["a"]), type(copy["a"][0])] == [dict, list, dict]
