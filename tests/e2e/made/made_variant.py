# SPDX-License-Identifier: Apache-2.0
"""Another version of a package: the same sections under another version string, one of them damaged if asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cbor2

from dpfedge.package import PackageWriter, open_package
from dpfedge.signing import PrivateKey, sign_package

__all__ = ["variant"]

_OWN = ("format", "name", "version", "created", "sections")


def variant(
    source: Path, out: Path, version: str, key: Path, *, broken: str | None = None, wrong: str | None = None,
    ladder: Sequence[Mapping[str, Any]] = (), twins: Mapping[str, str] | None = None,
) -> Path:  # fmt: skip
    """Write `source` again as `version`, signed with `key`, with digests that fit.

    Graphs of the model `broken` are what nobody can load; weights of the model `wrong` make it answer wrongly. The
    pipeline gets the degrade `ladder`; `twins`: a new name for a model that is there under its own too.
    """
    with (
        open_package(source, check="fast") as package,
        PackageWriter(out, name=package.manifest.name, version=version) as writer,
    ):
        manifest = cbor2.loads(bytes(package.manifest_bytes()))
        fields = {key: value for key, value in manifest.items() if key not in _OWN}
        if ladder:
            fields["pipeline"]["ladder"] = list(ladder)
        for twin, name in (twins or {}).items():
            for models in (fields["models"], *(target["models"] for target in fields["targets"])):
                models[twin] = models[name]
        targets = package.manifest.targets
        graphs = [(name, one) for target in targets for name, m in target.models.items() for one in m.graphs.values()]
        useless = {graph.section for name, graph in graphs if name == broken}
        spoiled = {section for name, graph in graphs if name == wrong for section in graph.weights}
        for section in package.manifest.sections:
            data = bytearray(package.section(section.name))
            if section.name in useless:
                data = bytearray(len(data))
            elif section.name in spoiled:
                data[3::4096] = bytes(byte ^ 0x40 for byte in data[3::4096])  # exponents of floats
            writer.add(section.name, section.kind, data)
        writer.finish(fields)
    sign_package(out, [PrivateKey.load(key)])
    return out
