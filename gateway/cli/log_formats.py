"""The formats of access logs that `gateway simulate` reads.

`gateway` is the gateway's own log. The others are logs of servers that know nothing of its keys:
there a client without a key in its lines is known by its user name or else its address, a status of
429 means that a limit refused the request, and 401 that its credentials were wrong.

A reader takes one line, and returns a `Line` or raises ValueError. All patterns take time in
proportion to the line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final

from gateway.cli.log_lines import (
    EPOCH,
    Line,
    as_object,
    brief,
    decision_by,
    parse_any_time,
    parse_time,
    read_address,
    read_cost,
    read_decision,
    read_duration,
    read_name,
    read_sample,
    read_status,
    read_target,
    read_text,
    split_request,
)
from gateway.domain.access_log import TEMPLATE, UnknownField, read_template
from gateway.domain.networks import Network, client_address, parse_address, parse_forwarded_for

Reader = Callable[[bytes], Line]

#: The formats, for --format; auto: by the first line that one of them can read.
NAMES: Final = ("auto", "gateway", "template", "combined", "envoy", "envoy-json", "json")
#: What --field can name, and the fields that are read without it, the first that a line has.
FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "time": ("time", "timestamp", "@timestamp", "ts"),
    "request": (),
    "method": ("method", "request.method"),
    "path": ("path", "uri", "request.uri", "request.path"),
    "status": ("status", "response.status"),
    "client_ip": ("client_ip", "remote_addr", "remote_ip"),
    "key_id": ("key_id",),
    "account": ("account",),
    "plan": ("plan",),
    "cost": ("cost",),
    "duration_ms": ("duration_ms",),
    "host": ("host", "http_host", "request.host"),
}
#: Another word for a field.
ALIASES: Final = {"key": "key_id"}
#: Of Istio and Envoy Gateway; Envoy itself has no default for JSON.
_ENVOY_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "time": ("start_time",),
    "method": ("method", ":method"),
    "path": ("path", "x-envoy-origin-path"),
    "status": ("response_code",),
    "client_ip": ("x_forwarded_for", "x-forwarded-for", "downstream_remote_address"),
    "duration_ms": ("duration",),
    "host": ("authority", ":authority"),
}
#: The most dots of a path that are tried as parts of names.
_MOST_DEPTH: Final = 16

#: log_format combined of nginx and Apache; common, without the last two fields, is its beginning.
_combined = re.compile(
    r"(\S{1,256}) \S{1,256} (.{1,256}?) \[([^\]]{1,40})\] "
    r'"([^"\\]*+(?:\\.[^"\\]*+)*)" (\d{3})(?: |\Z)'
).match
#: Envoy's default; Istio's has three more fields after the flags. Texts are not escaped in it.
_envoy = re.compile(
    r'\[([^\]]{1,40})\] "([^"]*+)" (\d{1,3}) \S{1,256}(?: \S{1,256} \S{1,256} "[^"]{0,1024}")?'
    r' \d{1,20} \d{1,20} (\d{1,20}) \S{1,20} "([^"]{0,4096})"'
    r'(?: "[^"]{0,4096}" "[^"]{0,256}" "([^"]{0,256})")?'
).match
_escape = re.compile(r'((?:\\x[0-9A-Fa-f]{2})+)|\\(["\\])')


@dataclass(frozen=True, slots=True)
class LogFormat:
    """How lines are read.

    name:    one of NAMES
    fields:  of "json": the name of each field and its paths in the object, "request.uri"
    trusted: the proxies whose X-Forwarded-For is read, of the policies
    template: of "template", as `access_log.format` in the policies
    """

    name: str = "auto"
    fields: Mapping[str, Sequence[str]] = field(default_factory=lambda: FIELDS)
    trusted: Sequence[Network] = ()
    template: str = ""

    def reader(self) -> Reader:
        """The reader of this format, which is not "auto"."""
        if self.name == "gateway":
            return parse_gateway
        if self.name == "template":
            return template_reader(self.template)
        if self.name == "combined":
            return parse_combined
        if self.name == "envoy":
            return lambda raw: parse_envoy(raw, self.trusted)
        fields = _ENVOY_FIELDS if self.name == "envoy-json" else self.fields
        return lambda raw: parse_json(raw, fields, self.trusted)

    def detected(self, raw: bytes) -> LogFormat:
        """The format of a line. Raises ValueError if it is of none."""
        name = _detect(raw)
        return LogFormat(name, self.fields, self.trusted, self.template)


def read_fields(texts: Sequence[str]) -> dict[str, Sequence[str]]:
    """The fields of "json" by the options --field NAME=PATH. Raises ValueError."""
    given: dict[str, Sequence[str]] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        name = ALIASES.get(name, name)
        if name not in FIELDS or not equals or not path:
            names = ", ".join(FIELDS)
            raise ValueError(f"found {brief(text)}, expected NAME=PATH with a name of {names}")
        if name in given:
            raise ValueError(f"found {name} twice, expected each name once")
        given[name] = (path,)
    return {**FIELDS, **given}


def _detect(raw: bytes) -> str:
    text = raw.lstrip()
    if not text.startswith(b"{"):
        words = raw.decode("utf-8", "replace")
        if _combined(words):
            return "combined"
        if _envoy(words):
            return "envoy"
        raise ValueError(
            "found a line of no known format, expected one of the gateway's access log, the "
            "combined format of nginx, or Envoy's default; for other JSON see --field"
        )
    found = as_object(raw)
    if "start_time" in found and "response_code" in found:
        return "envoy-json"
    if "time" in found:
        return "gateway"
    names = ", ".join(brief(name) for name in list(found)[:8]) or "no field"
    raise ValueError(
        f"found a JSON object with {names}, expected the gateway's fields (time, method, path "
        "…) or Envoy's; name others with --field, such as --field time=ts"
    )


def parse_gateway(raw: bytes) -> Line:
    """Read a line of the gateway's own log, or one with some of its fields."""
    return _own(as_object(raw))


