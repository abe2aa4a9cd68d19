# SPDX-License-Identifier: Apache-2.0
"""The process that asks NVML: a question as one line of JSON in, one line of JSON out, until its input ends.

NVML can hang for minutes when a GPU fell off the bus, and a broken driver can crash it; here that costs a child of the
process that asked (`telling.py` kills it). It needs nvidia-ml-py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from dpfedge.backend.answering import serve

__all__ = ["APPLICATION_XIDS", "Nvml"]

APPLICATION_XIDS = frozenset({13, 31, 43, 45, 68, 69})
"""Those a program's own kernels cause (docs.nvidia.com: XID errors); they say nothing of the device."""
_XIDS_AT_ONCE = 64


class Nvml:
    """NVML, initialised; handles and event sets stay open between questions."""

    def __init__(self, nvml: Any) -> None:
        self.nvml = nvml
        nvml.nvmlInit()
        self._handles: dict[str, Any] = {}
        self._events: dict[str, Any] = {}
        self._faults: dict[str, int] = {}

    def list(self) -> dict[str, Any]:
        """The driver's version and every GPU with its MIG instances; what NVML does not tell is left out.

        So is a broken GPU while another one can be asked.
        """
        nvml, gpus, broken = self.nvml, [], []
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                gpus.append(self._gpu(nvml.nvmlDeviceGetHandleByIndex(index)))
            except nvml.NVMLError as error:
                broken.append(error)
        if broken and not gpus:
            raise broken[0]
        return {"driver": _text(nvml.nvmlSystemGetDriverVersion()), "gpus": gpus}

    def _gpu(self, handle: Any) -> dict[str, Any]:
        nvml, told = self.nvml, self._told
        pci = nvml.nvmlDeviceGetPciInfo(handle)
        mig = told(nvml.nvmlDeviceGetMigMode, handle)
        capability = told(nvml.nvmlDeviceGetCudaComputeCapability, handle)
        return {
            "uuid": _text(nvml.nvmlDeviceGetUUID(handle)),
            "name": _text(nvml.nvmlDeviceGetName(handle)),
            "pci": f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0",
            "memory": self._memory(handle)[1],
            "capability": None if capability is None else capability[0] * 10 + capability[1],
            "vbios": _text(told(nvml.nvmlDeviceGetVbiosVersion, handle)),
            "serial": _text(told(nvml.nvmlDeviceGetSerial, handle)),
            "mig": list(self._instances(handle)) if mig is not None and mig[0] == 1 else None,
        }

    def _instances(self, handle: Any) -> Any:
        nvml = self.nvml
        for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
            try:
                one = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            except nvml.NVMLError_NotFound:  # gaps are usual
                continue
            place = f"gi{nvml.nvmlDeviceGetGpuInstanceId(one)}/ci{nvml.nvmlDeviceGetComputeInstanceId(one)}"
            yield {
                "uuid": _text(nvml.nvmlDeviceGetUUID(one)),
                "name": _text(nvml.nvmlDeviceGetName(one)),
                "place": place,
                "memory": self._memory(one)[1],
            }

    def health(self, key: str) -> dict[str, Any]:
        """What a GPU (its PCI address) or a MIG instance (its UUID) does now; None for what NVML does not tell."""
        nvml, told = self.nvml, self._told
        handle = self._handle(key)
        whole = told(nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle, handle) if key.startswith("MIG-") else handle
        whole = handle if whole is None else whole
        rates = told(nvml.nvmlDeviceGetUtilizationRates, handle)
        free, total = self._memory(handle)
        return {
            "utilisation": None if rates is None else rates.gpu,
            "free": free,
            "total": total,
            "temperature": told(nvml.nvmlDeviceGetTemperature, whole, nvml.NVML_TEMPERATURE_GPU),
            "reasons": told(self._reasons, whole),
            "corrected": self._errors(whole, nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
            "uncorrected": self._errors(whole, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
            "clock": told(nvml.nvmlDeviceGetClockInfo, whole, nvml.NVML_CLOCK_SM),
            "clock_most": told(nvml.nvmlDeviceGetMaxClockInfo, whole, nvml.NVML_CLOCK_SM),
            "power": told(nvml.nvmlDeviceGetPowerUsage, whole),
            "faults": self._xids(key, whole),
        }

    def _reasons(self, handle: Any) -> int:
        try:
            return int(self.nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
        except self.nvml.NVMLError_FunctionNotFound:  # drivers before 535 have it under its old name
            return int(self.nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))

    def _handle(self, key: str) -> Any:
        if key not in self._handles:
            nvml = self.nvml
            by = nvml.nvmlDeviceGetHandleByUUID if key.startswith("MIG-") else nvml.nvmlDeviceGetHandleByPciBusId
            self._handles[key] = by(key)
        return self._handles[key]

    def _memory(self, handle: Any) -> tuple[int | None, int | None]:
        memory = self._told(self.nvml.nvmlDeviceGetMemoryInfo, handle)
        return (memory.free, memory.total) if memory is not None and memory.total else (None, None)

    def _errors(self, handle: Any, kind: int) -> int | None:
        """Since the driver was loaded, where the device has ECC."""
        found = self._told(self.nvml.nvmlDeviceGetTotalEccErrors, handle, kind, self.nvml.NVML_VOLATILE_ECC)
        return None if found is None else int(found)

    def _xids(self, key: str, handle: Any) -> int | None:
        """XIDs since the first question, but those of programs; None where events cannot be had."""
        nvml = self.nvml
        if key not in self._events:
            events = self._told(nvml.nvmlEventSetCreate)
            if events is not None and not self._registered(handle, events):
                self._told(nvml.nvmlEventSetFree, events)
                events = None
            self._events[key], self._faults[key] = events, 0
        if self._events[key] is None:
            return None
        for _ in range(_XIDS_AT_ONCE):
            event = self._told(nvml.nvmlEventSetWait, self._events[key], 0)
            if event is None:  # no more
                break
            self._faults[key] += int(event.eventData) not in APPLICATION_XIDS
        return self._faults[key]

    def _registered(self, handle: Any, events: Any) -> bool:
        try:
            self.nvml.nvmlDeviceRegisterEvents(handle, self.nvml.nvmlEventTypeXidCriticalError, events)
        except self.nvml.NVMLError:
            return False
        return True

    def _told(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """What NVML answers; None where this device, this driver or this user is told nothing of it."""
        nvml = self.nvml
        try:
            return call(*arguments)
        except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound, nvml.NVMLError_NoPermission,
                nvml.NVMLError_Timeout, nvml.NVMLError_NoData, nvml.NVMLError_NotFound):  # fmt: skip
            return None


def _text(value: Any) -> str:
    return "" if value is None else value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _answer(state: list[Nvml], question: dict[str, Any]) -> dict[str, Any]:
    try:
        import pynvml
    except ImportError:
        return {"error": "nvidia-ml-py is not installed", "code": None}
    try:
        if not state:
            state.append(Nvml(pynvml))
        told: dict[str, Any] = getattr(state[0], question["ask"])(*question.get("with", ()))
        return told
    except pynvml.NVMLError as error:
        return {"error": str(error), "code": getattr(error, "value", None)}


def main() -> None:
    """Answer until the one who asks goes away."""
    serve(partial(_answer, []))


if __name__ == "__main__":
    main()
