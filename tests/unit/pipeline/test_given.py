# SPDX-License-Identifier: Apache-2.0
"""What a caller gives a drawn graph; what it refuses is in test_flow.py, where it is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_flow import CODE, SECTION

from dpfedge.errors import InputError
from dpfedge.pipeline.given import check_options, message_for, place_of
from dpfedge.pipeline.graph import Graph


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    """Two stages."""
    (tmp_path / "code.py").write_text(CODE)
    return Graph.of(SECTION, "test", folder=tmp_path)


@pytest.mark.parametrize("data", ["grün", "grün".encode(), bytearray("grün".encode()), memoryview("grün".encode())])
def test_message__of_bytes_and_texts(graph: Graph, data: Any) -> None:
    """All of them are bytes in the link."""
    assert message_for(graph, "add.word", data, 0, 0) == "grün".encode()


def test_message__of_an_array_is_not_copied(graph: Graph) -> None:
    """The one write is the link's."""
    array = np.ones(3, np.float32)
    assert message_for(graph, "double.numbers", array, 0, 0) is array


def test_place__names_the_nearest(graph: Graph) -> None:
    """Of the inputs that are the caller's."""
    assert place_of(graph, "double.numbers") == ("double", "numbers")
    with pytest.raises(InputError, match=r"allowed double\.numbers, add\.word; did you mean double\.numbers"):
        place_of(graph, "double.number")


def test_options__of_the_stages_there_are(graph: Graph) -> None:
    """Any map that can be written down."""
    check_options(graph, {"double": {}, "add": {"a": [1, None, {"b": b"x"}]}})
