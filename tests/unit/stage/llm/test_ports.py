# SPDX-License-Identifier: Apache-2.0
"""The llm's ports."""

from __future__ import annotations

from dpfedge.stage.encoder.ports import ports as encoder_ports
from dpfedge.stage.llm.ports import ports
from dpfedge.stage.ports import difference
from dpfedge.stage.voice.ports import ports as voice_ports


def test_ports__fit_their_neighbours() -> None:
    """Transcripts in, clauses out; nobody has to listen."""
    found = ports({}, None)

    assert difference(encoder_ports({}, None).outputs["text"], found.inputs["text"]) is None
    assert difference(found.outputs["clauses"], voice_ports({}, None).inputs["clauses"]) is None
    assert found.inputs["question"].optional
    assert found.outputs["clauses"].optional
