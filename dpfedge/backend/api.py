# SPDX-License-Identifier: Apache-2.0
"""The contract between dpfedge and a backend plugin: devices in, executables out; `plugin/HOOKS.md` is its page.

It holds types only. A backend imports this module, `dpfedge.errors` and `dpfedge.tensors`, and nothing else of dpfedge.
Everything a backend raises is a `BackendError` (or a child of it); native errors are mapped where they arise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from dpfedge.errors import UsageError
from dpfedge.records import dataclass
from dpfedge.tensors import TensorSpec

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]
else:
    Array = Any  # opening and binding a package must not import NumPy

__all__ = [
    "ABI",
    "Array",
    "Backend",
    "Binding",
    "Budget",
    "Cancels",
    "Capabilities",
    "Device",
    "Executable",
    "GraphView",
    "Health",
    "Identity",
    "LowerRequest",
    "LoweredGraph",
    "SealedView",
    "Seals",
    "cancelling",
    "keeps_links",
    "missing",
    "sealing",
]

ABI = 1
"""Version of this contract; a target records the one it was lowered for.

It grows by fields with defaults and by protocols that a backend may lack (`Seals`, `Cancels`); both leave it as it is.
"""


@dataclass(frozen=True, slots=True)
class Device:
    """A physical processor as a backend sees it. `memory_bytes` is what one process may use at most."""

    id: str
    """Unique on the machine, for example `cpu:0`, `cuda:1`."""
    backend: str
    kind: str
    """Device class: `cpu.x86_64`, `cpu.aarch64`, `gpu.nvidia`, `gpu.arm`, `gpu.amd`, `dla.nvidia`, `npu.VENDOR`."""
    name: str
    arch: str
    """`x86-64-v3`, `armv8.2-a`, `sm_87`, `gfx942`, `mali-g610`."""
    features: frozenset[str]
    memory_bytes: int
    unified_memory: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)
    drivers: Mapping[str, str] = field(default_factory=dict)
    """Driver → version as numbers joined by dots (`nvidia`: `550.54.14`), for the driver ranges of whitelists."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a device can do through this backend."""

    dtypes: frozenset[str]
    dynamic_shapes: bool
    arena_in_place: bool
    """Inputs and outputs may lie in a link's arena; when False every use is a counted copy."""
    seals: bool = False
    cancels: bool = False
    """Its bindings are `Cancels`: a run can be ended from another thread at the next operator."""
    streams: int = 1
    """How many runs the device works on at once; more of them wait for one another and still end."""
    priorities: int = 1
    """How many levels it tells apart; with 1 every urgency is served alike."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What one executable may take of the machine."""

    threads: int = 1
    cores: tuple[int, ...] = ()
    """Cores to pin worker threads to; empty leaves the choice to the kernel."""
    spin: bool = False
    """Worker threads may spin between runs; False on every board that must idle cool."""
    urgency: int = 3
    """As RFC 9218 counts it, 0 (first) to 7: which stream's work the device begins first. A backend folds the eight
    levels into the `priorities` its device has; with several, executables of one urgency share a stream."""

    def __post_init__(self) -> None:
        if not 0 <= self.urgency <= 7:
            raise UsageError("urgency is out of range", where="budget", found=self.urgency, allowed="0 (first) to 7")


@dataclass(frozen=True, slots=True)
class LowerRequest:
    """One graph to be lowered for one class of hardware, at compile time."""

    name: str
    onnx: bytes
    """A self-contained ONNX ModelProto (initialisers inside)."""
    arch: str
    features: frozenset[str]
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LoweredGraph:
    """The graph a backend wants to find in the package, and its weights apart from it.

    `code` refers to a weight by its name only; the compiler decides where its bytes lie and tells `finish`.
    `finish(places)` gives the final graph bytes for `places[weight] = (section, offset, size)`.
    """

    code: bytes
    weights: Mapping[str, Array]
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    decisions: tuple[tuple[str, str], ...] = ()
    """(choice, rule that led to it), shown by `dpfedge inspect --targets`."""
    arithmetic: Literal["graph", "tf32", "half", "int8", "dequantised", "block16"] = "graph"
    """The coarsest numbers this target computes with where the graph asks for finer ones; golden tolerances follow.

    `dequantised`: activations that the graph quantises while running stay floats; results differ by that rounding.
    `block16`: where the graph lets products with blocks round activations to 8 bits, they are rounded to 16.
    """
    mapped: frozenset[str] = frozenset()
    """Weights that are used where the package is mapped and nowhere else; of others a second form is counted, too."""


@dataclass(frozen=True, slots=True)
class SealedView:
    """One thing that `Seals.seal` built, as it lies in the mapped sidecar."""

    data: memoryview
    file: int
    """Descriptor of the sidecar, for backends that map parts of it anew; it stays open while the graph is loaded."""
    offset: int
    """Of `data` in that file; a multiple of 65 536."""


@dataclass(frozen=True, slots=True)
class GraphView:
    """A lowered graph as it lies in the opened package: nothing here was copied."""

    name: str
    code: memoryview
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    weights: Mapping[str, memoryview]
    """Section name → its bytes; the graph addresses weights as (section name, offset)."""
    options: Mapping[str, Any] = field(default_factory=dict)
    sealed: Mapping[str, SealedView] = field(default_factory=dict)
    """What the backend's `seal` built for this device, in the mapped sidecar; empty without a seal that fits."""
    samples: Sequence[Mapping[str, Array]] = ()
    """Complete inputs of the package's golden runs; given to `seal`, for what has to run before it can be kept."""


