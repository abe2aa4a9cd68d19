# SPDX-License-Identifier: Apache-2.0
"""Stage kinds by name: what a pipeline calls a stage in, its ports, settings and class out.

Asking for ports and settings imports nothing heavy; the class, and with it the libraries of its models, is imported
where it runs. It knows no graph and no process.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from dpfedge.backend.api import Budget
from dpfedge.errors import ConfigError, DpfError
from dpfedge.records import dataclass
from dpfedge.stage.api import Stage
from dpfedge.stage.failure import raised
from dpfedge.stage.ports import Ports

__all__ = ["BUILT_IN", "GROUP", "StageKind", "find_kind"]

GROUP = "dpfedge.stages"
"""Entry points of this group add kinds: the name is the kind, the object the class."""
BUILT_IN: Mapping[str, tuple[str, str]] = {
    "decoder": ("dpfedge.stage.decoder", "DecoderStage"),
    "encoder": ("dpfedge.stage.encoder", "EncoderStage"),
    "llm": ("dpfedge.stage.llm", "LlmStage"),
    "voice": ("dpfedge.stage.voice", "VoiceStage"),
    "camera": ("dpfedge.stage.camera", "CameraStage"),
    "text-detect": ("dpfedge.stage.text_detect", "TextDetectStage"),
    "text-read": ("dpfedge.stage.text_read", "TextReadStage"),
}
"""Kind → its room, and the class in it."""
Build = Callable[[Any, Mapping[str, Any], Budget], Stage]


@dataclass(frozen=True, slots=True)
class StageKind:
    """One kind. `load` imports its class, which is called with (bound model or None, settings, budget)."""

    name: str
    ports: Callable[[Mapping[str, Any], Mapping[str, Any] | None], Ports]
    """(settings, the model's config or None) → its ports; ConfigError when the settings make none."""
    load: Callable[[], Build]
    schema: Callable[[], Mapping[str, Any] | None]
    """JSON Schema of its settings; None when the class checks them itself."""
    needs_model: bool = False
    syncs: bool = False
    """Whether it takes its inputs put together in time, where the pipeline says how."""
    idempotent: bool = True
    """Whether the same request may be given to it twice: it changes nothing outside."""


def find_kind(name: str, *, where: str, folder: Path | None = None) -> StageKind:
    """The kind called `name`; ConfigError names those there are.

    `module:Class` is a class of a module in `folder`, that of a pipeline file; a package names no code of its own.
    """
    if name in BUILT_IN:
        return _built_in(name)
    if ":" in name:
        return _of_class(name, lambda: _in_folder(name, where, folder), where)
    from importlib.metadata import entry_points

    found = list(entry_points(group=GROUP, name=name))
    if len(found) > 1:
        places = " and ".join(str(point.dist and point.dist.name) for point in found)
        raise ConfigError(
            "two distributions offer the kind", where=where, found=f"{name} in {places}", remedy="remove one"
        )
    if found:
        return _of_class(name, lambda: _foreign(found[0].load, "cannot be imported", where, name), where)
    more = sorted(point.name for point in entry_points(group=GROUP))
    allowed = ", ".join([*BUILT_IN, *more]) + ", or MODULE:CLASS in a pipeline file"
    raise ConfigError("unknown stage kind", where=where, found=name, allowed=allowed, remedy=_nearest(name, more))


def _nearest(name: str, more: list[str]) -> str | None:
    from dpfedge.config import nearest

    return nearest(name, [*BUILT_IN, *more])


def _built_in(name: str) -> StageKind:
    room, class_name = BUILT_IN[name]
    ports = importlib.import_module(f"{room}.ports")
    return StageKind(
        name,
        ports.ports,
        lambda: getattr(importlib.import_module(room), class_name),
        lambda: importlib.import_module(f"{room}.config").SCHEMA,
        getattr(ports, "NEEDS_MODEL", True),
        getattr(ports, "SYNCS", False),
    )


def _of_class(name: str, load: Callable[[], Any], where: str) -> StageKind:
    kind = load()
    ports = getattr(kind, "ports", None)
    if not isinstance(ports, Ports) and not callable(ports):
        raise ConfigError(
            "the stage has no ports", where=where, found=name,
            remedy="give the class an attribute `ports = Ports(inputs={...}, outputs={...})`",
        )  # fmt: skip
    make = partial(_made, ports, where, name) if callable(ports) else lambda config, model: ports
    idempotent = bool(getattr(kind, "idempotent", True))
    schema = lambda: getattr(kind, "SCHEMA", None)  # noqa: E731
    return StageKind(name, make, lambda: kind, schema, syncs=hasattr(kind, "sync"), idempotent=idempotent)


def _made(
    ports: Callable[..., Any], where: str, name: str, config: Mapping[str, Any], model: Mapping[str, Any] | None
) -> Ports:
    made = _foreign(lambda: ports(config, model), "cannot say its ports", where, name)
    if not isinstance(made, Ports):
        found = f"{name} makes {type(made).__name__}"
        raise ConfigError(
            "the stage has no ports", where=where, found=found, allowed="Ports(inputs={...}, outputs={...})"
        )
    return made


def _foreign(call: Callable[[], Any], what: str, where: str, name: str) -> Any:
    """What somebody's own code gives; ConfigError says what it raised, and on which of its lines."""
    try:
        return call()
    except DpfError:
        raise
    except (Exception, SystemExit) as error:  # it is not known here what such code raises
        remedy = None
        if isinstance(error, ImportError):
            remedy = "a module beside a pipeline file imports what is installed, and no other module beside it"
        raise ConfigError(
            f"the code of the stage {what}", where=where, found=f"{name}: {raised(error)}", remedy=remedy
        ) from error


def _in_folder(name: str, where: str, folder: Path | None) -> Any:
    module_name, _, class_name = name.partition(":")
    if folder is None:
        remedy = "install the code as a distribution with an entry point in the group dpfedge.stages"
        raise ConfigError("a package names no code of its own", where=where, found=name, remedy=remedy)
    module = _foreign(lambda: _module(module_name, where, folder), "cannot be imported", where, name)
    kind = getattr(module, class_name, None)
    if kind is None:
        raise ConfigError("the module has no such class", where=where, found=name)
    return kind


def _module(name: str, where: str, folder: Path) -> Any:
    """The module of that very file: another of the same name may be imported already."""
    path = folder / f"{name}.py"
    if not name.isidentifier() or not path.is_file():
        raise ConfigError("no such module beside the pipeline file", where=where, found=name, allowed=f"{path}")
    full = f"dpfedge_pipeline_{abs(hash(path.resolve())):x}_{name}"
    if full in sys.modules:
        return sys.modules[full]
    spec = importlib.util.spec_from_file_location(full, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[full] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[full]
        raise
    return module
