# SPDX-License-Identifier: Apache-2.0
"""Decoders of the Llama kind: a source of tensors and the model's shape in, one ONNX graph out."""

from __future__ import annotations

from dpfedge.compiler.decoder.graph import MODES, build_decoder
from dpfedge.compiler.decoder.shape import ARCHITECTURES, DecoderShape, Rotary, make_shape
from dpfedge.compiler.decoder.source import TensorSource

__all__ = ["ARCHITECTURES", "MODES", "DecoderShape", "Rotary", "TensorSource", "build_decoder", "make_shape"]
