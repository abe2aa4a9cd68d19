# SPDX-License-Identifier: Apache-2.0
"""The text reader's ports."""

from __future__ import annotations

from dpfedge.stage.llm.ports import ports as llm_ports
from dpfedge.stage.ports import difference
from dpfedge.stage.text_read.ports import ports


def test_ports__text_fits_a_language_model() -> None:
    """The running text is optional and as large as the settings say; what is found goes to whoever asked."""
    made = ports({}, {"height": 48})

    assert difference(made.outputs["text"], llm_ports({}, None).inputs["text"]) is None
    assert made.outputs["text"].optional
    assert not made.outputs["found"].optional
    assert ports({"text_bytes": 100}, None).outputs["text"].nbytes == 100
