# SPDX-License-Identifier: Apache-2.0
"""The names a client may give as `model`: the package, and the model of each stage; `/v1/models` lists them.

It chooses no model: one package is served, and a name it does not have is refused.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse

from dpfedge.serve.errors import RequestError
from dpfedge.serve.provider import Provider

__all__ = ["check_model", "get_model", "list_models", "model_names"]


def model_names(provider: Provider) -> dict[str, tuple[str, ...]]:
    """Name → the stages that serve it; the package's own name serves everything."""
    facts = provider.runtime.facts
    names: dict[str, tuple[str, ...]] = {provider.name: tuple(facts)}
    for stage, known in facts.items():
        name = known.get("name")
        if name and name != provider.name:
            names[name] = (*names.get(name, ()), stage)
    return names


def check_model(provider: Provider, name: str, stage: str) -> str:
    """`name` if that stage serves it; 404 with the names that it does serve otherwise."""
    names = model_names(provider)
    if stage not in names.get(name, ()):
        allowed = ", ".join(one for one, stages in names.items() if stage in stages)
        raise RequestError(
            "no such model for this endpoint",
            status=404,
            where="model",
            found=repr(name)[:100],
            allowed=allowed,
            remedy="GET /v1/models lists what is served",
            param="model",
            code="model_not_found",
        )
    return name


def _model(provider: Provider, name: str, stages: tuple[str, ...]) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": provider.created, "owned_by": "dpfedge", "stages": list(stages)}


async def list_models(request: Request) -> JSONResponse:
    """GET /v1/models."""
    provider: Provider = request.app.state.provider
    return JSONResponse({"object": "list", "data": [_model(provider, *row) for row in model_names(provider).items()]})


async def get_model(request: Request) -> JSONResponse:
    """GET /v1/models/{id}."""
    provider: Provider = request.app.state.provider
    name = request.path_params["model"]
    names = model_names(provider)
    if name not in names:
        raise RequestError(
            "no such model",
            status=404,
            where="model",
            found=repr(name)[:100],
            allowed=", ".join(names),
            remedy="GET /v1/models lists what is served",
            param="model",
            code="model_not_found",
        )
    return JSONResponse(_model(provider, name, names[name]))
