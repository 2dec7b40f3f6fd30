"""The OpenAPI 3.1 document, built from operations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from gateway.admin.api.operations import BASE, Operation, Parameter, Success
from gateway.admin.api.parameters import ACTOR_NAME
from gateway.admin.api.schemas import SCHEMAS
from gateway.admin.request_id import HEADER

_TAGS: Final = {
    "keys": "API keys: create, list, change, rotate, suspend, revoke.",
    "accounts": "Accounts of keys: plan, enabled services, limit overrides.",
    "usage": "Requests by time, outcome and route; warnings of limits.",
    "mcp": "MCP servers: calls of tools, and open connections.",
    "webhooks": "Integrations with providers, watches, events and their deliveries.",
    "policies": "The loaded policies, and what they mean for a request.",
    "audit": "Who changed what, when.",
    "document": "This document.",
}
_ABOUT: Final = """\
The functions of the console, for programs. Every call needs the admin token as a bearer token; \
API keys are not accepted. Every change is in the audit log, under the name in `X-Admin-Actor`.

Lists return `items` and `next`; send `next` as `after` (`before` for the audit log and warnings) \
to get the next page, until it is null. An error has `error`, `message`, `code` and `request_id`, \
with status 422 all faults in `faults`, and if the policies have `error_docs`, the URL of its \
description in `doc`. Every answer has `X-Request-Id`: that of the request (up to 128 letters, \
digits, `.`, `_` and `-`), or a new one.

Fields have the same names and units as in `/v1/auth/verify`, the commands' `--json` and the \
access log. Times are RFC 3339 in UTC; names that end in `_seconds` or `_after` are whole seconds.

Versions: changes within `/admin/v1` only add. There may be new operations, optional parameters, \
fields of answers, error codes and values of `status`, `kind` and `mode`: clients must ignore \
unknown fields. What exists keeps its name, type and meaning; a change to that would be \
`/admin/v2`, beside `/admin/v1` for at least one minor version. Before 1.0 of the gateway a minor \
version may rename fields; the changelog lists the old and the new names.
"""
#: What the statuses of refusals mean; the schema is Error, except for 422.
_REFUSALS: Final = {
    400: "The request cannot be read as HTTP/1.1, or its body is not a JSON object.",
    401: "The admin token is missing or wrong.",
    404: "No such key, account, limit, integration, watch, event or delivery.",
    408: "The body did not arrive in time.",
    409: "It conflicts with the current state.",
    412: "It was changed by someone else since it was read.",
    413: "The body is too large.",
    415: "The body was not sent as application/json.",
    417: "An expectation other than 100-continue.",
    421: "The name in Host is not allowed.",
    422: "The input has faults.",
    428: "The call needs If-Match.",
    429: "Too many wrong tokens were sent from this address.",
    431: "The request has more or larger headers than the API accepts.",
    503: "The store cannot be reached, is not shared, or has no room for an event or a delivery.",
}
_OF_ALL: Final = (400, 401, 417, 421, 422, 429, 431, 503)
_OF_BODIES: Final = (408, 413, 415)
_HEADERS: Final = {
    401: {"WWW-Authenticate": ("string", "Bearer")},
    429: {"Retry-After": ("integer", "Seconds to wait.")},
    503: {"Retry-After": ("integer", "Seconds to wait, if there is no room.")},
}


def build_document(operations: Iterable[Operation], version: str) -> dict[str, Any]:
    """The OpenAPI document of these operations. version: of the gateway"""
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Gateway admin API",
            "version": version,
            "description": _ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": BASE}],
        "security": [{"adminToken": []}],
        "tags": [{"name": name, "description": words} for name, words in _TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {
                "adminToken": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The admin token of the gateway.",
                }
            },
        },
    }


def statuses_of(operation: Operation) -> set[int]:
    """The statuses of an operation's refusals."""
    found = {*_OF_ALL, *operation.refusals}
    if operation.body is not None:
        found.update(_OF_BODIES)
    if any(one.where == "path" for one in operation.parameters):
        found.add(404)
    if any(one.name == "If-Match" for one in operation.parameters):
        found.add(412)
    if any(one.name == "If-Match" and one.required for one in operation.parameters):
        found.add(428)
    return found


def _operation(operation: Operation) -> dict[str, Any]:
    answers = {str(one.status): _success(one) for one in operation.answers}
    answers |= {str(status): _refusal(status) for status in sorted(statuses_of(operation))}
    shown: dict[str, Any] = {
        "operationId": operation.name,
        "tags": [operation.tag],
        "summary": operation.summary,
        "parameters": [_parameter(one) for one in (*operation.parameters, ACTOR_NAME)],
        "responses": answers,
    }
    if operation.description:
        shown["description"] = operation.description
    if operation.body is not None:
        shown["requestBody"] = {
            "required": operation.body.required,
            "content": _content(operation.body.schema),
        }
    return shown


def _parameter(one: Parameter) -> dict[str, Any]:
    schema = {name: value for name, value in one.schema.items() if name != "example"}
    example = {"example": one.schema["example"]} if "example" in one.schema else {}
    return {
        "name": one.name,
        "in": one.where,
        "description": one.description,
        "required": one.required,
        "schema": schema,
        **example,
    }


def _success(one: Success) -> dict[str, Any]:
    headers = {name: _header("string", words) for name, words in one.headers.items()}
    shown: dict[str, Any] = {"description": one.description, "headers": {**_ID, **headers}}
    if one.schema is not None:
        shown["content"] = _content(one.schema)
    if one.is_csv:
        shown["content"]["text/csv"] = {"schema": {"type": "string"}}
    return shown


def _refusal(status: int) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "description": _REFUSALS[status],
        "content": _content("InvalidError" if status == 422 else "Error"),
    }
    more: Mapping[str, tuple[str, str]] = _HEADERS.get(status, {})
    shown["headers"] = {
        **_ID,
        **{name: _header(*what, is_sure=status != 503) for name, what in more.items()},
    }
    return shown


def _header(kind: str, words: str, *, is_sure: bool = True) -> dict[str, Any]:
    return {"description": words, "required": is_sure, "schema": {"type": kind}}


_ID: Final = {HEADER: _header("string", "The request's id.")}


def _content(schema: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
