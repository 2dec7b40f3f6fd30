"""Templates of the access log."""

from __future__ import annotations

import pytest

from gateway.domain.access_log import (
    DEFAULT_FIELDS,
    FIELDS,
    AccessLogFormat,
    UnknownField,
    read_template,
)


@pytest.mark.parametrize(
    ("template", "parts"),
    [
        ("{status}", [("", "status")]),
        ("a {time}|{path} z", [("a ", "time"), ("|", "path"), (" z", "")]),
        ('{{"p": "{path}"}}', [('{"p": "', "path"), ('"}', "")]),
        ("{path}}}{{{status}", [("", "path"), ("}{", "status")]),
    ],
)
def test_templates(template: str, parts: list[tuple[str, str]]) -> None:
    """Texts and fields in turn; doubled braces are braces."""
    assert read_template(template) == parts


@pytest.mark.parametrize(
    "template", ["", "no field", "{", "}", "{status", "{status!r}", "{status:>9}", "{}", "{0}"]
)
def test_what_is_no_template(template: str) -> None:
    """A text without a field, an open brace, or a field with a format is none."""
    with pytest.raises(ValueError):  # the policies say what is expected
        read_template(template)


def test_an_unknown_field_is_named() -> None:
    """The error says which field does not exist; attributes and indices are no fields either."""
    for name in ("stauts", "time.year", "path[0]"):
        with pytest.raises(UnknownField) as caught:
            read_template(f"{{time}} {{{name}}}")
        assert caught.value.name == name


@pytest.mark.parametrize(
    ("form", "timed"),
    [
        (AccessLogFormat(), True),
        (AccessLogFormat(fields=("time", "status")), False),
        (AccessLogFormat(fields=("gate_ms",)), True),
        (AccessLogFormat("combined"), False),
        (AccessLogFormat("{time} {limiter_ms}"), True),
        (AccessLogFormat("{time} {duration_ms}"), False),
    ],
)
def test_phases_are_measured_only_for_a_format_that_has_them(
    form: AccessLogFormat, timed: bool
) -> None:
    """Clocks are read for the gate's and the limiter's time only if a line shows them."""
    assert form.is_timed is timed


def test_each_field_has_one_name() -> None:
    """No field is listed twice."""
    assert len(set(FIELDS)) == len(FIELDS) > len(DEFAULT_FIELDS)
