r"""The lines of the access log: as JSON, as Apache and nginx write them, or by a template.

A format is compiled once, when policies are loaded, to a function. The usual one, JSON with the
default fields, is one f-string; any other calls a function for each of its fields.

Outside of JSON, a value cannot end its field early: what is not printable ASCII, quotes, the
backslash, and the character that follows the field in the template are written as \xHH, byte by
byte of UTF-8, as nginx does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from json.encoder import encode_basestring_ascii as _quoted
from typing import Final, TypeVar

from gateway.domain.access_log import DEFAULT_FIELDS, AccessLogFormat, read_template
from gateway.domain.identity import Grant
from gateway.observe.access_fields import (
    NUMBERS,
    Entry,
    Getter,
    Logged,
    getters,
    in_ms,
    limiter_us,
    shown_host,
    shown_path,
    whole_second,
)
from gateway.observe.usage_table import decision_of

K = TypeVar("K")

#: A line with its end, in ASCII, of the values of an Entry.
Writer = Callable[[Logged, int, int, int, str | None, float], str]

#: Faster than a format with zeros.
_THREE: Final = [f"{number:03d}" for number in range(1000)]
#: Cached texts of each kind, and the longest of them.
MOST_KEPT: Final = 4_096
MOST_KEPT_TEXT: Final = 300
_PROTOCOLS: Final = ("HTTP/1.0", "HTTP/1.1")

_COMBINED: Final = (
    '{client_ip} - {key_id} [{time_local}] "{request}" {status} {bytes_out} "{referrer}" '
    '"{user_agent}"'
)


def compile_format(form: AccessLogFormat) -> Writer:
    """The function that writes lines of this format."""
    fields = form.fields
    if form.format == "json":
        if form.query != "off" and "query" not in fields:
            fields = (*fields, "query")
        if form.sample < 1 and "sample" not in fields:
            fields = (*fields, "sample")
        if fields == DEFAULT_FIELDS:
            return DefaultLines().write
        return _json(fields, getters(form))
    template = form.format
    if template == "combined":
        # Programs that read this format ignore what follows its last field.
        template = _COMBINED + (" sample={sample}" if form.sample < 1 else "")
    return _templated(template, getters(form))


class DefaultLines:
    """JSON with the default fields; `_json` writes the same in twice the time.

    Most texts occur in many lines: they are cached as JSON.
    """

    def __init__(self) -> None:
        self._second = -1
        self._second_text = ""
        self._granted: dict[Grant | None, str] = {}
        self._texts: dict[str | bytes, str] = {}
        self._paths: dict[str, str] = {}
        self._phases: dict[int, str] = {}

    def write(
        self,
        request: Logged,
        status: int,
        time_us: int,
        duration_us: int,
        reason: str | None,
        _share: float,
    ) -> str:
        """One line."""
        second = time_us // 1_000_000
        if second != self._second:
            self._second, self._second_text = second, whole_second(second)
        micros = time_us % 1_000_000
        known, path = self._texts.get, request.requested.path
        check, decision, refusal = request.check, request.decision, request.refusal
        cost, limit, remaining = 0, "null", "null"
        if check is not None:
            cost = check.cost
            if decision is not None:
                name = check.limits[decision.governing].name
                limit = known(name) or self._text(name)
                remaining = str(decision.remaining)
        sent_to, upstream_s = request.sent_to, request.upstream_s
        upstream = server = "null"
        if sent_to is not None:
            upstream = known(sent_to.name) or self._text(sent_to.name)
            server = known(sent_to.label) or self._text(sent_to.label)
        upstream_ms = "null"
        if upstream_s is not None:
            us = int(upstream_s * 1e6)
            upstream_ms = f"{us // 1000}.{_THREE[us % 1000]}"
        asked_at, gate_ms, limiter_ms = request.asked_at, "null", "null"
        if asked_at:
            us = int((asked_at - request.started) * 1e6)
            gate_ms = self._phases.get(us) or self._phase(us)
            us = limiter_us(request, duration_us)
            limiter_ms = self._phases.get(us) or self._phase(us)
        client_ip, host = request.client_ip, request.fields.host
        is_admitted = refusal is None and request.status
        return (
            f'{{"time": "{self._second_text}.{_THREE[micros // 1000]}{_THREE[micros % 1000]}Z", '
            f'"request_id": "{request.request_id.decode("ascii")}", '
            f'"client_ip": {known(client_ip) or self._text(client_ip)}, '
            f'"method": {_quoted(request.method)}, '
            f'"path": {self._paths.get(path) or self._path(path)}, "status": {status}, '
            f"{self._granted.get(request.grant) or self._route_and_key(request)}, "
            f'"decision": "{"admitted" if is_admitted else decision_of(refusal)}", '
            f'"limit": {limit}, "cost": {cost}, '
            f'"bytes_in": {request.bytes_in}, "bytes_out": {request.bytes_out}, '
            f'"duration_ms": {duration_us // 1000}.{_THREE[duration_us % 1000]}, '
            f'"upstream_ms": {upstream_ms}, "upstream": {upstream}, '
            f'"reason": {"null" if reason is None else _quoted(reason)}, '
            f'"host": {known(host) or self._host(host)}, '
            f'"protocol": "{_PROTOCOLS[request.minor]}", "server": {server}, '
            f'"remaining": {remaining}, "gate_ms": {gate_ms}, "limiter_ms": {limiter_ms}}}\n'
        )

    def _phase(self, us: int) -> str:
        return _kept(self._phases, us, in_ms(us))

    def _text(self, text: str) -> str:
        return _kept(self._texts, text, _quoted(text))

    def _host(self, host: bytes) -> str:
        return _kept(self._texts, host, _quoted(shown_host(host)) if host else "null")

    def _path(self, path: str) -> str:
        return _kept(self._paths, path, _quoted(shown_path(path)))

    def _route_and_key(self, request: Logged) -> str:
        """Route, key, account and plan: the same for all requests with one grant."""
        route, key = request.route.name, 'null, "account": null, "plan": null'
        if request.identity is not None:
            record = request.identity.record
            key = (
                f'{_quoted(record.id)}, "account": {_quoted(record.account)}, '
                f'"plan": {_quoted(record.plan)}'
            )
        text = f'"route": {_quoted(route) if route else "null"}, "key_id": {key}'
        return text if request.grant is None else _kept(self._granted, request.grant, text)


def _kept(cache: dict[K, str], key: K, text: str) -> str:
    """Keep a text, if it is not long; a flood of different ones only empties the cache."""
    if len(text) <= MOST_KEPT_TEXT:
        if len(cache) >= MOST_KEPT:
            cache.clear()
        cache[key] = text
    return text


def _json(fields: tuple[str, ...], values: Mapping[str, Getter]) -> Writer:
    parts = [
        (f'{", " if at else "{"}"{name}": ', values[name], name in NUMBERS)
        for at, name in enumerate(fields)
    ]

    def render(entry: Entry) -> str:
        texts: list[str] = []
        for key, get, is_number in parts:
            value = get(entry)
            texts.append(key)
            texts.append("null" if value is None else value if is_number else _quoted(value))
        return "".join(texts) + "}\n"

    return _writer(render)


def _templated(template: str, values: Mapping[str, Getter]) -> Writer:
    read = read_template(template)
    ends = [literal[:1] for literal, _ in read[1:]] + [""]
    parts = [
        (_escaped(literal, ""), values.get(name), end)
        for (literal, name), end in zip(read, ends, strict=True)
    ]

    def render(entry: Entry) -> str:
        texts: list[str] = []
        for literal, get, end in parts:
            texts.append(literal)
            if get is not None:
                value = get(entry)
                texts.append("-" if value is None else _escaped(value, end, quotes=True))
        return "".join(texts) + "\n"

    return _writer(render)


def _writer(render: Callable[[Entry], str]) -> Writer:
    return lambda *values: render(Entry(*values))


def _escaped(text: str, end: str, *, quotes: bool = False) -> str:
    r"""Printable ASCII; all else, the character `end`, and quotes and backslashes, as \xHH."""
    if text.isascii() and text.isprintable() and not (quotes and _holds(text, end)):
        return text
    special = f'{end}"\\' if quotes else ""
    # One character for each byte, so that one call escapes all: a header has 30,000 of them.
    return text.encode("utf-8", "surrogateescape").decode("latin-1").translate(_escapes(special))


@lru_cache(maxsize=256)
def _escapes(special: str) -> Mapping[int, str]:
    """How bytes are written; without those that stay as they are."""
    changed = [*range(0x20), *range(0x7F, 0x100), *special.encode("utf-8", "surrogateescape")]
    return {byte: f"\\x{byte:02X}" for byte in changed}


def _holds(text: str, end: str) -> bool:
    return '"' in text or "\\" in text or bool(end and end in text)