def _own(fields: Mapping[str, Any]) -> Line:
    cost = read_cost(fields.get("cost"))
    status = read_status(fields.get("status"))
    decision = read_decision(fields.get("decision"))
    if decision is None:
        decision = decision_by(status, is_readable=True)
    # Empty if the request could not be read that far.
    is_read = decision in (None, "admitted")
    return Line(
        time_us=parse_time(read_text("time", fields.get("time"), needed=True) or ""),
        method=read_text("method", fields.get("method"), needed=is_read) or "",
        path=read_text("path", fields.get("path"), needed=is_read) or "",
        client_ip=read_name("client_ip", fields.get("client_ip")) or "",
        key_id=read_name("key_id", fields.get("key_id")) or None,
        account=read_name("account", fields.get("account")),
        plan=read_name("plan", fields.get("plan")),
        cost=cost,
        status=status,
        decision=decision,
        reason=read_name("reason", fields.get("reason")),
        limit=read_name("limit", fields.get("limit")),
        is_own=True,
        duration_us=read_duration(fields.get("duration_ms")),
        host=read_name("host", fields.get("host")) or None,
        sample=read_sample(fields.get("sample")),
    )


def template_reader(template: str) -> Reader:
    """A reader of lines that the gateway has written by this template.

    Raises UnknownField; ValueError if it is no template, or if these lines have no time, method or
    path, or two fields without a text between them.
    """
    try:
        parts = read_template(template)
    except UnknownField:
        raise
    except ValueError as error:
        raise ValueError(f"found {brief(template)}, expected {TEMPLATE}") from error
    names = {name for _, name in parts if name}
    if not names & {"time", "time_local"} or not (
        "request" in names or {"method", "path"} <= names
    ):
        raise ValueError(
            f"found the template {brief(template)}, expected one with time, and method and path"
        )
    if any(not literal for literal, name in parts[1:] if name):
        raise ValueError(
            f"found the template {brief(template)}, expected a text between any two fields"
        )

    def read(raw: bytes) -> Line:
        return _own(_own_fields(_split(raw.decode("ascii", "replace"), parts, template)))

    return read


def _split(line: str, parts: Sequence[tuple[str, str]], template: str) -> dict[str, str]:
    """The fields of a line. No value contains the first character of the text after it."""
    found: dict[str, str] = {}
    if not line.startswith(parts[0][0]):
        raise ValueError(f"found another format, expected a line as by {brief(template)}")
    at = len(parts[0][0])
    for (_, name), (after, _) in zip(parts, [*parts[1:], ("", "")], strict=True):
        end = line.find(after, at) if after else len(line)
        if end < 0:
            raise ValueError(f"found another format, expected a line as by {brief(template)}")
        if name and line[at:end] != "-":
            found[name] = _unescaped(line[at:end])
        at = end + len(after)
    return found


def _own_fields(found: dict[str, str]) -> dict[str, Any]:
    """The same as in a line of JSON."""
    fields: dict[str, Any] = dict(found)
    if "request" in found:
        fields["method"], fields["path"] = split_request(found["request"])
    if "time" not in found and "time_local" in found:
        time_us = parse_any_time(found["time_local"])
        fields["time"] = (EPOCH + timedelta(microseconds=time_us)).isoformat()
    if "cost" in found and re.fullmatch("[0-9]{1,10}", found["cost"]):
        fields["cost"] = int(found["cost"])
    return fields


def parse_combined(raw: bytes) -> Line:
    """Read a line of nginx's or Apache's log format `combined` or `common`."""
    found = _combined(raw.decode("utf-8", "surrogateescape"))
    if found is None:
        expected = '192.0.2.1 - - [22/Nov/2026:10:37:13 +0000] "GET /x HTTP/1.1" 200 154'
        raise ValueError(f"found another format, expected a line such as {expected}")
    address, user, time, request, status = found.groups()
    return _foreign(
        time, _unescaped(request), status, read_address(address), None if user == "-" else user
    )


