# SPDX-License-Identifier: Apache-2.0
"""The encoder stage: speech in, words out."""

from __future__ import annotations

from dpfedge.stage.encoder.stage import EncoderStage

__all__ = ["EncoderStage"]
