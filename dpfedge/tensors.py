# SPDX-License-Identifier: Apache-2.0
"""Names, dtypes and shapes of tensors; it holds no data and knows no backend."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dpfedge.errors import FormatError
from dpfedge.records import dataclass

if TYPE_CHECKING:
    import numpy as np

__all__ = ["DTYPES", "DTYPE_BYTES", "DTYPE_CODES", "TensorSpec", "dtype_name"]

# Code 0 is "bytes of no dtype"; the numbers are part of the link's wire layout and never change.
DTYPES: tuple[str, ...] = (
    "bytes", "f32", "f16", "bf16", "f64", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "bool",
)  # fmt: skip
DTYPE_CODES: Mapping[str, int] = {name: code for code, name in enumerate(DTYPES)}
DTYPE_BYTES: Mapping[str, int] = {
    name: 1 if name in ("bytes", "bool") else int(name.lstrip("bfiu")) // 8 for name in DTYPES
}
"""Size of one element."""
_NUMPY = {
    "bytes": "u1", "f32": "<f4", "f16": "<f2", "f64": "<f8", "i8": "i1", "u8": "u1", "i16": "<i2", "u16": "<u2",
    "i32": "<i4", "u32": "<u4", "i64": "<i8", "u64": "<u8", "bool": "?",
}  # fmt: skip


def dtype_name(dtype: np.dtype[Any]) -> str:
    """dpfedge's name of a NumPy dtype, for example `f32`; KeyError when it has none."""
    return _NAMES[dtype.str.lstrip("|")]


# NumPy's own spelling of each dtype, so that a package can be opened and bound without importing NumPy
_NAMES = {
    text if text[0] == "<" else {"?": "b1"}.get(text, text): name for name, text in _NUMPY.items() if name != "bytes"
}


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One input or output of a graph: `dims` holds sizes, or names of dynamic dimensions."""

    name: str
    dtype: str
    dims: tuple[int | str, ...] = ()

    def __post_init__(self) -> None:
        if self.dtype not in DTYPE_CODES:
            raise FormatError("unknown dtype", where=f"tensor {self.name}", found=self.dtype, allowed=", ".join(DTYPES))

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype; `bf16` has none and raises KeyError."""
        import numpy as np

        return np.dtype(_NUMPY[self.dtype])

    def to_map(self) -> dict[str, Any]:
        """The form kept in a manifest."""
        return {"name": self.name, "dtype": self.dtype, "dims": list(self.dims)}

    @classmethod
    def from_map(cls, data: Mapping[str, Any]) -> TensorSpec:
        """The inverse of `to_map`; the manifest was verified before."""
        return cls(data["name"], data["dtype"], tuple(data["dims"]))
