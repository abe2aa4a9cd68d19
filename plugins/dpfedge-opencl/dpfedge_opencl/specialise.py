# SPDX-License-Identifier: Apache-2.0
"""A lowered graph made concrete: shapes of its inputs in, launches and the place of every value out.

It imports no `onnx` and touches no device. Where the CPU plugin computes something whose size nobody can know before,
a plan ends and `Plan.then` makes the next one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dpfedge.backend.api import Array
from dpfedge.errors import BackendError
from dpfedge.tensors import DTYPE_BYTES, dtype_name
from dpfedge_opencl.graph import SEGMENT, Graph
from dpfedge_opencl.hostvalues import evaluate
from dpfedge_opencl.ops.api import OPS, Facts, Node, Value
from dpfedge_opencl.ops.copies import copy_args
from dpfedge_opencl.plan import CpuCall, Kernel, Launch, Plan, Scalar, Slot, Tensor
from dpfedge_opencl.planning import Placing, Root, outermost
from dpfedge_opencl.specialise_state import Memo, Record, State, constants_of

__all__ = ["specialise"]


def specialise(
    graph: Graph, shapes: Mapping[str, tuple[int, ...]], shared: frozenset[tuple[str, str]], facts: Facts
) -> Plan:
    """The plan for inputs of these shapes; `shared` names (output, input) that lie in the same memory.

    BackendError names the node whose shapes do not fit.
    """
    state = constants_of(graph).copy(shared)
    for spec in graph.inputs:
        state.values[spec.name] = Value(spec.name, spec.dtype, tuple(shapes[spec.name]))
        state.roots[spec.name] = (Root("input", spec.name), 0)
    return _Walk(graph, facts, state, 0, 0).run()


class _Walk:
    """One stretch: walks nodes and is what an operator sees of it (`ops.api.Emitting`)."""

    def __init__(self, graph: Graph, facts: Facts, state: State, start: int, stretch: int) -> None:
        self.graph, self.facts, self._state = graph, facts, state
        self._start, self._stretch = start, stretch
        self._steps: list[Launch | CpuCall] = []
        self._memo = Memo.of(graph, facts)
        self._record = Record()
        self._outputs = {spec.name for spec in graph.outputs}
        self._node = graph.nodes[start] if start < len(graph.nodes) else Node("", "", (), (), {})
        self._scratches = 0
        self._aware: set[str] = set()

    def run(self) -> Plan:
        """Walk to the end, or to the first part whose sizes are unknown before it ran."""
        nodes = self.graph.nodes
        for index in range(self._start, len(nodes)):
            self._node = node = nodes[index]
            try:
                whole = self._visit(node)
            except (ValueError, IndexError, KeyError, TypeError, ZeroDivisionError) as error:
                raise BackendError(
                    "the shapes do not fit", where=f"graph {self.graph.name}: {node.op} {node.name}",
                    found=f"{error}; inputs {self._shapes_text(node)}",
                ) from error  # fmt: skip
            if not whole:
                return self._plan(index + 1)
        self._finish()
        return self._plan(None)

    def _visit(self, node: Node) -> bool:
        if node.name in self.graph.host:
            self._on_host(node)
            return True
        if node.op == SEGMENT:
            return self._on_cpu(node)
        operator = OPS.get(node.op)
        if operator is None:
            raise BackendError(
                "this plugin lacks an operator of the graph", where=f"graph {self.graph.name}: {node.name}",
                found=node.op, remedy="install the version of dpfedge-opencl that compiled the package",
            )  # fmt: skip
        values = self._state.values
        inputs = [values[name] if name else None for name in node.inputs]
        key = self._memo.key(inputs, self._state.shared)
        known = self._memo.find(node, key)
        if known is not None and self._replay(known):
            return True
        self._record = Record()
        self._scratches = 0
        self._declare(node.outputs, operator.shape(node, inputs))
        operator.emit(node, self)
        self._steps += self._record.launches
        self._memo.keep(node, key, self._record)
        return True

    def _replay(self, record: Record) -> bool:
        """Do again what the node did for these shapes; False where memory cannot be shared as it was then."""
        state, outputs = self._state, self._outputs
        for name, value, size in record.values:
            state.values[name] = value
            state.roots[name] = (Root("arena", name, size, name if name in outputs else ""), 0)
        for name, value, array in record.constants:
            state.values[name], state.contents[name] = value, array
        for output, input, offset, answer in record.aliases:
            if self._lay(output, input, offset) is not answer:
                return False
        for output, input, offset, answer in record.parts:
            if self._lay_within(output, input, offset) is not answer:
                return False
        self._aware |= record.aware
        self._steps += record.launches
        return True

    def _declare(self, names: Sequence[str], found: Sequence[tuple[str, tuple[int, ...]]]) -> None:
        values, roots = self._state.values, self._state.roots
        for name, (dtype, shape) in zip(names, found, strict=False):
            if name:
                value, size = Value(name, dtype, shape), _bytes(dtype, shape)
                values[name] = value
                roots[name] = (Root("arena", name, size, name if name in self._outputs else ""), 0)
                self._record.values.append((name, value, size))

    def _on_host(self, node: Node) -> None:
        state = self._state
        late = any(name in self.graph.late or name in state.tainted for name in node.inputs)
        self._compute(node, late)
        if late:
            self._state.late.append(node)

    def _compute(self, node: Node, late: bool) -> None:
        state = self._state
        inputs = [state.contents.get(name) for name in node.inputs]
        shapes = [state.values[name].shape if name else () for name in node.inputs]
        for name, array in zip(node.outputs, evaluate(node.op, node.attrs, inputs, shapes), strict=False):
            if name:
                dtype = _dtype_of(array)
                state.contents[name] = array
                state.values[name] = Value(name, dtype, array.shape, None if late else array)
                if late:
                    state.tainted.add(name)

    def _on_cpu(self, node: Node) -> bool:
        """Whether the sizes of its outputs are known."""
        call = CpuCall(node.attrs["segment"], node.inputs, node.outputs)
        self._steps.append(call)
        inner = node.attrs["inner"]
        if inner is None:
            return False
        values = dict(self._state.values)
        for op, name, inputs, outputs, attrs, host in inner:
            given = [values[one] if one else None for one in inputs]
            if host:
                known = [None if one is None else one.known for one in given]
                shapes = [() if one is None else one.shape for one in given]
                for out, array in zip(outputs, evaluate(op, attrs, known, shapes), strict=False):
                    values[out] = Value(out, _dtype_of(array), array.shape, array)
                continue
            made = Node(op, name, tuple(inputs), tuple(outputs), attrs)
            for out, (dtype, shape) in zip(outputs, OPS[op].shape(made, given), strict=False):
                values[out] = Value(out, dtype, shape)
        self._declare(node.outputs, [(values[name].dtype, values[name].shape) for name in node.outputs])
        return True

    def value(self, name: str) -> Value:
        """A value that is known by now."""
        return self._state.values[name]

    def scratch(self, dtype: str, shape: Sequence[int]) -> str:
        """A new value that only this node's launches name."""
        name = f"{self._node.name}#{self._scratches}"
        self._scratches += 1
        self._declare([name], [(dtype, tuple(shape))])
        return name

    def constant(self, array: Array) -> str:
        """Values of the host's making, for this node's launches and views."""
        name = f"{self._node.name}#{self._scratches}"
        self._scratches += 1
        value = Value(name, _dtype_of(array), array.shape)
        self._state.contents[name], self._state.values[name] = array, value
        self._record.constants.append((name, value, array))
        return name

    def alias(self, output: str, input: str, offset: int = 0) -> bool:
        """Lay `output` into the memory of `input`; a port of the graph becomes the memory of all that was there."""
        answer = self._lay(output, input, offset)
        self._record.aliases.append((output, input, offset, answer))
        return answer

    def _lay(self, output: str, input: str, offset: int) -> bool:
        state = self._state
        if input not in state.roots:
            return not offset and self._rename(output, input)
        root, at = state.roots[input]
        wanted = state.values[output]
        if output in self._outputs:
            free = root.home == "arena" and root.fixed is None and root.inside is None
            whole = free and root.output in ("", output)
            if not whole or at + offset or root.size != _bytes(wanted.dtype, wanted.shape):
                return root.home == "input" and (output, root.name) in state.shared and not at + offset
            root.output = output
        state.roots[output] = (root, at + offset)
        return True

    def within(self, output: str, input: str, offset: int) -> bool:
        """Lay the memory of `input` into that of `output`, which is new; False where it lies somewhere already."""
        answer = self._lay_within(output, input, offset)
        self._record.parts.append((output, input, offset, answer))
        return answer

    def _lay_within(self, output: str, input: str, offset: int) -> bool:
        roots = self._state.roots
        part, at = roots.get(input, (None, 0))
        whole = roots[output][0]
        if (
            part is None
            or at
            or part.home != "arena"
            or part.fixed is not None
            or part.output
            or part.inside is not None
        ):
            return False
        if part is outermost(whole)[0] or part.size != _size(self._state.values[input]):
            return False
        part.inside = (whole, offset)
        return True

    def _rename(self, output: str, input: str) -> bool:
        """Another name and shape for what the host knows."""
        state = self._state
        if output in self._outputs or input in state.tainted:
            return False
        state.contents[output] = state.contents[input].reshape(state.values[output].shape)
        del state.roots[output]
        return True

    def shares(self, output: str, input: str) -> bool:
        """Whether the caller bound both to the same memory."""
        found = (output, input) in self._state.shared
        if found:
            self._aware.add(output)
            self._record.aware.add(output)
        return found

    def launch(
        self,
        kernel: Kernel,
        args: Sequence[Tensor | Scalar],
        global_size: Sequence[int],
        local_size: Sequence[int] | None = None,
        work: int = 0,
    ) -> None:
        """Enqueue a kernel behind those before it."""
        local = None if local_size is None else tuple(local_size)
        self._record.launches.append(Launch(kernel, tuple(args), tuple(global_size), local, self._node.name, work))

    def _finish(self) -> None:
        """Outputs that lie elsewhere are copied to their ports; so is one whose port is an input's memory as well."""
        state = self._state
        for spec in self.graph.outputs:
            root = state.roots.get(spec.name)
            clash = root is not None and root[0].output == spec.name and self._clashes(spec.name)
            if clash:
                assert root is not None
                root[0].output = ""
            if root is not None and root[0].home == "cpu" and root[0].name == spec.name:
                continue  # the CPU plugin wrote it where it belongs
            if clash or root is None or root[0].output != spec.name or root[1]:
                self._copy_out(spec.name)

    def _clashes(self, output: str) -> bool:
        return output not in self._aware and any(output == one for one, _ in self._state.shared)

    def _copy_out(self, output: str) -> None:
        state = self._state
        root = state.roots.get(output)
        if root is not None and root[0].home == "input" and (output, root[0].name) in state.shared:
            return
        value = state.values[output]
        source = f"{output}#source"
        state.values[source] = Value(source, value.dtype, value.shape)
        if root is not None:
            state.roots[source] = root
        else:
            state.contents[source] = state.contents[output]
            if output in state.tainted:
                state.tainted.add(source)
        size = _bytes(value.dtype, value.shape)
        state.roots[output] = (Root("arena", output, size, output), 0)
        if size:
            self._node = Node("Copy", output, (), (), {})
            self._record = Record()
            width = DTYPE_BYTES[value.dtype]
            self.launch(*copy_args(source, output, size // width, width, self.facts))
            self._steps += self._record.launches

    def _plan(self, rest: int | None) -> Plan:
        """Lay everything out; `rest` is the first node of the next stretch."""
        kept: set[str] = set()
        if rest is not None:
            kept = {name for node in self.graph.nodes[rest:] for name in node.inputs if name} | self._outputs
        placing = Placing(self._state.values, self._state.contents, self._state.roots, self._stretch)
        last = self._steps[-1] if rest is not None else None
        unknown = frozenset(last.outputs if isinstance(last, CpuCall) else ())
        slots, arena = placing.place(self._steps, kept, unknown, [spec.name for spec in self.graph.outputs])
        late = None
        if self._state.tainted.intersection(placing.data_places):
            late = _Late(self.graph, self._state.late, self._state, placing.data_places)
        values = self._state.values
        shapes = {spec.name: values[spec.name].shape for spec in self.graph.outputs if spec.name in values}
        then = None
        if rest is not None:
            then = _Rest(self.graph, self.facts, self._state, rest, self._stretch + 1)
        return Plan(tuple(self._steps), slots, arena, shapes, then, bytes(placing.data), late)

    def _shapes_text(self, node: Node) -> str:
        values = self._state.values
        return ", ".join(f"{name} {list(values[name].shape)}" for name in node.inputs if name in values)


@dataclass(slots=True)
class _Rest:
    """What follows a CPU call: `plan.Then`."""

    graph: Graph
    facts: Facts
    state: State
    start: int
    stretch: int
    values: tuple[str, ...] = ()

    def __call__(self, shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, Array]) -> Plan:
        state = self.state.copy(self.state.shared)
        call = self.graph.nodes[self.start - 1]
        specs = self.graph.segments[call.attrs["segment"]].outputs
        for name, spec in zip(call.outputs, specs, strict=True):
            shape = tuple(shapes[name])
            state.values[name] = Value(name, spec.dtype, shape)
            fixed = Slot("cpu", 0, spec.dtype, shape, name)
            state.roots[name] = (Root("cpu", name, _bytes(spec.dtype, shape), fixed=fixed), 0)
        return _Walk(self.graph, self.facts, state, self.start, self.stretch).run()


class _Late:
    """Values of the host that change with sizes no plan depends on: `plan.Late`."""

    def __init__(self, graph: Graph, nodes: Sequence[Node], state: State, places: Mapping[str, int]) -> None:
        self._graph, self._nodes = graph, tuple(nodes)
        made = {name for node in nodes for name in node.outputs}
        read = {name for node in nodes for name in node.inputs}
        self._contents = {name: state.contents[name] for name in read - made if name in state.contents}
        self._shapes = {name: state.values[name].shape for name in read - made if name in state.values}
        self._places = {name: offset for name, offset in places.items() if name in state.tainted}
        self._sources = {name: name.removesuffix("#source") for name in self._places}

    def __call__(self, shapes: Mapping[str, tuple[int, ...]]) -> Sequence[tuple[int, bytes]]:
        contents = dict(self._contents)
        sizes = {**self._shapes, **{name: tuple(shapes[name]) for name in self._graph.late if name in shapes}}
        for node in self._nodes:
            inputs = [contents.get(name) for name in node.inputs]
            found = evaluate(node.op, node.attrs, inputs, [sizes.get(name, ()) for name in node.inputs])
            for name, array in zip(node.outputs, found, strict=False):
                contents[name], sizes[name] = array, array.shape
        return [(offset, contents[self._sources[name]].tobytes()) for name, offset in self._places.items()]


def _bytes(dtype: str, shape: Sequence[int]) -> int:
    return math.prod(shape) * DTYPE_BYTES[dtype]


def _size(value: Value) -> int:
    return _bytes(value.dtype, value.shape)


def _dtype_of(array: Array) -> str:
    return dtype_name(array.dtype)
