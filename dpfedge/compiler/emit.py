# SPDX-License-Identifier: Apache-2.0
"""A recipe in, a package file out: import each model once, lower it for each target, write sections and manifest.

Models are handled one after the other so that one model's weights are in memory at a time. The same inputs give the
same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import EncodeError  # type: ignore[import-untyped]

from dpfedge import __version__
from dpfedge.backend.api import Backend, LoweredGraph, LowerRequest
from dpfedge.backend.registry import Registry
from dpfedge.binding import look
from dpfedge.compiler.baking import Bake, bake_target
from dpfedge.compiler.companions import companions
from dpfedge.compiler.families import Imported, Options
from dpfedge.compiler.formats import Form
from dpfedge.compiler.golden import make_cases, write_cases
from dpfedge.compiler.placing import Placing, stages_of
from dpfedge.compiler.recipe import ModelSource, Recipe
from dpfedge.compiler.sbom import SBOM, Material, bill, material
from dpfedge.compiler.sources import ModelFilesFound, find_files
from dpfedge.compiler.targets import TargetPlan, plan_targets
from dpfedge.compiler.variants import Variants
from dpfedge.errors import Unsupported
from dpfedge.package import PackageWriter, WeightPool
from dpfedge.plugin.border import Contract

__all__ = ["Progress", "compile_package"]

Progress = Callable[[str], None]
"""Called with what is being done now."""
_RUNTIME_BYTES = 256 << 20  # Python, onnxruntime and activations of four stages


def compile_package(
    recipe: Recipe,
    out: Path,
    *,
    boards: Sequence[str],
    registry: Registry,
    mode: str | None = None,
    progress: Progress = lambda text: None,
    on_download: Callable[[str, int, int], None] | None = None,
    bake: Bake | None = None,
) -> None:
    """Write the package of `recipe` for `boards` to `out`. `mode` overrules the recipe's; `bake` computes prefixes.

    `boards`: ids, or `ID:DEVICE`. Unsupported where a model cannot go to the devices that a board places it on.
    """
    plans = plan_targets(boards, registry, stages_of([source.name for source in recipe.models], recipe.pipeline))
    models: dict[str, Any] = {}
    licences: list[dict[str, Any]] = []
    golden: list[dict[str, Any]] = []
    materials: list[Material] = []
    targets = [_Target(number, plan, registry.get(plan.backend)) for number, plan in enumerate(plans, 1)]
    with PackageWriter(out, name=recipe.name, version=recipe.version) as writer:
        for source in recipe.models:
            progress(f"{source.name}: import")
            files = find_files(source, recipe.path.parent, on_download)
            options = Options(mode or source.mode or "fast", source.context)
            variants = Variants(source, files.paths, options, progress)
            first = variants.first(plans)
            models[source.name] = _model(writer, source, files, first)  # numbers and assets are the same in every form
            licences += _licences(writer, source, files)
            materials.append(_material(source, files))
            _offer(writer, source, variants, targets, progress)
            if figures := variants.figures():
                models[source.name]["config"]["formats"] = figures
            progress(f"{source.name}: golden values")
            golden += _golden(writer, source, variants, [target for target in targets if source.name in target.models])
        targets = [target for target in targets if target.models]
        records = [target.record() for target in targets]
        if bake is not None:
            here = look(registry=registry)
            for record in records:
                progress(f"bake prefixes of {record['id']}")
                bake_target(writer, record, models, recipe.pipeline, here, bake)
        progress("write")
        plugins = {f"dpfedge-{target.backend.name}": target.backend.version for target in targets}
        writer.add(SBOM, "licence", bill(recipe.name, recipe.version, materials, {**_compiler(), **plugins}))
        writer.finish(
            {
                "compiler": _compiler(),
                "models": models,
                "targets": records,
                "pipeline": recipe.pipeline,
                "licences": licences,
                "golden": golden,
            }
        )


def _offer(
    writer: PackageWriter, source: ModelSource, variants: Variants, targets: Sequence[_Target], progress: Progress
) -> None:
    """Lower a model for the targets that take it; Unsupported when nothing else may after a refusal."""
    placing = Placing(source.name, source.where)
    for target in sorted(targets, key=lambda one: placing.depth(one.plan.spot, one.plan.chains)):
        spot, chains = target.plan.spot, target.plan.chains
        if not placing.asks(spot, chains):
            continue
        try:
            imported = variants.of(target.plan, target.backend)
            progress(f"{source.name}: lower for {target.plan.id}")
            target.add(writer, source.name, imported)
        except Unsupported as error:
            placing.refuse(spot, chains, error)
            continue
        placing.take(spot)
        target.note(source.name, placing.decisions(spot, chains))


def _compiler() -> dict[str, str]:
    return {
        "name": "dpfedge",
        "version": __version__,
        "onnx": version("onnx"),
        "onnxruntime": version("onnxruntime"),
        "numpy": version("numpy"),
    }


def _model(writer: PackageWriter, source: ModelSource, files: ModelFilesFound, imported: Imported) -> dict[str, Any]:
    assets = {}
    for name, data in imported.assets.items():
        assets[name] = writer.add(f"{source.name}.{name}", "asset", data).name
    config = {key: value for key, value in imported.config.items() if value is not None}
    return {
        "family": source.family,
        "licence": files.licence,
        "source": files.source,
        "config": config,
        "assets": assets,
    }


def _golden(
    writer: PackageWriter, source: ModelSource, variants: Variants, targets: Sequence[_Target]
) -> list[dict[str, Any]]:
    """Golden records of a model: targets share them that got the same form of its weights and compute alike."""
    users: dict[tuple[Form, tuple[tuple[str, str], ...]], list[_Target]] = {}
    for target in targets:
        form = replace(variants.form(target.plan), decisions=())
        users.setdefault((form, tuple(sorted(target.coarse[source.name].items()))), []).append(target)
    records = []
    for number, ((form, coarse), members) in enumerate(users.items(), 1):
        cases, notes = make_cases(source.name, source.family, variants.compared(form), dict(coarse))
        for target in members:
            target.note_golden(source.name, notes)
        if len(users) == 1:
            records = write_cases(writer, source.name, cases)
        else:
            title = f"{form.title}.{number}" if coarse else form.title
            records += write_cases(writer, source.name, cases, title, [target.plan.id for target in members])
    # a target that has only graphs of fixed shape may lack the graph they stand for
    return [record for record in records if any(target.answers(record) for target in targets)]


def _material(source: ModelSource, files: ModelFilesFound) -> Material:
    paths = [path for file in files.paths.values() for path in (file, *companions(file))]
    return material(source.name, source.family, files.source, files.licence, files.homepage, paths)


def _licences(writer: PackageWriter, source: ModelSource, files: ModelFilesFound) -> list[dict[str, Any]]:
    record: dict[str, Any] = {"name": source.name, "spdx": files.licence}
    if not files.texts:
        return [record]
    rows = []
    for path in files.texts:
        section = writer.add(f"licence.{source.name}.{path.name}", "licence", path.read_bytes())
        rows.append({**record, "section": section.name})
    return rows


class _Target:
    """One target while the package is written."""

    def __init__(self, number: int, plan: TargetPlan, backend: Backend) -> None:
        self.number, self.plan, self.backend = number, plan, backend
        self.models: dict[str, Any] = {}
        self.decisions: dict[tuple[str, str], list[str]] = {note: [] for note in plan.decisions}
        self.memory = _RUNTIME_BYTES
        self.coarse: dict[str, dict[str, str]] = {}
        """Model → graph → the arithmetic of those that this target computes coarser, or finer, than they ask for."""

    def add(self, writer: PackageWriter, model: str, imported: Imported) -> None:
        """Lower one model, store its weights, then its graphs."""
        lowered: dict[str, LoweredGraph] = {}
        contract = Contract(f"backend {self.plan.backend}: model {model}")
        for name, onnx_graph in imported.graphs.items():
            request = LowerRequest(
                f"{model}.{name}",
                _serialised(onnx_graph, f"{model}.{name}"),
                self.plan.arch,
                self.plan.features,
                imported.hints.get(name, {}),
            )
            with contract:
                lowered[name] = self.backend.lower(request)
        places: dict[str, dict[str, tuple[str, int, int]]] = {name: {} for name in lowered}
        # later targets share these sections, so their names are those of no target
        with WeightPool(writer, f"weights.{model}.{self.number}") as pool:
            for weight, name in _by_size(lowered):
                places[name][weight] = pool.add(lowered[name].weights[weight])
        graphs = {}
        for name, graph in lowered.items():
            with contract:
                code = self.backend.finish(graph, places[name])
            section = writer.add(f"graph.{self.plan.id}.{model}.{name}", "graph", code)
            bucket = imported.hints.get(name, {}).get("bucket")
            graphs[name] = _graph(section.name, graph, places[name], self.plan.arch)
            graphs[name]["options"] |= {} if bucket is None else {"bucket": bucket}
        self.models[model] = {"graphs": graphs}
        found = {name: graph.arithmetic for name, graph in lowered.items()}
        self.coarse[model] = {name: arithmetic for name, arithmetic in found.items() if arithmetic != "graph"}
        self._note(model, imported, lowered, places)

    def _note(
        self,
        model: str,
        imported: Imported,
        lowered: Mapping[str, LoweredGraph],
        places: Mapping[str, Mapping[str, tuple[str, int, int]]],
    ) -> None:
        for decision in imported.decisions:
            self.decisions.setdefault(decision, []).append(model)
        for name, graph in lowered.items():
            for decision in graph.decisions:
                self.decisions.setdefault(decision, []).append(f"{model}.{name}")
        once, twice = _weights(lowered, places)
        rule = f"weights {_mib(twice)} twice, since their packed form lies beside the mapped one"
        if once:
            rule = f"weights {_mib(once)} once, used where they are mapped; {rule}"
        if imported.memory_bytes:
            rule += f", caches and activations {_mib(imported.memory_bytes)}"
        needed = once + 2 * twice + imported.memory_bytes
        self.decisions.setdefault((f"memory={_mib(needed)}", rule), []).append(model)
        self.memory += needed

    def note(self, model: str, decisions: Iterable[tuple[str, str]]) -> None:
        """Add what was decided on a model."""
        for decision in decisions:
            self.decisions.setdefault(decision, []).append(model)

    def note_golden(self, model: str, notes: Mapping[str, tuple[str, str]]) -> None:
        """Add what was decided on golden values, graph by graph that the target has."""
        for name, decision in notes.items():
            if name in self.models[model]["graphs"]:
                self.decisions.setdefault(decision, []).append(f"{model}.{name}")

    def answers(self, record: Mapping[str, Any]) -> bool:
        """Whether a golden record holds for one of its graphs."""
        return (
            record.get("target") in (None, self.plan.id) and record["graph"] in self.models[record["model"]]["graphs"]
        )

    def record(self) -> dict[str, Any]:
        """The target as the manifest keeps it."""
        exact = any("arch" in graph["options"] for model in self.models.values() for graph in model["graphs"].values())
        decisions = [
            [f"{', '.join(names)}: {choice}" if names else choice, rule]
            for (choice, rule), names in self.decisions.items()
        ]
        return {
            "id": self.plan.id,
            "backend": self.plan.backend,
            "backend_abi": self.backend.abi,
            "whitelist": self.plan.whitelist(exact=exact),
            "memory_bytes": self.memory,
            "decisions": decisions,
            "models": self.models,
        }


def _weights(
    lowered: Mapping[str, LoweredGraph], places: Mapping[str, Mapping[str, tuple[str, int, int]]]
) -> tuple[int, int]:
    """Bytes of the distinct weights that are used where they are mapped, and of those that get a second form."""
    found: dict[tuple[str, int, int], bool] = {}
    for graph, of_graph in places.items():
        for name, place in of_graph.items():
            found[place] = found.get(place, True) and name in lowered[graph].mapped
    once = sum(size for (_, _, size), mapped in found.items() if mapped)
    return once, sum(size for _, _, size in found) - once


def _mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:.1f} MiB"


def _bytes_of(graph: onnx.ModelProto) -> bytes:
    return bytes(graph.SerializeToString())


def _serialised(graph: onnx.ModelProto, where: str) -> bytes:
    try:
        return _bytes_of(graph)
    except EncodeError as error:
        raise Unsupported(
            "the graph is larger than ONNX can hold", where=f"graph {where}", allowed="2 GiB with all weights",
            remedy="choose a smaller form: weights: int8 or int4",
        ) from error  # fmt: skip


def _by_size(lowered: Mapping[str, LoweredGraph]) -> list[tuple[str, str]]:
    """(weight, graph), small ones first: runs read them in place, while large matrices are packed on loading.

    Among each other they keep a few pages in memory; strewn between the large ones they would keep those, too.
    """
    rows = [(array.nbytes, key, name) for name, graph in lowered.items() for key, array in graph.weights.items()]
    return [(key, name) for _, key, name in sorted(rows)]


def _graph(section: str, graph: LoweredGraph, places: Mapping[str, tuple[str, int, int]], arch: str) -> dict[str, Any]:
    blocked = any(choice.startswith("layout=") for choice, _ in graph.decisions)
    return {
        "section": section,
        "inputs": [spec.to_map() for spec in graph.inputs],
        "outputs": [spec.to_map() for spec in graph.outputs],
        "weights": sorted({place[0] for place in places.values()}),
        "options": {"arch": arch} if blocked else {},
    }
