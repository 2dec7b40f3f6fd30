"""Reads a request into a `Call`: parameters by their schemas, the body as a JSON object.

Unknown parameters are a fault and not ignored, so that a mistyped one does not silently change the
request. Their values are never shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from aiohttp import hdrs, web

from gateway.admin.api.operations import Call, Operation, Parameter
from gateway.admin.connection import read_body
from gateway.admin.context import MANAGEMENT, actor_of
from gateway.admin.refusals import NO_STORE, VERSION_REQUIRED
from gateway.manage.json_object import check_media_type, read_object
from gateway.manage.problems import Fault, Invalid, NotThere
from gateway.manage.refusals import Refused

_INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")


async def read_call(request: web.Request, operation: Operation) -> Call:
    """The parsed request. Raises Refused, Invalid, NotThere."""
    management = request.app.get(MANAGEMENT)
    if management is None:
        raise Refused(NO_STORE)
    actor = actor_of(request)
    path = _path(operation, request.match_info)
    faults: list[Fault] = []
    query = _given(operation, "query", request.query.getall, request.query, faults)
    headers = _given(operation, "header", request.headers.getall, request.headers, faults)
    known = {one.name for one in operation.parameters if one.where == "query"}
    for _ in set(request.query) - known:
        expected = f"one of: {', '.join(sorted(known))}" if known else "no query"
        faults.append(Fault("query", "an unknown parameter", expected))
    if faults:
        raise Invalid(*faults)
    body = await _body(request, operation)
    return Call(management, actor, path, query, headers, body)


def read_value(schema: Mapping[str, Any], text: str) -> str | int | None:
    """The value of a text by a parameter's schema; None: it is invalid."""
    if schema["type"] == "integer":
        if not _INTEGER.fullmatch(text):
            return None
        number = int(text)
        return number if schema["minimum"] <= number <= schema["maximum"] else None
    is_wrong = (
        ("enum" in schema and text not in schema["enum"])
        or ("pattern" in schema and not re.fullmatch(schema["pattern"], text))
        or len(text) > schema.get("maxLength", len(text))
    )
    return None if is_wrong else text


def _path(operation: Operation, found: Mapping[str, str]) -> dict[str, str]:
    """The parameters of the path. An invalid one is not shown: it may be a secret."""
    for one in operation.parameters:
        if one.where == "path" and read_value(one.schema, found[one.name]) is None:
            raise NotThere(f"Nothing is there: {one.description[0].lower()}{one.description[1:]}")
    return dict(found)


def _given(
    operation: Operation,
    where: str,
    getall: Callable[[str, list[str]], list[str]],
    names: Iterable[str],
    faults: list[Fault],
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for one in operation.parameters:
        if one.where == where:
            texts = getall(one.name, [])
            if one.required and not texts:
                # The only required one is If-Match.
                raise Refused(VERSION_REQUIRED)
            values[one.name] = _one(one, texts, faults)
    return values


def _one(parameter: Parameter, texts: list[str], faults: list[Fault]) -> str | int | None:
    """The value of one parameter, which may be sent once."""
    if not texts:
        default: str | int | None = parameter.schema.get("default")
        return default
    value = read_value(parameter.schema, texts[0]) if len(texts) == 1 else None
    if value is None:
        found = "another text" if len(texts) == 1 else f"{len(texts)} of them"
        faults.append(Fault(parameter.name, found, parameter.description))
    return value


async def _body(request: web.Request, operation: Operation) -> Mapping[str, object]:
    if operation.body is None:
        return {}
    if operation.body.most is not None:
        request = request.clone(client_max_size=operation.body.most)
    content = await read_body(request)
    if not content and not operation.body.required:
        return {}
    if content:
        check_media_type(*request.headers.getall(hdrs.CONTENT_TYPE, ()))
    return read_object(content)
