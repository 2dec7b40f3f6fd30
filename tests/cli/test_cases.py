"""Test files of policies: what they may have, and their faults."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from gateway.cli.case_schema import case_schema
from gateway.cli.cases import BEGIN_US, Case, find_files, read_cases
from gateway.domain.limits import SECOND_US
from gateway.policies.faults import PolicyFaults
from gateway.policies.load import load
from tests.docs.pages import ROOT
from tests.kit.policies import write_policies

KEYS = "keys: {ci: {plan: free}}\n"


def as_an_editor_reads(text: str) -> object:
    """YAML 1.2 has no times: they are texts."""
    return json.loads(json.dumps(yaml.safe_load(text), default=str))


def read(folder: Path, text: str) -> list[Case]:
    """The tests of a file with this text, for the tests' policies."""
    file = folder / "x.yaml"
    file.write_text(text, encoding="utf-8")
    return read_cases([file], load(write_policies(folder / "policies", "http://127.0.0.1:9")))


def faults_of(folder: Path, text: str) -> list[str]:
    with pytest.raises(PolicyFaults) as caught:
        read(folder, text)
    return [str(fault).replace(f"{folder}/", "") for fault in caught.value.faults]


def test_a_single_request(tmp_path: Path) -> None:
    """A test without steps is one step; what it does not say has a default."""
    (case,) = read(tmp_path, "tests: [{name: x, send: GET /a, expect: {status: admitted}}]")
    (step,) = case.steps
    assert (case.name, case.line, case.at_us) == ("x", 1, BEGIN_US)
    assert (step.send, step.times, step.over_us, step.wait_us, step.lasts_us) == (
        "GET /a",
        1,
        0,
        0,
        0,
    )
    assert step.shared.sender is None
    assert str(step.shared.client) == "192.0.2.1"
    assert step.expected["status"].value == "admitted"


