# SPDX-License-Identifier: Apache-2.0
"""The check of data against a JSON Schema."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from dpfedge.config import check, nearest, parse_yaml
from dpfedge.errors import ConfigError

SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "additionalProperties": False,
    "required": ["title", "memory"],
    "properties": {
        "title": {"type": "string", "minLength": 2, "maxLength": 9},
        "memory": {"type": "string", "format": "size"},
        "kind": {"enum": ["gpu", "cpu"]},
        "id": {"type": "string", "pattern": "^[a-z]+$", "examples": ["orin"]},
        "cores": {
            "type": "array",
            "minItems": 1,
            "maxItems": 3,
            "items": {"type": "integer", "minimum": 0, "maximum": 9},
        },
        "stages": {
            "type": "object",
            "additionalProperties": {"$ref": "#/$defs/stage"},
            "propertyNames": {"enum": ["llm", "voice"]},
        },
        "match": {"anyOf": [{"type": "boolean"}, {"$ref": "#/$defs/stage"}]},
    },
    "$defs": {
        "stage": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"threads": {"type": "integer"}},
            "minProperties": 1,
        }
    },
}
GOOD = "title: abc\nmemory: 1GiB\n"


@pytest.mark.parametrize(
    "more",
    [
        "",
        "kind: gpu\n",
        "cores: [0, 9]\n",
        "stages: {llm: {threads: 2}}\n",
        "match: true\n",
        "match: {threads: 1}\n",
        "id: orin\n",
    ],
)
def test_check__accepts(more: str) -> None:
    """Data that follows the schema passes, here and in the jsonschema library."""
    data = parse_yaml(GOOD + more, "b.yaml")

    check(data, SCHEMA, "b.yaml")
    assert Draft202012Validator(SCHEMA).is_valid(data)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("title: abc\nmemroy: 1GiB\n", "b.yaml:2: unknown key 'memroy'"),
        ("title: abc\nmemroy: 1GiB\n", "did you mean memory?"),
        ("title: abc\n", "b.yaml:1: key 'memory' is missing; add memory:"),
        (GOOD + "stages:\n  llm:\n    thread: 1\n", "b.yaml:5: unknown key 'thread' in stages.llm; allowed threads"),
        (GOOD + "stages:\n  lm: {threads: 1}\n", "b.yaml:4: stages.lm: unknown value; found 'lm'; allowed llm, voice"),
        (GOOD + "cores:\n- 1\n- x\n", "b.yaml:5: cores[1]: wrong type; found string 'x'; allowed integer"),
        (GOOD + "cores: [1, true]\n", "cores[1]: wrong type; found boolean True; allowed integer"),
        (GOOD + "cores: [10]\n", "cores[0]: out of range; found 10; allowed at most 9"),
        (GOOD + "cores: [-1]\n", "cores[0]: out of range; found -1; allowed at least 0"),
        (GOOD + "cores: []\n", "cores: out of range; found 0 entries; allowed at least 1 entries"),
        (GOOD + "cores: [1, 2, 3, 4]\n", "allowed at most 3 entries"),
        (GOOD + "kind: cpuu\n", "b.yaml:3: kind: unknown value; found 'cpuu'; allowed gpu, cpu; did you mean cpu?"),
        (GOOD + "id: Or1n\n", "id: wrong form; found 'Or1n'; allowed ^[a-z]+$; for example orin"),
        (GOOD + "match: 3\n", "match: wrong type; found integer 3; allowed boolean or object"),
        (GOOD + "match: {}\n", "match: out of range; found 0 entries"),
        (GOOD + "match: {thread: 1}\n", "unknown key 'thread' in match"),
        ("title: a\nmemory: 1GiB\n", "title: out of range; found 1 characters; allowed at least 2 characters"),
        ("title: [a]\nmemory: 1GiB\n", "title: wrong type; found array; allowed string"),
    ],
)  # fmt: skip
def test_check__refuses_with_place(text: str, message: str) -> None:
    """The text names file, line, path, what was found and the nearest known word; jsonschema refuses the same data."""
    data = parse_yaml(text, "b.yaml")

    with pytest.raises(ConfigError) as caught:
        check(data, SCHEMA, "b.yaml")
    assert message in str(caught.value)
    assert not Draft202012Validator(SCHEMA).is_valid(data)


@pytest.mark.parametrize(
    ("memory", "message"),
    [
        ("64", "b.yaml:2: memory: the unit is missing; found 64; allowed B, kB"),
        ("64 gb", "memory: unknown unit 'gb'; found '64 gb'"),
        ("lots", "memory: a number with a unit is needed; found 'lots'; write it like 64GiB"),
        ("[1]", "memory: wrong type; found array; allowed string"),
    ],
)
def test_format__units_are_required(memory: str, message: str) -> None:
    """A value with a unit says how to write it, and where it stands."""
    with pytest.raises(ConfigError) as caught:
        check(parse_yaml(f"title: abc\nmemory: {memory}\n", "b.yaml"), SCHEMA, "b.yaml")

    assert message in str(caught.value)


def test_check__plain_mapping_uses_the_given_place() -> None:
    """Data without places names the source it was given."""
    with pytest.raises(ConfigError, match=r"^--set: unknown key 'x'"):
        check({"x": 1, "title": "abc", "memory": "1B"}, SCHEMA, "--set")


@pytest.mark.parametrize("schema", [{"oneOf": []}, {"type": "string", "format": "colour"}])
def test_check__schema_beyond_the_checker(schema: dict[str, Any]) -> None:
    """A keyword or format that would be skipped is an error of the schema."""
    with pytest.raises(ConfigError, match="the schema uses"):
        check("x", schema, "s.yaml")


def test_nearest__word() -> None:
    """A close word is offered, a far one is not."""
    assert nearest("orinn", ["orin", "thor"]) == "did you mean orin?"
    assert nearest("zzz", ["orin"]) is None
