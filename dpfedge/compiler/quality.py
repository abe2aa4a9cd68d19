# SPDX-License-Identifier: Apache-2.0
"""A model before and after its weights changed form in, how much worse its answers are out; it changes nothing.

A decoder reads a short built-in text token by token, as it will when it speaks; other models run on their golden
inputs. The figures depend on the graph and on the text alone, to three digits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from dpfedge.backend.api import Array
from dpfedge.compiler.families import Imported
from dpfedge.compiler.golden import make_cases
from dpfedge.compiler.reference import Reference
from dpfedge.errors import ModelError
from dpfedge.records import dataclass

__all__ = ["Quality", "compare", "decoder_quality", "graphs_quality"]

_TOKENS_MAX = 320
"""Tokens of the text that are read: about half a minute for a model of one billion weights."""


@dataclass(frozen=True, slots=True)
class Quality:
    """What a changed form costs: `loss` is what a recipe's `max_loss` bounds."""

    loss: float
    """Growth of perplexity (0.05: 5 % higher), or the largest relative L2 error of an output."""
    figures: Mapping[str, float]

    def decision(self, form: str) -> tuple[str, str]:
        """(choice, rule) for the package."""
        text = ", ".join(f"{name} {value:g}" for name, value in self.figures.items())
        return f"quality of {form}: loss {self.loss:g}", f"measured when compiled: {text}"

    def require(self, limit: float | None, where: str, form: str) -> None:
        """ModelError with all figures when the loss is above `limit`."""
        if limit is not None and self.loss > limit:
            raise ModelError(
                f"weights: {form} costs more than max_loss",
                where=where,
                found=f"loss {self.loss:g} ({self.decision(form)[1]})",
                allowed=f"at most {limit:g}",
                remedy="choose a wider format or raise max_loss",
            )


def decoder_quality(before: Imported, after: Imported, where: str, folder: Path | None = None) -> Quality:
    """Perplexity of the built-in text before and after, and how far the logits moved.

    `folder` is where the matrices of `before` lie when its graph keeps them outside.
    """
    tokens = _text_tokens(before, where)
    kept = list(_logits(before.graphs["llm"], tokens, where, folder))
    losses, moved, largest, size = np.zeros(2), 0.0, 0.0, 0.0
    for wanted, found, token in zip(kept, _logits(after.graphs["llm"], tokens, where), tokens[1:], strict=True):
        losses += [_surprise(wanted, token), _surprise(found, token)]
        wanted, found = wanted - wanted.mean(), found - found.mean()  # a shift of all logits changes no probability
        difference = found - wanted
        moved, size = moved + float(difference @ difference), size + float(wanted @ wanted)
        largest = max(largest, float(np.abs(difference).max()))
    old, new = np.exp(losses / len(kept)).tolist()
    figures = {"perplexity_before": old, "perplexity_after": new, "rel_l2": (moved / (size or 1.0)) ** 0.5,
               "max_abs": largest, "tokens": float(len(tokens))}  # fmt: skip
    return Quality(_short(max(0.0, new / old - 1)), {name: _short(value) for name, value in figures.items()})


def graphs_quality(name: str, family: str, before: Imported, after: Imported) -> Quality:
    """The largest error of any output on the model's golden inputs."""
    worst = {"rel_l2": 0.0, "max_abs": 0.0}
    cases, _ = make_cases(name, family, before)
    runs: dict[str, Reference] = {}
    for case in cases:
        if after.graphs[case.graph] is before.graphs[case.graph]:
            continue
        if case.graph not in runs:
            runs[case.graph] = Reference(f"{name}.{case.graph}", after.graphs[case.graph], asked=True)
        answers = runs[case.graph].run(case.feeds)
        for port, box in case.outputs.items():
            corner = tuple(slice(start, start + size) for start, size in zip(box.at, box.values.shape, strict=True))
            for key, value in compare(answers[port][corner], box.values).items():
                worst[key] = max(worst[key], value)
    figures = {**{key: _short(value) for key, value in worst.items()}, "cases": float(len(cases))}
    return Quality(figures["rel_l2"], figures)


def compare(found: Array, wanted: Array) -> dict[str, float]:
    """`rel_l2` and `max_abs` of one output against what it was; another shape counts as 1 and infinite."""
    if found.shape != wanted.shape:
        return {"rel_l2": 1.0, "max_abs": float("inf")}
    if not wanted.size:
        return {"rel_l2": 0.0, "max_abs": 0.0}
    first, second = found.astype(np.float64), wanted.astype(np.float64)
    return {"rel_l2": _relative(first, second), "max_abs": float(np.abs(first - second).max())}


def _text_tokens(model: Imported, where: str) -> list[int]:
    from tokenizers import Tokenizer

    text = files("dpfedge.compiler").joinpath("quality.txt").read_text("utf-8")
    ids = Tokenizer.from_buffer(model.assets["tokenizer.json"]).encode(text, add_special_tokens=False).ids
    first = [int(model.config["bos"])] if model.config.get("add_bos") else []
    tokens = [*first, *ids][: min(_TOKENS_MAX, int(model.config["context"]))]
    if len(tokens) < 2 or max(tokens) >= int(model.config["vocabulary"]):
        raise ModelError("the tokenizer does not fit the model", where=where, found=f"{len(tokens)} tokens")
    return tokens


def _logits(graph: onnx.ModelProto, tokens: Sequence[int], where: str, folder: Path | None = None) -> Iterator[Array]:
    """f32[vocabulary] behind each token but the last, one step at a time."""
    run = Reference(where, graph, folder, asked=True)
    feeds: dict[str, Any] = {}
    for spec in run.inputs[2:]:
        feeds[spec.name] = np.zeros([int(dim) for dim in spec.dims], spec.numpy)
    places = {name.replace("past_key_values", "present"): name for name in feeds}
    mask = np.ones((1, len(tokens)), np.int64)
    for count, token in enumerate(tokens[:-1], 1):
        step = {"input_ids": np.array([[token]], np.int64), "attention_mask": mask[:, :count]}
        yield run.run({**step, **feeds}, places)["logits"].reshape(-1)


def _surprise(logits: Array, token: int) -> float:
    """−log of the probability of `token`."""
    wide = logits.astype(np.float64)
    highest = wide.max()
    return float(highest + np.log(np.exp(wide - highest).sum()) - wide[token])


def _relative(found: Array, wanted: Array) -> float:
    size = float(np.linalg.norm(wanted))
    return float(np.linalg.norm(found - wanted)) / (size or 1.0)


def _short(value: float) -> float:
    """Three digits: sums differ in their last digits from one kind of CPU to another."""
    return float(f"{value:.3g}")
