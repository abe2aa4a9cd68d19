# SPDX-License-Identifier: Apache-2.0
"""The weight format a recipe asks for and a target in, the form that target gets out, with the rule; and a decoder's
tensors seen in that form.

It measures nothing (`quality.py`) and knows no ONNX graph (`graph_formats.py` does).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from dpfedge.compiler.blocks import Blocks, Floats
from dpfedge.compiler.decoder.source import TensorSource
from dpfedge.compiler.quantise import int4, int8
from dpfedge.errors import Unsupported
from dpfedge.records import dataclass

__all__ = ["FORMATS", "KEEP", "Form", "FormedSource", "choose"]

FORMATS = ("keep", "fp16", "int8", "int4", "int4-asymmetric", "fp8")
"""What a recipe may ask for."""
_FP8: Mapping[str, str] = {
    **dict.fromkeys(
        ("sm_89", "sm_90", "sm_100", "sm_101", "sm_103", "sm_110", "sm_120", "sm_121", "gfx950", "gfx1200", "gfx1201"),
        "FLOAT8E4M3FN",
    ),
    "gfx942": "FLOAT8E4M3FNUZ",  # CDNA 3 has its own zero and no infinities
}
"""Architecture with 8-bit float products → the ONNX element type it multiplies."""
_WIDE = ("token_embd.weight", "output.weight")
"""Matrices that stay at 8 bits where layers get 4: an error in them reaches every logit undamped."""


@dataclass(frozen=True, slots=True)
class Form:
    """The weights of one model on one target: a name of FORMATS, and the ONNX element type where that is a float."""

    name: str
    element: str | None = None
    decisions: tuple[tuple[str, str], ...] = ()

    @property
    def key(self) -> tuple[str, str | None]:
        """Equal for targets that share the converted model."""
        return self.name, self.element

    @property
    def title(self) -> str:
        """The form in names of sections."""
        return self.name if self.element is None else self.element.lower()


KEEP = Form("keep")


def choose(wanted: str, kind: str, arch: str, where: str) -> Form:
    """The form for a target of device class `kind` and architecture `arch`; Unsupported where it has no such format."""
    cpu = kind.startswith("cpu.")
    if wanted == "fp8":
        if arch not in _FP8:
            allowed = ", ".join(sorted(_FP8))
            raise Unsupported("weights: fp8 needs an architecture with 8-bit floats", where=where, found=arch,
                              allowed=allowed, remedy="choose int8 for this board")  # fmt: skip
        rule = f"{arch} multiplies {_FP8[arch].lower()}, scaled per matrix"
        return Form(wanted, _FP8[arch], (("weights=fp8", rule),))
    if wanted == "fp16":
        if cpu:
            rule = "onnxruntime has no float16 product here: it would fold the cast and keep float32 in the file"
            return Form("keep", None, (("weights=keep, not fp16", rule),))
        return Form(wanted, "FLOAT16", (("weights=fp16", f"{arch} multiplies float16"),))
    return Form(wanted)


_RULES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "int8": (
        ("int8=block 32", "MatMulNBits multiplies 8-bit blocks without saturating on any CPU, with or without vnni"),
    ),
    "int4": (("int4=block 32", "scale searched by squared error; embedding and head stay int8"),),
    "int4-asymmetric": (
        ("int4=block 32 with zero points", "both searched by squared error; embedding and head stay int8"),
    ),
}
"""Form of a decoder → its decisions."""


class FormedSource:
    """A TensorSource whose matrices have another form; vectors, names and shapes are the source's own."""

    def __init__(self, source: TensorSource, form: Form) -> None:
        self._source, self._form = source, form

    @property
    def decisions(self) -> tuple[tuple[str, str], ...]:
        """What was chosen for the matrices, and why."""
        return _RULES.get(self._form.name, ())

    @property
    def where(self) -> str:
        """Where the tensors come from."""
        return self._source.where

    @property
    def names(self) -> Collection[str]:
        """Names of all tensors."""
        return self._source.names

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of one tensor."""
        return self._source.shape(name)

    def kind(self, name: str) -> str:
        """The format a matrix leaves `matrix` in; the source's own where that fits already."""
        form = self._wanted(name)
        return self._source.kind(name) if form in ("keep", "fp16", "fp8") else form

    def vector(self, name: str, size: int) -> Floats:
        """One vector, as it is."""
        return self._source.vector(name, size)

    def matrix(self, name: str, rows: int, columns: int) -> Blocks | Floats:
        """One matrix in the new form; one that has it already stays as it is, bit for bit."""
        found = self._source.matrix(name, rows, columns)
        form = self._wanted(name)
        if form == "keep" or (isinstance(found, Blocks) and _is(found, form)):
            return found
        values = found.values() if isinstance(found, Blocks) else found
        if form == "int8":
            return int8(values)
        if form in ("int4", "int4-asymmetric"):
            return int4(values, symmetric=form == "int4")
        return values  # fp16 and fp8 are forms of the graph's float constants

    def _wanted(self, name: str) -> str:
        return "int8" if self._form.name.startswith("int4") and name in _WIDE else self._form.name


def _is(blocks: Blocks, form: str) -> bool:
    bits, asymmetric = (8, False) if form == "int8" else (4, form == "int4-asymmetric")
    if form not in ("int8", "int4", "int4-asymmetric"):
        return False
    return blocks.bits == bits and blocks.offsets is None and (blocks.zeros is not None) == asymmetric
