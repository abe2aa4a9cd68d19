# SPDX-License-Identifier: Apache-2.0
"""Another version of a package: the same sections under another version string, one of them damaged if asked for."""

from __future__ import annotations

from pathlib import Path

import cbor2

from dpfedge.package import PackageWriter, open_package
from dpfedge.signing import PrivateKey, sign_package

__all__ = ["variant"]

_OWN = ("format", "name", "version", "created", "sections")


def variant(source: Path, out: Path, version: str, key: Path, *, broken: str | None = None) -> Path:
    """Write `source` again as `version`, signed with `key`; graphs of the model `broken` become useless."""
    with (
        open_package(source, check="fast") as package,
        PackageWriter(out, name=package.manifest.name, version=version) as writer,
    ):
        manifest = cbor2.loads(bytes(package.manifest_bytes()))
        fields = {key: value for key, value in manifest.items() if key not in _OWN}
        targets = package.manifest.targets
        models = [target.models[broken] for target in targets if broken in target.models]
        damaged = {graph.section for model in models for graph in model.graphs.values()}
        for section in package.manifest.sections:
            data = package.section(section.name)
            writer.add(section.name, section.kind, bytes(len(data)) if section.name in damaged else data)
        writer.finish(fields)
    sign_package(out, [PrivateKey.load(key)])
    return out
