"""Reads `access_log`: the format of the access log, its fields, and how many lines it has."""

from __future__ import annotations

from typing import Final

from gateway.domain.access_log import (
    DEFAULT,
    DEFAULT_FIELDS,
    FIELDS,
    REDACTED,
    TEMPLATE,
    AccessLogFormat,
    QueryRule,
    UnknownField,
    read_template,
)
from gateway.policies.faults import one_of, quoted, suggestion
from gateway.policies.fields import read_share
from gateway.policies.values import Fields, Value, setting

ACCESS_LOG: Final = ("format", "fields", "query", "redact", "sample")
FORMATS: Final = ("json", "combined")
QUERY: Final = ("keep", "names", "off")
#: The name of a parameter in a query.
PARAMETER: Final = r"[^\s&=;#?%+]{1,128}"
MOST_TEMPLATE: Final = 4_096
_FORMAT_EXPECTED: Final = 'json, combined, or a template such as "{time} {client_ip} {status}"'


def read_access_log(value: Value) -> AccessLogFormat | None:
    given = value.fields(ACCESS_LOG)
    if given is None:
        return None
    default = AccessLogFormat()
    read = AccessLogFormat(
        format=setting(given, "format", _read_format, default.format),
        query=setting(given, "query", _read_query, default.query),
        redact=setting(given, "redact", _read_redact, REDACTED),
        sample=setting(given, "sample", _read_sample, default.sample),
        fields=setting(given, "fields", _read_fields, DEFAULT_FIELDS),
    )
    _check(given, read)
    return read


def _check(given: Fields, read: AccessLogFormat) -> None:
    """Add a fault for settings that contradict each other."""
    if "fields" in given and read.format != "json":
        given["fields"].add_fault("it with format: json only; a template names its fields itself")
    is_template = read.format not in FORMATS
    if is_template and read.sample < 1 and "{sample}" not in read.format:
        # Who adds up the lines could not know how many requests each stands for.
        given["format"].add_fault("a template with {sample}, as sample is below 100%")


def _read_format(value: Value) -> str | None:
    text = value.text(_FORMAT_EXPECTED)
    if text is None or text in FORMATS:
        return text
    if "{" not in text and "}" not in text:
        value.add_fault(_FORMAT_EXPECTED + suggestion(text, FORMATS))
        return None
    if len(text) > MOST_TEMPLATE or not text.isprintable():
        value.add_fault(f"a template of up to {MOST_TEMPLATE} printable characters on one line")
        return None
    try:
        read_template(text)
    except UnknownField as error:
        found = f"the field {quoted(error.name)}"
        value.add_fault(_fields_expected() + suggestion(error.name, FIELDS), found)
        return None
    except ValueError:
        value.add_fault(TEMPLATE)
        return None
    return text


def _read_fields(value: Value) -> tuple[str, ...] | None:
    items = value.items("a list of fields such as [default, user_agent]")
    if items is None:
        return None
    names: list[str] = []
    for item in items:
        name = item.text("the name of a field")
        if name is None:
            continue
        if name == DEFAULT:
            names += DEFAULT_FIELDS
        elif name in FIELDS:
            names.append(name)
        else:
            item.add_fault(_fields_expected() + suggestion(name, (DEFAULT, *FIELDS)))
    if not items:
        value.add_fault("at least one field", "an empty list")
    return tuple(dict.fromkeys(names))


def _fields_expected() -> str:
    return one_of(sorted(FIELDS))


def _read_query(value: Value) -> QueryRule | None:
    # In YAML, off is a boolean.
    if isinstance(value.plain(), bool) and value.plain() is False:
        return "off"
    match value.choice(*QUERY):
        case "keep":
            return "keep"
        case "names":
            return "names"
        case "off":
            return "off"
        case _:
            return None


def _read_redact(value: Value) -> tuple[str, ...] | None:
    items = value.items("a list of parameters such as [token, email]")
    if items is None:
        return None
    read = [
        item.matching(PARAMETER, "a parameter's name as it is before encoding") for item in items
    ]
    return tuple(dict.fromkeys(name.lower() for name in read if name is not None))


def _read_sample(value: Value) -> float | None:
    return value.parsed(read_share, "a percentage such as 10%")
