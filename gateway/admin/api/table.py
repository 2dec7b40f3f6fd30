"""All operations of the API, the one that gives their document among them."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from typing import Any, Final

from gateway.admin.api import accounts, audit, keys, policies, usage, warnings
from gateway.admin.api.openapi import build_document
from gateway.admin.api.operations import Call, Operation, Reply, Success


async def _show(_call: Call) -> Reply:
    return Reply(document())


OPERATIONS: Final = (
    *keys.OPERATIONS,
    *accounts.OPERATIONS,
    *usage.OPERATIONS,
    *warnings.OPERATIONS,
    *policies.OPERATIONS,
    *audit.OPERATIONS,
    Operation(
        "GET",
        "/openapi.json",
        "getDocument",
        "document",
        "This document",
        _show,
        (Success(200, "An OpenAPI 3.1 document.", "Document"),),
    ),
)


@cache
def document() -> dict[str, Any]:
    """The OpenAPI document of all of them."""
    return build_document(OPERATIONS, version("rate-limiting-gateway"))
