# SPDX-License-Identifier: Apache-2.0
"""JSON as UTF-8, whatever the text holds."""

from __future__ import annotations

import json

import pytest

from dpfedge.serve.jsontext import json_bytes


@pytest.mark.parametrize("data", [{"a": [1, None, "ü🚗"]}, {"half": "x\ud800y"}, {"back": "\\ud800"}])
def test_json__comes_back_as_it_was(data: object) -> None:
    """Also half of a surrogate pair, and a text that looks like one."""
    written = json_bytes(data)

    assert json.loads(written.decode("utf-8")) == data
    assert b": " not in written


def test_json__has_no_number_that_json_lacks() -> None:
    """Clients could not read it."""
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_bytes({"x": float("nan")})
