# SPDX-License-Identifier: Apache-2.0
"""Model families: a model's files in, its graphs, numbers and assets out; it lowers nothing.

The contract with the stages is GRAPHS.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from dpfedge.compiler.chat import chat_pieces
from dpfedge.compiler.decoder import build_decoder
from dpfedge.compiler.decoder.decisions import decisions
from dpfedge.compiler.decoder.loud import Loud, listen, text_ids
from dpfedge.compiler.decoder.opened import FOLDER_FILES, GGUF_FILES, open_decoder
from dpfedge.compiler.formats import KEEP, Form, FormedSource
from dpfedge.compiler.generic import import_graphs
from dpfedge.compiler.importer.onnx import import_onnx
from dpfedge.compiler.importer.ort import import_ort
from dpfedge.compiler.moonshine import FRAMES_MAX, TOKENS_MAX, build_moonshine
from dpfedge.compiler.ocr import HEIGHT, MULTIPLE, STEP, build_detector, build_reader
from dpfedge.compiler.piper import build_piper, hop_samples, overlap_frames
from dpfedge.compiler.vocabulary import vocabulary_tables
from dpfedge.errors import ModelError
from dpfedge.records import dataclass

__all__ = ["FAMILIES", "Family", "Imported", "Options"]


@dataclass(frozen=True, slots=True)
class Options:
    """What the compiler's user may choose for a model; a family reads what concerns it."""

    mode: str = "fast"
    context: int | None = None
    form: Form = KEEP
    spill: Path | None = None
    """A decoder's matrices go to this file, for a graph that is only run here, once, to compare others with."""


@dataclass(frozen=True, slots=True)
class Imported:
    """A model as the compiler goes on with it."""

    graphs: Mapping[str, onnx.ModelProto]
    config: Mapping[str, Any]
    assets: Mapping[str, bytes]
    hints: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Graph → facts a backend's lowering may use: `rows` 1 says that the graph multiplies one row at a time."""
    decisions: tuple[tuple[str, str], ...] = ()
    memory_bytes: int = 0
    """What a run needs beside the weights, at least."""


@dataclass(frozen=True, slots=True)
class Family:
    """Which files a family is made of (role → name pattern), and how it is imported."""

    files: Mapping[str, str]
    load: Callable[[Mapping[str, Path], Options], Imported]
    options: tuple[str, ...] = ()
    other_files: Mapping[str, str] = field(default_factory=dict)
    """Files it may be made of instead; a folder that holds both is ambiguous."""
    forms: bool = False
    """`load` makes the form of the weights that its options ask for; else the finished graphs are converted."""
    open: bool = False
    """The recipe may name other roles, each of which becomes a graph; `files` is what is taken when it names none."""


_VAD_PORTS = {"input": (1, 576), "state": (2, 1, 128), "output": (1, 1), "stateN": (2, 1, 128)}


def _silero(files: Mapping[str, Path], options: Options) -> Imported:
    model = import_onnx(files["model"])
    if sorted(value.name for value in model.graph.input) != ["input", "sr", "state"]:
        found = ", ".join(value.name for value in model.graph.input)
        raise ModelError("not a Silero VAD of version 5 or 6", where=str(files["model"]), found=found)
    # with known sizes and one rate the optimiser removes the graph's branches
    rate = next(value for value in model.graph.input if value.name == "sr")
    model.graph.input.remove(rate)
    model.graph.initializer.append(numpy_helper.from_array(np.array(16000, np.int64), "sr"))
    for value in (*model.graph.input, *model.graph.output):
        shape = value.type.tensor_type.shape
        del shape.dim[:]
        for size in _VAD_PORTS[value.name]:
            shape.dim.add(dim_value=size)
    return Imported({"vad": model}, {"rate": 16000, "context": 64, "window": 512}, {})


def _moonshine(files: Mapping[str, Path], options: Options) -> Imported:
    shape, graphs = build_moonshine(import_ort(files["encoder"]), import_ort(files["decoder"]))
    config = {
        "rate": 16000, "start": 1, "eos": 2, "tokens_per_second": 6.5, "samples_per_frame": 384, "samples_min": 895,
        "samples_max": 384 * FRAMES_MAX, "tokens_max": TOKENS_MAX, "layers": shape.layers, "heads": shape.heads,
        "head_dim": shape.head_dim, "width": shape.width, "vocabulary": shape.vocabulary, "special_from": 32000,
    }  # fmt: skip
    rule = "the shipped graph has an If around two networks; three of its own int8 weights need a fifth of the nodes"
    return Imported(
        graphs,
        config,
        {"tokenizer.bin": files["tokenizer"].read_bytes()},
        {"decode_step": {"rows": 1}},
        (("graphs=rebuilt", rule),),
        64 << 20,
    )


