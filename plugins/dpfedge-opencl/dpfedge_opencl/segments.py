# SPDX-License-Identifier: Apache-2.0
"""The parts of a graph that the CPU plugin runs between kernels, over the same memory, through the public contract.

Values with sizes known before are bound in place; others the CPU plugin allocates, and they are wrapped as they lie.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from dpfedge.backend.api import Array, Binding, Executable, cancelling
from dpfedge.tensors import TensorSpec
from dpfedge_opencl.plan import CpuCall, Plan, Slot
from dpfedge_opencl.ports import Port
from dpfedge_opencl.prepared import source_of

__all__ = ["Segments"]

Host = Callable[[str, str | int], Array]


class Segments:
    """The CPU calls of one binding."""

    def __init__(self, executables: Sequence[Executable]) -> None:
        self._executables = executables
        self._bindings: dict[int, Binding] = {}
        self.made: dict[str, Array] = {}
        """Outputs that the CPU plugin allocated, by the value's name."""

    def run(self, call: CpuCall, plan: Plan, host: Host, fixed: Mapping[str, Port]) -> None:
        """Run one segment on the values of `plan`; an output of unknown size that is a port goes to the caller's array,
        if there is one."""
        executable = self._executables[call.segment]
        binding = self._bindings.get(call.segment)
        if binding is None:
            binding = self._bindings[call.segment] = executable.bind()
        for spec, name in zip(executable.inputs, call.inputs, strict=True):
            binding.set_input(spec.name, _array(spec, plan.slots[name], host))
        for spec, name in zip(executable.outputs, call.outputs, strict=True):
            slot = plan.slots.get(name)
            if slot is None or slot.home == "cpu":
                binding.set_output(spec.name, fixed[name].array if name in fixed else None)
            else:
                binding.set_output(spec.name, _array(spec, slot, host))
        binding.run()
        for spec, name in zip(executable.outputs, call.outputs, strict=True):
            slot = plan.slots.get(name)
            if slot is None or slot.home == "cpu":
                self.made[name] = binding.output(spec.name)

    def cancel(self) -> None:
        """End the segment in progress."""
        for binding in tuple(self._bindings.values()):
            if (stop := cancelling(binding)) is not None:
                stop.cancel()

    def rearm(self) -> None:
        """Runs are allowed again."""
        for binding in self._bindings.values():
            if (stop := cancelling(binding)) is not None:
                stop.rearm()


def _array(spec: TensorSpec, slot: Slot, host: Host) -> Array:
    """The value at `slot` as the CPU sees it."""
    memory = host(*source_of(slot)).reshape(-1).view(np.uint8)
    return np.ndarray(slot.shape, spec.numpy, memory, slot.offset)
