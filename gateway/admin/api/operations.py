"""An operation of the API as one value: its parameters, its answers and its handler.

Routes and the OpenAPI document are both made from these, so that they cannot differ. A handler
takes a `Call`, in which everything has been parsed, and returns a `Reply`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from gateway.manage.audit_log import Actor
from gateway.manage.management import Management

#: The prefix of all paths of the API.
BASE: Final = "/admin/v1"

Where = Literal["path", "query", "header"]
Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One value outside the body.

    schema: a JSON Schema of a string or an integer, with keywords that `reading` supports
    """

    name: str
    where: Where
    schema: Schema
    description: str
    required: bool = False


@dataclass(frozen=True, slots=True)
class Body:
    """A JSON object.

    schema: its name in `schemas`; required: False: an absent one is empty
    most:   the bytes of it; None: as many as the listener takes of any other
    """

    schema: str
    required: bool = True
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Success:
    """A successful answer. schema: its name in `schemas`; None: no body

    headers: name -> description; is_csv: the table may be had as CSV too
    """

    status: int
    description: str
    schema: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    is_csv: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """A parsed request.

    path, query, headers: values by parameter name; if not given, the default or None
    body:                 the JSON object
    """

    management: Management
    actor: Actor
    path: Mapping[str, str]
    query: Mapping[str, Any]
    headers: Mapping[str, Any]
    body: Mapping[str, object]

    @property
    def now_us(self) -> int:
        return self.management.clock_us()


@dataclass(frozen=True, slots=True)
class Reply:
    """body: a JSON value; None: none; csv: a table in place of it"""

    body: object = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    csv: str | None = None


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path.

    name:     unique, camelCase, the document's operationId
    path:     below /admin/v1: "/keys/{id}"
    refusals: statuses beside those that every operation has
    """

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    name: str
    tag: str
    summary: str
    handler: Callable[[Call], Awaitable[Reply]]
    answers: tuple[Success, ...]
    description: str = ""
    parameters: tuple[Parameter, ...] = ()
    body: Body | None = None
    refusals: tuple[int, ...] = ()


def listed(items: object, following: object = None) -> Reply:
    """The reply of a list. following: the parameter for the next page; None: there is none"""
    return Reply({"items": items, "next": following})