def _decoder(files: Mapping[str, Path], options: Options) -> Imported:
    opened = open_decoder(files)
    shape = opened.shape
    context = min(2048, shape.trained_context) if options.context is None else options.context
    source = FormedSource(opened.source, options.form)
    loud = Loud()
    if options.mode == "fast":
        ids = text_ids(opened.assets["tokenizer.json"], context, shape.vocabulary)
        loud = listen(
            lambda path: build_decoder(source, shape, context=len(ids), mode="exact", spill=path), shape, ids
        )  # fmt: skip
    graph = build_decoder(source, shape, context=context, mode=options.mode, loud=loud, spill=options.spill)
    config = {
        "name": opened.name, "architecture": shape.architecture, "mode": options.mode, "context": context,
        "trained_context": shape.trained_context, "layers": shape.layers, "heads": shape.heads,
        "kv_heads": shape.kv_heads, "head_dim": shape.head_dim, "width": shape.width, "vocabulary": shape.vocabulary,
        **opened.ids,
    }  # fmt: skip
    tables, words = vocabulary_tables(opened.assets["tokenizer.json"])
    pieces, chat = chat_pieces(opened.assets, opened.ids)
    notes = (*decisions(source, shape, options.mode, context, loud), *source.decisions, words, chat)
    memory = 8 * shape.layers * shape.kv_width * context
    return Imported({"llm": graph}, config, {**opened.assets, **tables, **pieces}, {}, notes, memory)


def _piper(files: Mapping[str, Path], options: Options) -> Imported:
    graphs = build_piper(import_onnx(files["model"]))
    card = files["card"].read_bytes()
    try:
        rate = int(json.loads(card)["audio"]["sample_rate"])
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError("not a Piper voice description", where=str(files["card"]), found=str(error)) from error
    channels = graphs["decode"].graph.input[0].type.tensor_type.shape.dim[1].dim_value
    overlap = overlap_frames(graphs["decode"])
    config = {"rate": rate, "hop": hop_samples(graphs["decode"]), "overlap": overlap, "channels": channels}
    rule = f"the decoder sees {overlap} frames to each side, so that speech can leave in chunks"
    return Imported(graphs, config, {"voice.json": card}, {}, (("graphs=encode, decode", rule),), 64 << 20)


def _detector(files: Mapping[str, Path], options: Options) -> Imported:
    graph = build_detector(import_onnx(files["model"]), str(files["model"]))
    config = {"multiple": MULTIPLE, "mean": [0.5] * 3, "std": [0.5] * 3}
    return Imported({"detect": graph}, config, {}, {}, (_RGB,), 256 << 20)


def _reader(files: Mapping[str, Path], options: Options) -> Imported:
    graph, characters = build_reader(import_onnx(files["model"]), str(files["model"]))
    config = {"height": HEIGHT, "step": STEP, "mean": [0.5] * 3, "std": [0.5] * 3, "classes": len(characters) + 1}
    return Imported({"read": graph}, config, {"characters.txt": "\n".join(characters).encode()}, {}, (_RGB,), 64 << 20)


_RGB = ("input=u8 RGB", "the graph normalises, so that frames and lines are read where they lie")


def _any_graphs(files: Mapping[str, Path], options: Options) -> Imported:
    level = {"exact": "0", "fast": "4"}[options.mode]
    hints = {name: {"session": {"session.qdq_matmulnbits_accuracy_level": level}} for name in files}
    return Imported(import_graphs(files), {}, {}, hints)


_DECODER = Family(
    GGUF_FILES, _decoder, ("mode", "context", "weights", "max_loss"), other_files=FOLDER_FILES, forms=True
)

FAMILIES: Mapping[str, Family] = {
    "silero-vad": Family({"model": "*.onnx"}, _silero),
    "moonshine": Family(
        {"encoder": "encoder_model.ort", "decoder": "decoder_model_merged.ort", "tokenizer": "tokenizer.bin"},
        _moonshine,
    ),
    "decoder": _DECODER,
    "llama": _DECODER,
    "onnx": Family({"main": "*.onnx"}, _any_graphs, ("mode", "weights", "max_loss", "buckets"), open=True),
    "piper": Family({"model": "*.onnx", "card": "*.onnx.json"}, _piper, ("weights", "max_loss")),
    "ppocr-detect": Family({"model": "*.onnx"}, _detector, ("weights", "max_loss", "buckets")),
    "ppocr-read": Family({"model": "*.onnx"}, _reader, ("weights", "max_loss", "buckets")),
}
"""Family name → how to import it."""
