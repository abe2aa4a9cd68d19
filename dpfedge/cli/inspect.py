# SPDX-License-Identifier: Apache-2.0
"""`dpfedge inspect`: show what a package holds; the work is done by `dpfedge.package`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dpfedge.cli.graph_view import graph_lines, graph_record
from dpfedge.cli.trusting import shown
from dpfedge.errors import FormatError, UsageError
from dpfedge.hardware.source.root import label
from dpfedge.package import Expression, Graph, Manifest, Package, Target
from dpfedge.package.fields import CONTROL
from dpfedge.package.sidecar import SealRecord
from dpfedge.pipeline.graph import Graph as PipelineGraph
from dpfedge.pipeline.plan import PipelineFile
from dpfedge.pipeline.prepare import is_pipeline_file
from dpfedge.signing import Trust, examine
from dpfedge.store import locate
from dpfedge.tensors import TensorSpec

_NUMBER = re.compile(r"\d+")
_SBOM = "sbom.cdx.json"
NAME = "inspect"
HELP = """Show what a package holds: sections, models, licences, targets.

examples:
  dpfedge inspect voice.dpfbin
  dpfedge inspect voice.dpfbin --targets    each decision of the compiler with the rule that led to it
  dpfedge inspect voice.dpfbin --json       the whole manifest
  dpfedge inspect voice.dpfbin --sbom       the bill of materials, CycloneDX JSON
  dpfedge inspect voice.dpfbin --graph      the pipeline: stages, ports, links
  dpfedge inspect pipeline.yaml             the same of a pipeline file, checked as at its start

Header and manifest are checked; `dpfedge verify` checks the content of sections too."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument(
        "package", metavar="PACKAGE", help="a .dpfbin file, the name of an installed package, or a pipeline file"
    )
    parser.add_argument("--graph", action="store_true", help="show the pipeline's stages, ports and links only")
    parser.add_argument("--targets", action="store_true", help="show the targets with ports and decisions only")
    parser.add_argument("--sbom", action="store_true", help="print the bill of materials only")
    parser.add_argument("--json", action="store_true", help="print the manifest as JSON")


def run(args: argparse.Namespace) -> int:
    """Print the manifest in one of three forms, or the bill of materials."""
    if is_pipeline_file(args.package):
        if args.targets or args.sbom:
            where = "--targets" if args.targets else "--sbom"
            raise UsageError("a pipeline file has none", where=where, found=args.package, allowed="a package")
        _graph(_of_file(Path(args.package)), args.json)
        return 0
    with locate(args.package).open() as package:
        if args.graph:
            _graph(PipelineGraph.of_package(package), args.json)
            return 0
        if args.sbom:
            print(_sbom(package), end="")
            return 0
        if args.json:
            print(json.dumps(dataclasses.asdict(package.manifest), indent=2, default=_plain))
            return 0
        lines = _targets(package.manifest) if args.targets else _summary(package)
        for line in lines:
            print(line)
    return 0


def _graph(graph: PipelineGraph, as_json: bool) -> None:
    if as_json:
        print(json.dumps(graph_record(graph), indent=2))
        return
    for line in graph_lines(graph):
        print(line)


def _of_file(path: Path) -> PipelineGraph:
    """The graph of a pipeline file, with the models of the package it names."""
    file = PipelineFile.load(path)
    if file.package is None:
        return file.graph(None)
    with locate(file.package).open() as package:
        return file.graph(package)


def _sbom(package: Package) -> str:
    if all(section.name != _SBOM for section in package.manifest.sections):
        raise FormatError("the package has no bill of materials", where=str(package.path), remedy="compile it again")
    where = f"{package.path}: {_SBOM}"
    try:
        text = bytes(package.section(_SBOM)).decode()
    except UnicodeDecodeError as error:
        raise FormatError("the bill of materials is no text", where=where) from error
    if bad := CONTROL.search(text):
        raise FormatError(
            "a character that is not allowed", where=where, found=f"{bad[0]!r} at character {bad.start()}"
        )
    return text


