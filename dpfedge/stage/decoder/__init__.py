# SPDX-License-Identifier: Apache-2.0
"""The decoder stage: audio in any container in, speech segments out."""

from __future__ import annotations

from dpfedge.stage.decoder.stage import DecoderStage

__all__ = ["DecoderStage"]