def parse_envoy(raw: bytes, trusted: Sequence[Network]) -> Line:
    """Read a line of Envoy's default format, or of Istio's."""
    found = _envoy(raw.decode("utf-8", "surrogateescape"))
    if found is None:
        expected = '[2026-11-22T10:37:13.250Z] "GET /x HTTP/1.1" 200 - 0 154 2 1 "192.0.2.1" …'
        raise ValueError(f"found another format, expected a line such as {expected}")
    time, request, status, duration, addresses, host = found.groups()
    line = _foreign(
        *(time, request, status, _client(addresses, trusted)),
        duration_us=read_duration(duration) or 0,
    )
    return replace(line, host=None if host in (None, "", "-") else host)


def parse_json(raw: bytes, fields: Mapping[str, Sequence[str]], trusted: Sequence[Network]) -> Line:
    """Read a JSON object whose fields are at these paths."""
    found = as_object(raw)
    values = {name: _first(found, paths) for name, paths in fields.items()}
    method = read_text("method", values.get("method")) or ""
    path = read_target(read_text("path", values.get("path")) or "")
    request = read_text("request", values.get("request"))
    status = read_status(values.get("status"))
    if request is not None:
        method, path = split_request(request)
    elif status is None or not 400 <= status < 500:  # else the request could not be read, either
        _need(values, fields, "method", "path")
    _need(values, fields, "time")
    client_ip = _client(read_text("client_ip", values.get("client_ip")) or "", trusted)
    key_id = _as_name("key_id", values.get("key_id")) or client_ip[:256] or None
    return Line(
        time_us=parse_any_time(values["time"]),
        method=method,
        path=path,
        client_ip=client_ip,
        key_id=key_id,
        account=_as_name("account", values.get("account")),
        plan=_as_name("plan", values.get("plan")),
        cost=read_cost(values.get("cost")),
        status=status,
        decision=decision_by(status, is_readable=bool(path)),
        duration_us=read_duration(values.get("duration_ms")) or 0,
        host=read_name("host", values.get("host")) or None,
    )


def _foreign(
    time: str,
    request: str,
    status: str,
    client_ip: str,
    user: str | None = None,
    duration_us: int = 0,
) -> Line:
    method, path = split_request(request)
    read = read_status(status)
    return Line(
        time_us=parse_any_time(time),
        method=method,
        path=path,
        client_ip=client_ip,
        key_id=user or client_ip or None,
        status=read,
        decision=decision_by(read, is_readable=bool(path)),
        duration_us=duration_us,
    )


def _client(text: str, trusted: Sequence[Network]) -> str:
    """The client of a list of addresses as in X-Forwarded-For: the last that is not trusted."""
    *others, last = parse_forwarded_for(text) or ("",)
    try:
        return str(client_address(parse_address(read_address(last)), others, trusted))
    except ValueError:
        return "" if last == "-" else last


def _unescaped(text: str) -> str:
    r"""A text of nginx or Apache without its escapes: \x22, \" and \\."""
    if "\\" not in text:
        return text
    return _escape.sub(
        lambda found: (
            bytes.fromhex(found[1].replace("\\x", "")).decode("utf-8", "surrogateescape")
            if found[1]
            else found[2]
        ),
        text,
    )


def _first(value: object, paths: Sequence[str]) -> Any:
    """The value at the first path where there is one that is not null."""
    for path in paths:
        found = _at(value, path, _MOST_DEPTH)
        if found is not None:
            return found
    return None


def _at(value: object, path: str, depth: int) -> Any:
    """The value at a path. A name may itself have dots; a number is an index of a list."""
    if isinstance(value, list):
        index, _, rest = path.partition(".")
        if not (index.isascii() and index.isdigit() and len(index) < 6 and int(index) < len(value)):
            return None
        return _at(value[int(index)], rest, depth) if rest else value[int(index)]
    if not isinstance(value, dict) or depth == 0:
        return None
    if path in value:
        return value[path]
    end = path.find(".")
    while end >= 0:
        if path[:end] in value:
            found = _at(value[path[:end]], path[end + 1 :], depth - 1)
            if found is not None:
                return found
        end = path.find(".", end + 1)
    return None


def _as_name(name: str, value: object) -> str | None:
    """A name that may be written as a number."""
    return read_name(name, str(value) if type(value) is int else value)


def _need(values: Mapping[str, object], fields: Mapping[str, Sequence[str]], *names: str) -> None:
    """Raise ValueError if one of these fields has no value."""
    for name in names:
        if values[name] in (None, ""):
            paths = " or ".join(fields[name])
            raise ValueError(
                f"{name}: found none, expected one at {paths}; see --field {name}=PATH"
            )