def test_steps_share_key_address_and_headers(tmp_path: Path) -> None:
    """A step may have its own key and address, and adds its headers to those of the test."""
    (case,) = read(
        tmp_path,
        KEYS + "tests:\n"
        "  - name: x\n"
        "    at: 2027-01-31T23:59:00Z\n"
        "    key: ci\n"
        "    from: 198.51.100.7\n"
        "    headers: {A: 1}\n"
        "    steps:\n"
        "      - {send: GET /a, times: 5, over: 1m}\n"
        "      - {wait: 1.5s}\n"
        "      - {send: GET /b, key: none, from: '::1', headers: {B: [x, y]}, lasts: 2s}\n",
    )
    first, pause, last = case.steps
    assert case.at_us == BEGIN_US + (30 * 86_400 + 86_340) * SECOND_US
    assert first.shared.sender is not None
    assert (first.times, first.over_us, first.shared.headers) == (5, 60_000_000, (("A", "1"),))
    assert (pause.send, pause.wait_us, pause.line) == ("", 1_500_000, 10)
    assert last.shared.sender is None
    assert str(last.shared.client) == "::1"
    assert last.shared.headers == (("A", "1"), ("B", "x"), ("B", "y"))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "x.yaml: found an empty file, expected the key 'tests'"),
        ("tests: []", "x.yaml:1: tests: found an empty list, expected at least one test"),
        ("test: 1\ntests: [{name: x, wait: 1s}]", "found the key 'test', expected one of"),
        ("tests: [{send: GET /}]", "x.yaml:1: tests[0]: found a mapping without 'name', expected"),
        ("tests: [{name: '', send: GET /}]", "tests[0].name: found '', expected 1 to 200"),
        ('tests: [{name: "\\e[1m", send: GET /}]', "tests[0].name: found '\\x1b[1m', expected"),
        ("tests:\n- {name: x, send: GET /}\n- {name: x, send: GET /}",
         "x.yaml:3: tests[1].name: found 'x', expected another name (first on line 2)"),
        ("tests: [{name: x}]", "tests[0]: found none of them, expected the key 'send' or 'wait'"),
        ("tests: [{name: x, times: 2, wait: 1s}]", "found the key 'times' without 'send'"),
        ("tests: [{name: x, send: GET /, over: 2s}]", "found the key 'over' without 'times'"),
        ("tests: [{name: x, send: GET /, steps: []}]",
         "tests[0].send: found the key 'send' beside 'steps', expected it in one of the steps"),
        ("tests: [{name: x, steps: []}]", "tests[0].steps: found 0 steps, expected 1 to 1000"),
        ("tests: [{name: x, send: get /}]", "found 'get /', expected a method in capitals"),
        ("tests: [{name: x, send: GET /é}]", "found 'GET /é', expected a method in capitals"),
        ('tests: [{name: x, send: "GET / HTTP/1.1\\r\\nHost: x"}]', "expected a method in"),
        ("tests: [{name: x, send: GET /, times: 100001}]", "a whole number from 1 to 100000"),
        ("tests: [{name: x, send: GET /, wait: 5}]",
         "tests[0].wait: found the number 5 without a unit, expected a duration"),
        ("tests: [{name: x, wait: 367d}]", "found '367d', expected a duration up to 366d"),
        ("tests: [{name: x, at: 2027-01-31, wait: 1s}]", "expected a time from 1970 to 2111"),
        ("tests: [{name: x, at: 9999-01-31T00:00:00Z, wait: 1s}]", "expected a time from 1970"),
        ("tests: [{name: x, send: GET /, from: home}]", "found 'home', expected an IP address"),
        ("tests: [{name: x, send: GET /, headers: {a b: c}}]", "expected the name of a header"),
        ('tests: [{name: x, send: GET /, headers: {a: "b\\nc: d"}}]', "a text without control"),
        ("tests: [{name: x, send: GET /, headers: {a: {}}}]", "a text, or a list of texts"),
        (KEYS + "tests: [{name: x, send: GET /, key: cj}]",
         "tests[0].key: found 'cj', expected one of ci, none"),
        ("tests: [{name: x, send: GET /, key: {plan: fre}}]", "tests[0].key.plan: found 'fre'"),
        ("keys: {none: {plan: free}}\ntests: [{name: x, wait: 1s}]", "expected another name"),
        ("keys: {a: {}}\ntests: [{name: x, wait: 1s}]",
         "keys.a: found a key without a plan, expected the key 'plan': one of free, pro"),
        ("keys: {a: {plan: free, scope: [b]}}\ntests: [{name: x, wait: 1s}]",
         "keys.a.scope: found the key 'scope', expected one of plan,"),
        ("keys:\n  a:\n    plan: free\n    ip_ranges: [10.0.0.1/8]\ntests: [{name: x, wait: 1s}]",
         "x.yaml:4: keys.a.ip_ranges[0]: found '10.0.0.1/8', expected an address or a CIDR range"),
        ("keys: {a: {plan: free, status: gone}}\ntests: [{name: x, wait: 1s}]",
         "found 'gone', expected one of valid, suspended, revoked"),
        ("keys: {a: {account: acme}}\ntests: [{name: x, wait: 1s}]",
         "keys.a.account: found 'acme', expected none, as there are none, under accounts"),
        ("accounts: {acme: {service: []}}\ntests: [{name: x, wait: 1s}]",
         "found the key 'service', expected one of plan, services, limits, billing_day (did"),
        ("accounts: {acme: {billing_day: 32}}\ntests: [{name: x, wait: 1s}]",
         "accounts.acme.billing_day: found a number, expected a day of the month from 1 to 31"),
        ("tests: [{name: x, wait: 1s, body: a}]", "found the key 'body' without 'send'"),
        ("tests: [{name: x, send: POST /, body: 5}]",
         "tests[0].body: found the number 5, expected a text, or a mapping or a list, which is"),
        ("tests: [{name: x, send: POST /, body: }]", "tests[0].body: found nothing, expected a t"),
        ('tests: [{name: x, send: POST /, body: "\\ud800"}]', "found invalid YAML"),
        ("tests: [{name: x, headers: {Content-length: 5}, steps: [{send: POST /, body: a}]}]",
         "tests[0].steps[0].body: found the header Content-length, expected a body without it"),
        ("tests: [{name: x, send: GET /, expect: {}}]", "expect: found an empty mapping, expected"),
        ("tests: [{name: x, send: GET /, expect: {states: 1}}]", "(did you mean 'status'?)"),
        ("tests: [{name: x, send: GET /, expect: {status: 200}}]",
         "found the number 200, expected admitted, as the upstream answers then"),
        ("tests: [{name: x, send: GET /, expect: {status: 7}}]", "from 400 to 599"),
        ("tests: [{name: x, send: GET /, expect: {admitted: 2}}]", "a whole number from 0 to 1"),
        ("tests: [{name: x, send: GET /, expect: {route: serch}}]", "(did you mean 'search'?)"),
        ("tests: [{name: x, send: GET /, expect: {limit: plain}}]", "(did you mean 'plan'?)"),
        ("tests: [{name: x, send: GET /, expect: {reason: key_mising}}]", "'key_missing'?)"),
        ("tests: [{name: x, send: GET /, expect: {code: NOTFOUND}}]", "you mean 'NOT_FOUND'?)"),
    ],
)  # fmt: skip
def test_faults(tmp_path: Path, text: str, fault: str) -> None:
    """Each fault has file, line and path, what was found and what was expected."""
    assert any(fault in each for each in faults_of(tmp_path, text)), faults_of(tmp_path, text)


