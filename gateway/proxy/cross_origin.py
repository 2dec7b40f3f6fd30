"""Requests that a browser sends because of pages of other origins, before they are decided.

A preflight (Fetch, 4.8) asks whether a request may be sent. It carries no key, so the gateway
answers it itself, for the route of the *requested* method; it costs nothing. Its route in logs and
metrics is `gateway:preflight`. If that route has no `cors`, it is an OPTIONS request like others.

A WebSocket handshake has no preflight, and a browser shows its answer to any page (RFC 6455, 10.2:
a server checks Origin if it does not want this). So on a route with `cors` its origin is checked
here. Without an Origin, the client is no browser.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final, Protocol

from gateway.domain.answer_rules import AnswerRules
from gateway.domain.cors import CorsRules
from gateway.domain.headers import CROSS_ORIGIN
from gateway.domain.route import Route
from gateway.domain.routes import CORS_PREFLIGHT, is_own
from gateway.errors import ORIGIN_NOT_ALLOWED, Refusal
from gateway.http1.head import Fields
from gateway.proxy.client import Client
from gateway.routing import NO_ROUTE, Requested

_ORIGIN, _METHOD, _HEADERS = CROSS_ORIGIN
#: The methods that a request line may have; TRACE and CONNECT have no route.
_is_method = re.compile(r"[A-Z][A-Z_-]{0,31}").fullmatch
#: Whether a browser asks for a method or fields is no part of the answer's cache key elsewhere.
_VARY: Final = b"Vary: Origin, Access-Control-Request-Method, Access-Control-Request-Headers\r\n"


class Lines(Protocol):
    """What parses request lines, and caches them."""

    def routed(self, line: bytes, host: bytes) -> Requested | Refusal: ...


def checked(requested: Requested, fields: Fields, client: Client, lines: Lines) -> Requested:
    """The request as it is to be decided: the same, or a preflight, or refused for its origin."""
    if fields.counted is None:
        return requested
    if requested.method == "OPTIONS":
        return _preflight(requested, fields, client, lines) or requested
    if requested.method == "GET" and isinstance(fields.websocket, bytes) and requested.answers:
        cors, origin = requested.answers.cors, client.counted(fields, _ORIGIN)
        if cors is not None and origin and not cors.allows(origin):
            return replace(requested, route=NO_ROUTE, refusal=ORIGIN_NOT_ALLOWED)
    return requested


def _preflight(
    requested: Requested, fields: Fields, client: Client, lines: Lines
) -> Requested | None:
    """The preflight, decided; None: it is an OPTIONS request like any other."""
    origin, method = client.counted(fields, _ORIGIN), client.counted(fields, _METHOD)
    if not (origin and requested.path.startswith("/") and _is_method(method)):
        return None
    line = f"{method} {requested.path} HTTP/1.1".encode("ascii")
    wanted = lines.routed(line, fields.host)
    if isinstance(wanted, Refusal) or not wanted.route.name or wanted.answers is None:
        return None
    cors = wanted.answers.cors
    if cors is None:
        return None
    access = wanted.route.access
    route = CORS_PREFLIGHT if access is None else replace(CORS_PREFLIGHT, access=access)
    preflight = replace(requested, route=route, refusal=None, allow=(), own=True)
    if cors.allows(origin):
        names = client.counted(fields, _HEADERS)
        preflight.answers = _answer(cors, origin, _methods(wanted.route, method), names)
    else:
        preflight.refusal = ORIGIN_NOT_ALLOWED
        preflight.answers = AnswerRules(fixed=_VARY)
    return preflight


def _answer(cors: CorsRules, origin: str, methods: str, names: str) -> AnswerRules:
    return AnswerRules(fixed=_VARY + cors.preflight_lines(origin, methods, names))


def _methods(route: Route, method: str) -> str:
    """The methods of a route as a list; of one for any method: the requested one."""
    if is_own(route):
        return "GET, HEAD"
    return method if "*" in route.methods else ", ".join(sorted(route.methods))