@dataclass(frozen=True, slots=True)
class Health:
    """A device's state now: shares in [0, 1], temperature in °C where known."""

    utilisation: float
    free_memory: float
    temperature_c: float | None = None
    throttled: bool = False
    ecc_corrected: int = 0
    """Memory errors that ECC corrected: a total that only rises while the driver is loaded, as the next two are."""
    ecc_uncorrected: int = 0
    """Memory errors that ECC could not correct."""
    faults: int = 0
    """Faults of the device itself that its driver told: NVIDIA's XIDs, AMD's resets; not those a program caused."""
    power_w: float | None = None
    """Watts it draws, or the whole board where no sensor tells them apart; None where nobody tells."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What the bits of a result depend on, and so everything that was built on a device; all values are text."""

    device: Mapping[str, str]
    """`kind`, `arch`, `features` and whatever else decides which kernels run."""
    libraries: Mapping[str, str]
    """Library → version, the plugin's own among them."""
    driver: str = ""
    """Name and version; empty where there is none."""


class Binding(Protocol):
    """A prepared call whose buffers stay where they are; made once, run many times, by one thread at a time.

    Arrays must be C-contiguous and of the port's dtype. Memory belongs to the caller and must outlive the binding.
    """

    def set_input(self, name: str, array: Array) -> None:
        """Read input `name` from `array` in place on every following run."""

    def set_output(self, name: str, array: Array | None) -> None:
        """Write output `name` into `array` in place (of the result's shape, not read-only), or None: the backend
        allocates, and `array` is written no more."""

    def link(self, output: str, input: str) -> None:
        """After each run, feed this run's `output` (backend-allocated) to `input` of the next, without a copy."""

    def run(self) -> None:
        """Run once; every bound output is completely written, or BackendError is raised."""

    def output(self, name: str) -> Array:
        """The last run's output: the bound array, or a view of the backend's memory valid until the next run."""


class Executable(Protocol):
    """A model loaded on a device, ready to run."""

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """One run with every output allocated by the backend."""

    def bind(self) -> Binding:
        """A new prepared call."""

    def close(self) -> None:
        """Unload: give memory of the device and of this process back, with threads and files; later runs, also of its
        bindings, raise BackendError, a second close is nothing."""


class Backend(Protocol):
    """Lowers, loads and runs graphs on one kind of device."""

    name: str
    version: str
    abi: int

    def devices(self, sysroot: Path) -> Sequence[Device]:
        """Devices this backend could use on the machine whose root is `sysroot`; Unavailable says what is missing.

        `/` is this machine. Of any other root, a recording, files are read only: nothing of this machine may show.
        """

    def capabilities(self, device: Device) -> Capabilities:
        """What `device` can do."""

    def lower(self, request: LowerRequest) -> LoweredGraph:
        """Optimise one graph for a class of hardware; needs no such hardware. Unsupported says why not."""

    def finish(self, lowered: LoweredGraph, places: Mapping[str, tuple[str, int, int]]) -> bytes:
        """The final graph bytes once every weight has its place: name → (section name, offset, size in bytes)."""

    def load(self, graph: GraphView, device: Device, budget: Budget) -> Executable:
        """Make `graph` ready on `device`; maps weights in place where the device can."""

    def health(self, device: Device) -> Health:
        """The device's state now."""


class Cancels(Protocol):
    """What a binding has besides when its backend says `cancels`."""

    def cancel(self) -> None:
        """End this binding's run at its next operator; it and each later run of it raise RunCancelled until `rearm`.

        For any thread at any time: an owner that cancels just before a run begins has cancelled it, too.
        """

    def rearm(self) -> None:
        """Runs are allowed again; called by the thread that runs, where its next request begins."""


class Seals(Protocol):
    """What a backend has besides when something built on a device may be kept; a backend without it seals nothing."""

    compares_sealed: bool
    """Whether loading compares every sealed byte it uses with one it made itself: then no digest has to be checked."""

    def identity(self, device: Device) -> Identity:
        """What a seal or a baked prefix of `device` is bound to; reads files only and imports no native library."""

    def seal(self, graph: GraphView, device: Device, budget: Budget) -> Mapping[str, Sequence[Array]] | None:
        """Build what only `device` can build for `graph`: name → bytes in pieces, handed back in `GraphView.sealed`.

        None when there is nothing to build. What was built must not change a result by a bit.
        """


def keeps_links(executable: object) -> bool:
    """Whether what its bindings `link` stays in a memory of the device's own: caches are best carried over so.

    An executable says it by `keeps_links = True`; elsewhere memory of the caller, written in place, is as near.
    """
    return bool(getattr(executable, "keeps_links", False))


def missing(backend: object) -> tuple[str, ...]:
    """What an object lacks to be a `Backend`: names of fields and methods, in the contract's order; none is well."""
    wanted = (*Backend.__annotations__, *(name for name in vars(Backend) if not name.startswith("_")))
    return tuple(name for name in wanted if not hasattr(backend, name))


def cancelling(binding: object) -> Cancels | None:
    """`binding` as one that cancels; None when it cannot be stopped."""
    return cast(Cancels, binding) if hasattr(binding, "cancel") and hasattr(binding, "rearm") else None


def sealing(backend: object) -> Seals | None:
    """`backend` as one that seals; None when it lacks that."""
    return cast(Seals, backend) if hasattr(backend, "identity") and hasattr(backend, "seal") else None