def test_all_faults_at_once(tmp_path: Path) -> None:
    """All faults of all files are reported together, by file and line."""
    found = faults_of(
        tmp_path, "keys: {a: {}}\ntests:\n- {name: x, send: x}\n- {name: y, times: 0}"
    )
    assert [fault.split(" ")[0] for fault in found] == [
        *("x.yaml:1:", "x.yaml:3:", "x.yaml:4:", "x.yaml:4:", "x.yaml:4:")
    ]


def test_too_many_faults_end_the_reading(tmp_path: Path) -> None:
    """A report has at most a thousand faults, and says that there are more."""
    found = faults_of(tmp_path, "tests:\n" + "- {name: x, y: 1}\n" * 2_000)
    assert len(found) == 1_001
    assert "1000 faults or more" in found[-1]


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """A missing file is a fault, and so is a folder."""
    policy = load(ROOT / "policies")
    with pytest.raises(PolicyFaults) as caught:
        read_cases([tmp_path / "none.yaml", tmp_path], policy)
    assert len(caught.value.faults) == 2


def test_names_of_limits_are_those_of_plans_too(tmp_path: Path) -> None:
    """A plan may add a limit to a route; a test may expect it."""
    folder = write_policies(
        tmp_path / "policies",
        "http://127.0.0.1:9",
        plans="plans: {free: {rate: 60/minute, routes: {api: 5/minute}}}",
    )
    file = tmp_path / "x.yaml"
    file.write_text("tests: [{name: x, send: GET /, expect: {limit: api}}]")
    assert len(read_cases([file], load(folder))) == 1


@pytest.mark.parametrize("file", find_files(ROOT / "policies"), ids=lambda file: file.name)
def test_the_schema_knows_the_shipped_tests(file: Path) -> None:
    """The shipped test files match the schema, and the shipped schema is up to date."""
    schema = case_schema()
    jsonschema.Draft7Validator.check_schema(schema)
    jsonschema.Draft7Validator(schema).validate(as_an_editor_reads(file.read_text()))
    assert json.loads((ROOT / "policies/test.schema.json").read_text()) == schema


@pytest.mark.parametrize(
    "text",
    [
        "tests: [{name: x}]",
        "tests: [{name: x, send: get /}]",
        "tests: [{name: x, send: GET /, tims: 3}]",
        "keys: {a: {scope: []}}\ntests: [{name: x, send: GET /}]",
        "tests: [{name: x, send: GET /, expect: {code: X}}]",
    ],
)
def test_the_schema_finds_what_the_command_finds(tmp_path: Path, text: str) -> None:
    """An editor marks wrong keys and values."""
    assert faults_of(tmp_path, text)
    assert not jsonschema.Draft7Validator(case_schema()).is_valid(yaml.safe_load(text))
