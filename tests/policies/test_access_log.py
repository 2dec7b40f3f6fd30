"""`access_log` in policies: format, fields, query, redact, sample."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.domain.access_log import DEFAULT_FIELDS, AccessLogFormat
from gateway.manage.policy_settings import setting_changes
from gateway.policies.load import load
from tests.policies.folder import complaints, write


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("{}", AccessLogFormat()),
        ("{format: combined}", AccessLogFormat("combined")),
        ('{format: "{time} {path}"}', AccessLogFormat("{time} {path}")),
        ("{fields: [time, status]}", AccessLogFormat(fields=("time", "status"))),
        (
            "{fields: [tls, default, tls]}",
            AccessLogFormat(fields=("tls", *DEFAULT_FIELDS)),
        ),
        ("{query: off}", AccessLogFormat(query="off")),
        ('{query: "off"}', AccessLogFormat(query="off")),
        ("{query: names}", AccessLogFormat(query="names")),
        ("{query: keep, redact: [E-Mail]}", AccessLogFormat(query="keep", redact=("e-mail",))),
        ("{redact: []}", AccessLogFormat(redact=())),
        ("{sample: 10%}", AccessLogFormat(sample=0.1)),
        ("{sample: 0.01%}", AccessLogFormat(sample=0.0001)),
        ("{sample: 100%}", AccessLogFormat()),
        (
            '{format: "{time} {sample}", sample: 5%}',
            AccessLogFormat("{time} {sample}", sample=0.05),
        ),
    ],
)
def test_settings(tmp_path: Path, text: str, read: AccessLogFormat) -> None:
    """Each setting in each of its forms."""
    assert load(write(tmp_path, log=f"access_log: {text}\n")).access_log == read


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("json", "access_log: found 'json', expected a mapping with one of format, fields, query"),
        ("{formats: json}", "found the key 'formats', expected one of format, fields, query, red"),
        ("{format: combind}", 'expected json, combined, or a template such as "{time} {client_ip'),
        ("{format: combind}", "(did you mean 'combined'?)"),
        ('{format: "{time} {stauts}"}', "access_log.format: found the field 'stauts', expected"),
        ('{format: "{time} {stauts}"}', "(did you mean 'status'?)"),
        ('{format: "{time} {status"}', "expected a template with fields in braces, such as {stat"),
        ('{format: "{time:>9}"}', "expected a template with fields in braces, such as {status}, "),
        ('{format: "{{}}"}', "expected a template with fields in braces, such as {status}"),
        ('{format: "{time}\\n"}', "expected a template of up to 4096 printable characters on one"),
        (f'{{format: "{{time}}{"x" * 4096}"}}', "expected a template of up to 4096 printable"),
        ("{fields: time}", "access_log.fields: found 'time', expected a list of fields such as ["),
        ("{fields: []}", "access_log.fields: found an empty list, expected at least one field"),
        ("{fields: [user-agent]}", "access_log.fields[0]: found 'user-agent', expected one of"),
        ("{fields: [user-agent]}", "(did you mean 'user_agent'?)"),
        ("{fields: [{}]}", "access_log.fields[0]: found a mapping, expected the name of a field"),
        ("{format: combined, fields: [time]}", "access_log.fields: found a list, expected it with"),
        ("{query: all}", "access_log.query: found 'all', expected one of keep, names, off"),
        ("{query: on}", "access_log.query: found on (a YAML boolean), expected one of keep, names"),
        ("{redact: token}", "access_log.redact: found 'token', expected a list of parameters such"),
        ("{redact: [a=b]}", "access_log.redact[0]: found 'a=b', expected a parameter's name as it"),
        ("{sample: 0%}", "access_log.sample: found '0%', expected a percentage from 0.0001% to"),
        ("{sample: 101%}", "expected a percentage from 0.0001% to 100% such as 10%"),
        ("{sample: 0.1}", "access_log.sample: found the number 0.1, expected a percentage"),
        ("{sample: -5%}", "access_log.sample: found '-5%', expected a percentage from 0.0001%"),
        (
            '{format: "{time} {path}", sample: 10%}',
            "expected a template with {sample}, as sample is below 100%",
        ),
    ],
)
def test_faults(tmp_path: Path, text: str, fault: str) -> None:
    """Each wrong value is named with what was expected."""
    found = complaints(write(tmp_path, log=f"access_log: {text}\n"))
    assert len(found) == 1, found
    assert found[0].startswith("log.yaml:1: access_log")
    assert fault in found[0]


def test_a_change_is_a_difference_of_policies(tmp_path: Path) -> None:
    """`gateway diff` shows changed settings of the log."""
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    old = load(write(tmp_path / "old"))
    new = load(write(tmp_path / "new", log="access_log: {format: combined, query: names}\n"))
    assert [(each.name, each.before, each.after) for each in setting_changes(old, new)] == [
        ("access_log.format", "json", "combined"),
        ("access_log.query", "off", "names"),
    ]
