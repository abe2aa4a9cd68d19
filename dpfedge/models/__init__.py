# SPDX-License-Identifier: Apache-2.0
"""Models dpfedge can fetch: `catalogue()` lists them, `pull(name)` gives their verified files, offline once cached."""

from __future__ import annotations

from dpfedge.models.catalogue import CatalogueModel, catalogue
from dpfedge.models.fetch import ModelFiles, OnProgress, cached, pull, remove

__all__ = ["CatalogueModel", "ModelFiles", "OnProgress", "cached", "catalogue", "pull", "remove"]
