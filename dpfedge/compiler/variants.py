# SPDX-License-Identifier: Apache-2.0
"""One model of a recipe in, for each target its graphs with weights in that target's form and its fixed shapes out.

Each form is made and measured once, whatever the number of targets that share it. It lowers nothing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dpfedge.backend.api import Backend, Device
from dpfedge.compiler.buckets import with_buckets
from dpfedge.compiler.families import FAMILIES, Imported, Options
from dpfedge.compiler.formats import KEEP, Form, choose
from dpfedge.compiler.graph_formats import in_form
from dpfedge.compiler.quality import Quality, decoder_quality, graphs_quality
from dpfedge.compiler.recipe import ModelSource
from dpfedge.compiler.targets import TargetPlan
from dpfedge.errors import Unsupported
from dpfedge.records import dataclass

__all__ = ["Variant", "Variants"]


@dataclass(frozen=True, slots=True)
class Variant:
    """A model in one form, and what the form costs; None for the original."""

    imported: Imported
    quality: Quality | None = None


class Variants:
    """The forms of one model. A decoder whose every target changes the form is never built in the files' own."""

    def __init__(
        self,
        source: ModelSource,
        files: Mapping[str, Path],
        options: Options,
        progress: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._source, self._files, self._options, self._progress = source, files, options, progress
        self._family = FAMILIES[source.family]
        self._made: dict[tuple[str, str | None], Variant] = {}

    def form(self, plan: TargetPlan) -> Form:
        """The form of the weights on one target; Unsupported where it has no such format."""
        return choose(self._source.weights, plan.kind, plan.arch, f"{self._source.where}: target {plan.id}")

    def of(self, plan: TargetPlan, backend: Backend) -> Imported:
        """The model for one target; ModelError when its form costs more than the recipe allows."""
        form = self.form(plan)
        variant = self.in_form(form)
        notes = variant.imported.decisions + form.decisions
        if variant.quality is not None:
            notes += (variant.quality.decision(form.name),)
        fixed = with_buckets(
            variant.imported, self._source.buckets, dynamic=_dynamic(plan, backend), where=self._source.where,
            offered="buckets" in self._family.options,
        )  # fmt: skip
        return replace(fixed, decisions=notes)

    def first(self, plans: Sequence[TargetPlan]) -> Imported:
        """The model in the form of the first target that has one, without buckets; Unsupported when none has."""
        errors = []
        for plan in plans:
            try:
                return self.in_form(self.form(plan)).imported
            except Unsupported as error:
                errors.append(error)
        raise errors[0]

    def in_form(self, form: Form) -> Variant:
        """The model in one form, without buckets."""
        if form.name == "keep" and form.key not in self._made:
            self._made[form.key] = Variant(self._family.load(self._files, self._options))
        if form.key not in self._made:
            self._progress(f"{self._source.name}: convert to {form.name}")
            imported = self._converted(form)
            self._made[form.key] = Variant(imported, self._quality(imported, form))
        return self._made[form.key]

    def compared(self, form: Form) -> Imported:
        """The model in one form, with the smallest bucket of each graph: what golden values are recorded of."""
        imported = self.in_form(form).imported
        least = {dim: [min(sizes)] for dim, sizes in self._source.buckets.items()}
        return with_buckets(imported, least, dynamic=True, where=self._source.where) if least else imported

    def figures(self) -> dict[str, Any]:
        """Form → loss and figures, for the model's config."""
        return {
            name: {"loss": variant.quality.loss, **variant.quality.figures}
            for (name, _), variant in self._made.items()
            if variant.quality is not None
        }

    def _converted(self, form: Form) -> Imported:
        if not self._family.forms:
            imported = self.in_form(KEEP).imported
        else:
            imported = self._family.load(self._files, replace(self._options, form=form))
            if form.element is None:
                return imported
        found = {name: in_form(graph, form) for name, graph in imported.graphs.items()}
        decisions = dict.fromkeys(note for _, notes in found.values() for note in notes)
        graphs = {name: graph for name, (graph, _) in found.items()}
        return replace(imported, graphs=graphs, decisions=(*imported.decisions, *decisions))

    def _quality(self, imported: Imported, form: Form) -> Quality | None:
        """What the form costs, within the recipe's limit; None when no graph had anything to convert."""
        same = not self._family.forms and all(
            graph is self.in_form(KEEP).imported.graphs[name] for name, graph in imported.graphs.items()
        )
        if same:
            return None
        self._progress(f"{self._source.name}: quality of {form.name}")
        quality = self._measured(imported)
        quality.require(self._source.max_loss, self._source.where, form.name)
        return quality

    def _measured(self, imported: Imported) -> Quality:
        if not self._family.forms:
            return graphs_quality(self._source.name, self._source.family, self.in_form(KEEP).imported, imported)
        with tempfile.TemporaryDirectory(prefix="dpfedge-quality-") as folder:
            spilled = replace(self._options, spill=Path(folder, "matrices"))
            before = self._family.load(self._files, spilled)
            return decoder_quality(before, imported, self._source.name, Path(folder))


def _dynamic(plan: TargetPlan, backend: Backend) -> bool:
    """Whether the backend runs graphs whose sizes change from run to run on the target's kind of device."""
    device = Device(f"{plan.kind}:0", backend.name, plan.kind, plan.arch, plan.arch, plan.features, 0)
    return backend.capabilities(device).dynamic_shapes
