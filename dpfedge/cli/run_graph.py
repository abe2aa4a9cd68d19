# SPDX-License-Identifier: Apache-2.0
"""`dpfedge run` for a drawn graph: options and inputs from the command line in, every output as a line out."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpfedge.cli.observing import observing
from dpfedge.cli.trusting import trust_options
from dpfedge.errors import LinkError, UsageError
from dpfedge.package import open_package
from dpfedge.pipeline.flow import Output
from dpfedge.pipeline.prepare import is_pipeline_file
from dpfedge.runtime import Pipeline
from dpfedge.stage.api import Kind
from dpfedge.stage.ports import Port
from dpfedge.store import locate
from dpfedge.tensors import TensorSpec

__all__ = ["is_drawn", "run_graph"]


def is_drawn(package: Path) -> bool:
    """Whether it is a pipeline file, or a package whose links are drawn."""
    if is_pipeline_file(package):
        return True
    with open_package(locate(package).path, check="fast") as opened:
        return "links" in opened.manifest.pipeline


def run_graph(args: argparse.Namespace) -> int:
    """One request; its outputs are printed as they come, what the stages did as the last line."""
    options, inputs = _options(args.set), [_pair(word, "--send") for word in args.send]
    with (
        observing(args) as observe,
        Pipeline.open(args.package, board=args.board, observe=observe, **trust_options(args)) as pipeline,
        pipeline.request(options, deadline_s=args.deadline_ms / 1000 if args.deadline_ms else None) as request,
    ):
        for port, text in inputs:
            request.send(port, _data(text, pipeline.inputs.get(port)))
        request.finish()
        for line in _lines(request.outputs(), args.json):
            print(line, flush=True)
        if not args.json:
            print("report: " + json.dumps(request.report, default=str))
    return 0


def _data(text: str, port: Port | None) -> Any:
    """A text, or with @ a file's content: `.npy`, or raw numbers of the port's dtype, or bytes."""
    if not text.startswith("@"):
        return text
    path = Path(text[1:])
    try:
        if path.suffix == ".npy":
            return np.load(path, allow_pickle=False)
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        raise UsageError("the file cannot be read", where=str(path), found=str(error)) from error
    if port is None or port.dtype == "bytes":
        return data
    dtype = TensorSpec(str(path), port.dtype).numpy
    if len(data) % dtype.itemsize:
        raise UsageError("no whole number of values", where=str(path), found=f"{len(data)} bytes", allowed=port.dtype)
    return np.frombuffer(data, dtype)


def _lines(outputs: Iterator[Output], as_json: bool) -> Iterator[str]:
    for output in outputs:
        record = {"stage": output.stage, "port": output.port, "kind": output.kind.name.lower(), "turn": output.turn}
        data = _shown(output)
        if as_json:
            yield json.dumps({**record, "data": data}, default=str)
        elif output.kind is not Kind.DONE:
            name = f"{output.stage}.{output.port}" if output.port else output.stage
            yield f"{name}: {data if isinstance(data, str) else json.dumps(data, default=str)}"


def _shown(output: Output) -> Any:
    """A text or a map as it is; of a tensor, what it is."""
    if output.kind in (Kind.DONE, Kind.SPEECH_STARTED, Kind.SPEECH_STOPPED):
        return dict(output.map)
    array = output.array
    if array.dtype.name != "uint8" or array.ndim != 1:
        return f"{array.dtype.name}{list(array.shape)}"
    return _decoded(output)


def _decoded(output: Output) -> Any:
    """Bytes are CBOR maps or UTF-8; which, the stage's own port says in its documentation."""
    try:
        return dict(output.map)
    except LinkError:
        return output.text


def _options(words: Sequence[str]) -> dict[str, dict[str, Any]]:
    """`camera.source=sign.mp4` → {"camera": {"source": "sign.mp4"}}; a value that is JSON is taken as that."""
    found: dict[str, dict[str, Any]] = {}
    for word in words:
        place, text = _pair(word, "--set")
        stage, _, name = place.partition(".")
        found.setdefault(stage, {})[name] = _value(text)
    return found


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _pair(word: str, flag: str) -> tuple[str, str]:
    place, equals, text = word.partition("=")
    stage, _, name = place.partition(".")
    if not (equals and stage and name):
        raise UsageError("wrong form", where=flag, found=word, allowed="STAGE.NAME=VALUE")
    return place, text
