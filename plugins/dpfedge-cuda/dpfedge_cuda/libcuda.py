# SPDX-License-Identifier: Apache-2.0
"""The driver's own library, `libcuda.so.1`, through ctypes: calls in, numbers or a CudaError out.

Some twenty functions whose form has not changed since CUDA 4 and which come with every driver: bindings for them
(cuda-bindings) would have to be of the CUDA that onnxruntime was built with, on Jetson of the JetPack, and the runtime
library (libcudart) is another file for each CUDA. Run as a program it tells what the driver tells of its devices
(`telling.py`), so that a driver that hangs or crashes takes a child process with it. Nothing here has a time limit;
`driver.py` gives it one.
"""

from __future__ import annotations

import ctypes
from typing import Any

from dpfedge.backend.answering import serve

__all__ = ["LIBRARY", "CudaError", "Libcuda"]

LIBRARY = "libcuda.so.1"
_INT, _SIZE, _POINTER = ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p
# cuda.h; the functions' names as the library exports them
_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cuInit": (ctypes.c_uint,),
    "cuDriverGetVersion": (_POINTER,),
    "cuDeviceGetCount": (_POINTER,),
    "cuDeviceGet": (_POINTER, _INT),
    "cuDeviceGetName": (_POINTER, _INT, _INT),
    "cuDeviceGetPCIBusId": (_POINTER, _INT, _INT),
    "cuDeviceGetUuid_v2": (_POINTER, _INT),
    "cuDeviceTotalMem_v2": (_POINTER, _INT),
    "cuDeviceGetAttribute": (_POINTER, _INT, _INT),
    "cuDevicePrimaryCtxRetain": (_POINTER, _INT),
    "cuCtxSetCurrent": (_POINTER,),
    "cuCtxGetStreamPriorityRange": (_POINTER, _POINTER),
    "cuStreamCreateWithPriority": (_POINTER, ctypes.c_uint, _INT),
    "cuStreamSynchronize": (_POINTER,),
    "cuMemGetInfo_v2": (_POINTER, _POINTER),
    "cuMemHostRegister_v2": (_POINTER, _SIZE, ctypes.c_uint),
    "cuMemHostUnregister": (_POINTER,),
    "cuMemHostGetDevicePointer_v2": (_POINTER, _POINTER, ctypes.c_uint),
    "cuGetErrorName": (_INT, _POINTER),
    "cuGetErrorString": (_INT, _POINTER),
}
_MAJOR, _MINOR, _INTEGRATED, _PAGEABLE, _MAPS = 75, 76, 18, 100, 19  # CUdevice_attribute
_NON_BLOCKING, _PORTABLE, _MAPPED = 1, 1, 2
NO_FUNCTION = -1


class CudaError(Exception):
    """A call that the driver refused: its name, the number and the driver's own words."""

    def __init__(self, call: str, code: int, text: str) -> None:
        super().__init__(f"{call}: {text} ({code})" if code != NO_FUNCTION else f"{call}: {text}")
        self.call, self.code, self.text = call, code, text


class Libcuda:
    """The loaded library; OSError as the loader says it when it is not there."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(LIBRARY)

    def call(self, name: str, *arguments: Any) -> None:
        """One function; CudaError unless it succeeds, also when this driver is too old to have it."""
        function = getattr(self._library, name, None)
        if function is None:
            raise CudaError(name, NO_FUNCTION, "this driver does not have it")
        function.argtypes, function.restype = _FUNCTIONS[name], _INT
        if code := function(*arguments):
            raise CudaError(name, code, self._text(code))

    def _text(self, code: int) -> str:
        words = []
        for name in ("cuGetErrorName", "cuGetErrorString"):
            function, text = getattr(self._library, name, None), ctypes.c_char_p()
            if function is not None and function(_INT(code), ctypes.byref(text)) == 0 and text.value:
                words.append(text.value.decode(errors="replace"))
        return ", ".join(words) or "an error without a name"

    def number(self, name: str, *before: Any, kind: Any = _INT) -> int:
        """What a function writes through its first argument; `before` are those behind it."""
        value = kind()
        self.call(name, ctypes.byref(value), *before)
        return int(value.value or 0)

    def attribute(self, device: int, which: int) -> int:
        """A CUdevice_attribute."""
        return self.number("cuDeviceGetAttribute", which, device)

    def retain(self, device: int) -> int:
        """The context that the runtime library, and so onnxruntime, uses on `device`; current in this thread."""
        context = self.number("cuDevicePrimaryCtxRetain", device, kind=_POINTER)
        self.call("cuCtxSetCurrent", context)
        return context

    def priorities(self) -> tuple[int, int]:
        """(first, last): smaller numbers go first; alike where the device tells no priorities apart."""
        last, first = _INT(), _INT()
        self.call("cuCtxGetStreamPriorityRange", ctypes.byref(last), ctypes.byref(first))
        return first.value, last.value

    def stream(self, priority: int) -> int:
        """A stream that does not wait for the default stream."""
        value = _POINTER()
        self.call("cuStreamCreateWithPriority", ctypes.byref(value), _NON_BLOCKING, priority)
        return int(value.value or 0)

    def memory(self) -> tuple[int, int]:
        """(free, total) bytes of the current context's device."""
        free, total = _SIZE(), _SIZE()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def register(self, address: int, size: int) -> int:
        """Pin host memory and map it for every context; the device's address of it."""
        self.call("cuMemHostRegister_v2", address, size, _PORTABLE | _MAPPED)
        try:
            return self.number("cuMemHostGetDevicePointer_v2", address, 0, kind=_POINTER)
        except CudaError:
            self.call("cuMemHostUnregister", address)
            raise

    def devices(self) -> list[dict[str, Any]]:
        """What CUDA sees, in its own order, after `cuInit`; a broken one is left out while another can be asked."""
        found, broken = [], []
        for number in range(self.number("cuDeviceGetCount")):
            try:
                found.append(self._device(number))
            except CudaError as error:
                broken.append(error)
        if broken and not found:
            raise broken[0]
        return found

    def _device(self, ordinal: int) -> dict[str, Any]:
        device = self.number("cuDeviceGet", ordinal)
        name, place, uuid = (ctypes.create_string_buffer(size) for size in (96, 32, 16))
        self.call("cuDeviceGetName", name, 96, device)
        self.call("cuDeviceGetPCIBusId", place, 32, device)
        self.call("cuDeviceGetUuid_v2", uuid, device)
        raw = uuid.raw.hex()
        return {
            "ordinal": ordinal,
            "name": name.value.decode(errors="replace"),
            "pci": place.value.decode(errors="replace").lower(),
            "uuid": "-".join((raw[:8], raw[8:12], raw[12:16], raw[16:20], raw[20:])),
            "memory": self.number("cuDeviceTotalMem_v2", device, kind=_SIZE),
            "capability": self.attribute(device, _MAJOR) * 10 + self.attribute(device, _MINOR),
            "integrated": bool(self.attribute(device, _INTEGRATED)),
            "host_pages": bool(self.attribute(device, _PAGEABLE)),
            "maps": bool(self.attribute(device, _MAPS)),
        }


def _tell(question: dict[str, Any]) -> dict[str, Any]:
    """The answer to the one question there is."""
    try:
        cuda = Libcuda()
        version = cuda.number("cuDriverGetVersion")
        cuda.call("cuInit", 0)
        return {"cuda": version, "devices": cuda.devices()}
    except OSError as error:
        return {"error": str(error), "missing": True}
    except CudaError as error:
        return {"error": str(error), "call": error.call, "code": error.code}


if __name__ == "__main__":
    serve(_tell)