def _summary(package: Package) -> Iterator[str]:
    manifest = package.manifest
    form = "{}.{}".format(*manifest.format)
    yield f"{manifest.name} {manifest.version}, format {form}, {package.nbytes} bytes"
    yield from shown(examine(package, Trust.load()))
    if manifest.seal is not None:
        yield from _seal(manifest.seal)
    yield "compiler: " + ", ".join(label(f"{key} {value}") for key, value in manifest.compiler.items())
    yield "sections (name, kind, offset and size in bytes, SHA-256):"
    width = max((len(section.name) for section in manifest.sections), default=0)
    for section in manifest.sections:
        digest = section.sha256.hex()[:16]
        yield f"  {section.name:<{width}}  {section.kind:<7}  {section.offset:>12}  {section.size:>12}  {digest}"
    yield "models:"
    for name, model in manifest.models.items():
        yield f"  {name}: {model.family}, {model.licence}, from {model.source}"
        yield from (f"    asset {asset}: {section}" for asset, section in model.assets.items())
    yield "targets:"
    for target in manifest.targets:
        yield f"  {_title(target)}"
    yield "licences:"
    yield from (f"  {item.name}: {item.spdx}" for item in manifest.licences)


def _seal(seal: SealRecord) -> Iterator[str]:
    """What a sidecar was built for, in the words a refusal would use."""
    yield f"seal of package {seal.package.hex()[:16]}, target {seal.target}, backend {seal.backend}"
    yield from (f"  device/{name}: {value}" for name, value in seal.device.items())
    yield from (f"  library/{name}: {value}" for name, value in seal.libraries.items())
    yield from ([f"  driver: {seal.driver}"] if seal.driver else [])
    yield from (f"  built {item.name} of {item.model}.{item.graph}: {item.section}" for item in seal.built)
    yield from (f"  prefix of {model}: {len(item.tokens)} tokens" for model, item in seal.prefixes.items())


def _targets(manifest: Manifest) -> Iterator[str]:
    for target in manifest.targets:
        yield _title(target)
        yield from (f"  {choice}  because  {rule}" for choice, rule in target.decisions)
        for name, model in target.models.items():
            if model.prefix is not None:
                yield f"  {name}: prefix of {len(model.prefix.tokens)} tokens in {model.prefix.section}"
                yield from (f"    {key}: {value}" for key, value in model.prefix.key.items())
            for key, graph in model.graphs.items():
                yield f"  {name}.{key}: {graph.section} with {', '.join(graph.weights) or 'no weights'}"
                yield from (f"    {port}" for port in _ports(graph))


def _title(target: Target) -> str:
    memory = f"{target.memory_bytes / 2**20:.0f} MiB"
    return f"{target.id}: backend {target.backend} (contract {target.backend_abi}), {memory}, {_show(target.whitelist)}"


def _ports(graph: Graph) -> Iterator[str]:
    for direction, specs in (("in ", graph.inputs), ("out", graph.outputs)):
        yield from (f"{direction} {port}" for port in _folded(specs))


def _folded(specs: Sequence[TensorSpec]) -> Iterator[str]:
    """Ports that differ only in the numbers of their names stand on one line."""
    groups: dict[tuple[str, str], list[str]] = {}
    for spec in specs:
        shape = f"{spec.dtype}[{','.join(str(dim) for dim in spec.dims)}]"
        groups.setdefault((_NUMBER.sub("#", spec.name), shape), []).append(spec.name)
    for (_, shape), names in groups.items():
        more = f" … {names[-1]} ({len(names)})" if len(names) > 1 else ""
        yield f"{names[0]}{more} {shape}"


def _show(expression: Expression) -> str:
    """`and(board(host), memory(1024))`."""
    operator, *arguments = expression
    shown = (_show(item) if isinstance(item, tuple) else str(item) for item in arguments)
    return f"{operator}({', '.join(shown)})"


def _plain(value: Any) -> str:
    if isinstance(value, bytes):
        return value.hex()
    raise TypeError(f"{type(value).__name__} has no JSON form")
