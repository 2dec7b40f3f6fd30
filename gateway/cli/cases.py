"""Reads test files of policies: the keys, the requests to send, and what to expect of them.

A file is read like a policy file, and its faults look the same. Keys and accounts have the fields
of `gateway keys create` and `gateway accounts set`, and are read by the same code. Names of routes,
limits and error codes that do not exist are faults: a test that expects one could never pass.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

from gateway.cli.case_fields import (
    Body,
    Headers,
    read_address,
    read_amount,
    read_body,
    read_headers,
    read_host,
    read_known,
    read_line,
    read_moment,
    read_span,
    read_status,
    read_times,
    read_title,
)
from gateway.domain.keys import Status
from gateway.domain.limits import SECOND_US
from gateway.domain.meets import limits_for
from gateway.domain.networks import Address, parse_address
from gateway.domain.patterns import NAME
from gateway.domain.policy import AUTH_VERIFY, FAILED_AUTH, Policy
from gateway.domain.routes import CORS_PREFLIGHT, OWN_ROUTES
from gateway.errors import TABLE
from gateway.manage.forms import read_account, read_new_key
from gateway.manage.problems import Invalid
from gateway.policies.documents import line_of, policy_files, read_files
from gateway.policies.faults import (
    MAX_FAULTS,
    Fault,
    PolicyFaults,
    TooManyFaults,
    one_of,
    quoted,
    suggestion,
)
from gateway.policies.values import Fields, Value, setting

#: The folder of test files within a policy folder.
FOLDER: Final = "tests"
FILE: Final = ("accounts", "keys", "tests")
STEP: Final = (
    *("wait", "send", "times", "over", "lasts"),
    *("key", "from", "host", "headers", "body", "expect"),
)
TEST: Final = ("name", "at", "steps", *STEP)
#: A key's fields here, beside those of a new key.
KEY: Final = (
    *("plan", "account", "services", "scopes", "permissions", "ip_ranges", "environment"),
    *("status", "expires", "limits"),
)
ACCOUNT: Final = ("plan", "services", "limits", "billing_day")
EXPECTATION: Final = (
    *("status", "admitted", "route", "code", "reason", "limit"),
    *("remaining", "reset_after", "retry_after"),
)
#: The word for "nothing" in `key`, `route` and `limit`.
NONE: Final = "none"
MOST_STEPS: Final = 1_000
_VALID: Final[Status] = "valid"
_NO_HEADERS: Final[Headers] = ()
#: When a test begins if it does not say so.
BEGIN_US: Final = 1_798_761_600 * SECOND_US  # 2027-01-01T00:00:00Z
DEFAULT_ADDRESS: Final = parse_address("192.0.2.1")
#: The headers that follow from a body.
_FRAMING: Final = frozenset({"content-length", "transfer-encoding"})
#: What a test with steps may have beside them.
SHARED: Final = frozenset({"key", "from", "host", "headers"})
#: The host that requests ask for if the test names none.
DEFAULT_HOST: Final = "gateway.example"


@dataclass(frozen=True, slots=True)
class Expected:
    """What one field should be. line: of the field in the file"""

    value: str | int
    line: int


@dataclass(frozen=True, slots=True, eq=False)
class Sender:
    """A key of the tests, by its identity: what `keys create` and `accounts set` get, by field.

    name:    "": it is written where it is used
    fields:  of the key; account: of its account, without the name
    """

    name: str
    fields: Mapping[str, object]
    account: Mapping[str, object]
    status: Status


@dataclass(frozen=True, slots=True)
class Shared:
    """What a test may say for all of its steps.

    sender:  whose key the requests have; None: none
    client:  the address that they come from
    headers: names and values, in order
    host:    the value of Host; a header of this name is sent instead
    """

    sender: Sender | None = None
    client: Address = DEFAULT_ADDRESS
    headers: Headers = ()
    host: str = DEFAULT_HOST


@dataclass(frozen=True, slots=True)
class Step:
    """Requests that are all the same, and what they should lead to.

    wait_us: passes before the first one
    send:    "GET /v1/connectors"; "": nothing is sent
    shared:  who sends them
    body:    of each of them; None: they have none
    times, over_us: this many, evenly spaced over this time: each is followed by its part of it
    lasts_us: how long each admitted one is in progress, for concurrency limits
    """

    line: int
    wait_us: int
    send: str
    shared: Shared
    body: Body | None
    times: int
    over_us: int
    lasts_us: int
    expected: Mapping[str, Expected]


@dataclass(frozen=True, slots=True)
class Case:
    """One test. at_us: when it begins, Unix microseconds"""

    name: str
    file: str
    line: int
    at_us: int
    steps: tuple[Step, ...]


def find_files(folder: Path) -> list[Path]:
    """The test files of a policy folder. Raises OSError."""
    return policy_files(folder / FOLDER)


def read_cases(paths: Sequence[Path], policy: Policy) -> list[Case]:
    """The tests of these files, in order. Raises PolicyFaults with all faults."""
    documents = read_files(paths)
    faults = list(documents.faults)
    cases: list[Case] = []
    names = _Names.of(policy)
    try:
        for document in documents.documents:
            if document.root is None:
                faults.append(Fault(document.file, 0, "", "an empty file", "the key 'tests'"))
                continue
            root = Value(document.root, document.file, "", line_of(document.root), faults)
            cases += _FileReader(policy, names, root).read()
    except TooManyFaults as exc:
        more = Fault(
            str(paths[0]), 0, "", f"{MAX_FAULTS} faults or more", "these to be fixed first"
        )
        raise PolicyFaults([*faults, more]) from exc
    if faults:
        order = {str(path): at for at, path in enumerate(paths)}
        raise PolicyFaults(sorted(faults, key=lambda each: (order.get(each.file, 0), each.line)))
    return cases


@dataclass(frozen=True, slots=True)
class _Names:
    """What an expectation may name."""

    routes: tuple[str, ...]
    limits: tuple[str, ...]
    codes: tuple[str, ...]

    @classmethod
    def of(cls, policy: Policy) -> _Names:
        limits = {FAILED_AUTH.name: None, AUTH_VERIFY.name: None}
        for route in policy.routes.values():
            limits.update((limit.name, None) for limit in route.every_limit)
            for plan in policy.plans.values() if route.auth == "key" else (None,):
                limits.update((limit.name, None) for limit in limits_for(plan, route, {}))
        return cls(
            (
                *policy.routes,
                *(route.name for route in (*OWN_ROUTES.values(), CORS_PREFLIGHT)),
            ),
            tuple(limits),
            tuple(dict.fromkeys(refusal.code for refusal in TABLE.values())),
        )


@dataclass(slots=True)
class _FileReader:
    """Reads one file."""

    policy: Policy
    names: _Names
    root: Value
    accounts: dict[str, Value] = field(default_factory=dict)
    senders: dict[str, Sender | None] = field(default_factory=dict)

    def read(self) -> Iterator[Case]:
        given = self.root.fields(FILE, required=("tests",))
        if given is None:
            return
        if "accounts" in given:
            self.accounts = given["accounts"].named(NAME, "an account") or {}
            for name, value in self.accounts.items():
                self._check_account(name, value)
        if "keys" in given:
            for name, value in (given["keys"].named(NAME, "a key") or {}).items():
                if name == NONE:
                    value.add_fault("another name: key: none sends no key", f"the key {NONE!r}")
                else:
                    self.senders[name] = self._sender(name, value)
        items = given["tests"].items("a list of tests") if "tests" in given else None
        if items is not None and not items:
            given["tests"].add_fault("at least one test", "an empty list")
        titles: dict[str, int] = {}
        for item in items or ():
            case = self._case(item)
            if case is not None:
                if case.name in titles:
                    first = titles[case.name]
                    at = replace(item, path=f"{item.path}.name")
                    at.add_fault(f"another name (first on line {first})", quoted(case.name))
                titles.setdefault(case.name, item.line)
                yield case

    # -- keys and accounts -------------------------------------------------------------------------

    def _check_account(self, name: str, value: Value) -> None:
        given = value.fields(ACCOUNT)
        if given is not None:
            plain = {key: each.plain() for key, each in given.items()}
            _checked(value, given, partial(read_account, name, plain, self.policy))

    def _sender(self, name: str, value: Value) -> Sender | None:
        given = value.fields(KEY)
        if given is None:
            return None
        status = setting(given, "status", _read_key_status, _VALID)
        plain = {key: each.plain() for key, each in given.items() if key != "status"}
        services = plain.pop("services", None)
        account = self._account_of(given, services)
        # Checked here, and read again for each test: an expiry is relative to its beginning.
        title = name or "test"
        form = {"name": title, **plain}
        _checked(value, given, partial(read_new_key, form, self.policy, BEGIN_US))
        if "services" in given:
            _checked(value, given, partial(read_account, title, {"services": services}, None))
        if "plan" not in given and not account.get("plan"):
            value.add_fault(f"the key 'plan': {one_of(self.policy.plans)}", "a key without a plan")
        return Sender(name, form, account, status)

    def _account_of(self, given: Fields, services: object) -> Mapping[str, object]:
        """The fields of the key's account."""
        at = given.get("account")
        known = None if at is None else self.accounts.get(str(at.node.value))
        if at is not None and "services" in given:
            given["services"].add_fault(
                "services of the account, under accounts, as the key has one"
            )
        if at is not None and at.is_text and known is None:
            name = str(at.node.value)
            at.add_fault(
                f"{one_of(self.accounts)}, under accounts{suggestion(name, self.accounts)}"
            )
        if known is not None:
            found = known.plain()
            return found if isinstance(found, Mapping) else {}
        return {} if services is None else {"services": services}

    # -- tests -------------------------------------------------------------------------------------

    def _case(self, value: Value) -> Case | None:
        given = value.fields(TEST, required=("name",))
        if given is None:
            return None
        name = setting(given, "name", read_title, "")
        at_us = setting(given, "at", read_moment, BEGIN_US)
        own = {key: each for key, each in given.items() if key in STEP}
        if "steps" not in given:
            return Case(name, value.file, value.line, at_us, (self._step(value, own, Shared()),))
        for key in own.keys() - SHARED:
            own[key].add_fault("it in one of the steps", f"the key {key!r} beside 'steps'")
        shared = self._shared({key: own[key] for key in own.keys() & SHARED}, Shared())
        items = given["steps"].items("a list of steps")
        if items is not None and not 0 < len(items) <= MOST_STEPS:
            given["steps"].add_fault(f"1 to {MOST_STEPS} steps", f"{len(items)} steps")
        steps = []
        for item in items or ():
            fields = item.fields(STEP)
            if fields is not None:
                steps.append(self._step(item, fields, shared))
        return Case(name, value.file, value.line, at_us, tuple(steps))

    def _shared(self, given: Fields, default: Shared) -> Shared:
        return Shared(
            self._key(given["key"]) if "key" in given else default.sender,
            setting(given, "from", read_address, default.client),
            default.headers + setting(given, "headers", read_headers, _NO_HEADERS),
            setting(given, "host", read_host, default.host),
        )

    def _step(self, value: Value, given: Fields, default: Shared) -> Step:
        if "send" not in given:
            for key in sorted(given.keys() - {"wait"}):
                given[key].add_fault("the key 'send' with it", f"the key {key!r} without 'send'")
            if "wait" not in given:
                value.add_fault("the key 'send' or 'wait'", "none of them")
        if "over" in given and "times" not in given:
            given["over"].add_fault("the key 'times' with it", "the key 'over' without 'times'")
        times = setting(given, "times", read_times, 1)
        shared = self._shared(given, default)
        framing = [name for name, _ in shared.headers if name.lower() in _FRAMING]
        if "body" in given and framing:
            given["body"].add_fault(
                "a body without it, as it follows from the body", f"the header {framing[0]}"
            )
        return Step(
            line=value.line,
            wait_us=setting(given, "wait", read_span, 0),
            send=setting(given, "send", read_line, ""),
            shared=shared,
            body=read_body(given["body"]) if "body" in given else None,
            times=times,
            over_us=setting(given, "over", read_span, 0),
            lasts_us=setting(given, "lasts", read_span, 0),
            expected=self._expected(given["expect"], times) if "expect" in given else {},
        )

    def _key(self, value: Value) -> Sender | None:
        """The key of a test: the name of one, or its fields."""
        if not value.is_text:
            return self._sender("", value)
        name = str(value.node.value)
        if name == NONE or name in self.senders:
            return self.senders.get(name)
        known = (*self.senders, NONE)
        value.add_fault(f"{one_of(known)}{suggestion(name, known)}, or the fields of a key")
        return None

    def _expected(self, value: Value, times: int) -> dict[str, Expected]:
        """times: the number of requests"""
        given = value.fields(EXPECTATION)
        if given is None:
            return {}
        if not given:
            value.add_fault(one_of(EXPECTATION), "an empty mapping")
        readers: dict[str, Callable[[Value], str | int | None]] = {
            "status": read_status,
            "admitted": lambda each: each.integer(0, times),
            "route": partial(read_known, names=(*self.names.routes, NONE)),
            "code": partial(read_known, names=self.names.codes),
            "reason": partial(read_known, names=tuple(TABLE)),
            "limit": partial(read_known, names=self.names.limits),
        }
        found: dict[str, Expected] = {}
        for key, each in given.items():
            read = readers.get(key, read_amount)(each)
            if read is not None:
                found[key] = Expected(read, each.line)
        return found


def _read_key_status(value: Value) -> Status | None:
    return value.choice("valid", "suspended", "revoked")


def _checked(at: Value, given: Fields, read: Callable[[], object]) -> None:
    """Add the faults that a form has, each at the field that it is about."""
    try:
        read()
    except Invalid as invalid:
        for fault in invalid.faults:
            name = re.split(r"[.\[]", fault.at, maxsplit=1)[0]
            value = replace(given.get(name, at), path=f"{at.path}.{fault.at}")
            value.add_fault(fault.expected, fault.found)
