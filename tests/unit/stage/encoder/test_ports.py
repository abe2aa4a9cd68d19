# SPDX-License-Identifier: Apache-2.0
"""The encoder's ports."""

from __future__ import annotations

from dpfedge.stage.decoder.ports import ports as decoder_ports
from dpfedge.stage.encoder.ports import ports
from dpfedge.stage.ports import difference


def test_speech__fits_the_decoders() -> None:
    """The two are joined in every voice pipeline."""
    assert difference(decoder_ports({}, None).outputs["speech"], ports({}, None).inputs["speech"]) is None
