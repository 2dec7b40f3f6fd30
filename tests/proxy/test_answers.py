"""The exact answers of the gateway."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import replace

from gateway.domain.limits import LEASE_US, Check, Decision, Limit, Standing
from gateway.domain.policy import Bounds
from gateway.domain.route import Route
from gateway.domain.shown import retry_after_s
from gateway.errors import (
    BODY_TOO_LARGE,
    HEADERS_TOO_LARGE,
    INSUFFICIENT_PERMISSION,
    INSUFFICIENT_SCOPE,
    KEY_MISSING,
    METHOD_NOT_ALLOWED,
    RATE_LIMITED,
    SERVICE_NOT_ENABLED,
    TABLE,
    URL_TOO_LONG,
    Refusal,
)
from gateway.proxy import answers
from tests.kit.rows import each_row

PLAN = Limit("plan", "rate", 60, 60_000_000, 100)
DAILY = Limit("daily", "quota", 1000, 86_400_000_000)
DECISION = Decision(
    True, 1, None, 1_000_000_500_000, (Standing(59, 60_252_631), Standing(7, 999_999))
)


def test_rate_fields() -> None:
    """The governing limit's values; seconds are rounded up, so that they are never too early."""
    assert answers.rate_fields((PLAN, DAILY), DECISION) == (
        b"X-RateLimit-Limit: 1000\r\nX-RateLimit-Remaining: 7\r\n"
        b"X-RateLimit-Reset: 1000002\r\nX-RateLimit-Reset-After: 1\r\n"
    )


def test_ietf_fields() -> None:
    """One item per limit, in the draft's structured fields."""
    assert answers.ietf_fields((PLAN, DAILY), DECISION) == (
        b'RateLimit-Policy: "plan";q=60;w=60, "daily";q=1000;w=86400\r\n'
        b'RateLimit: "plan";r=59;t=61, "daily";r=7;t=1\r\n'
    )


@each_row("is_candidate", [False, True])
def test_ietf_fields_without_what_never_refuses(is_candidate: bool) -> None:
    """A limit in shadow mode, or a candidate, is no limit of the client."""
    tried = replace(PLAN, name="tried", shadow=True, is_candidate=is_candidate)
    standings = (DECISION.standings[0], Standing(1, 1), DECISION.standings[1])
    assert answers.ietf_fields(
        (PLAN, tried, DAILY), replace(DECISION, standings=standings)
    ) == answers.ietf_fields((PLAN, DAILY), DECISION)


def test_ietf_fields_of_shadow_limits_alone() -> None:
    """The governing one, as in X-RateLimit-*: a list has an item at least."""
    tried = tuple(replace(limit, shadow=True) for limit in (PLAN, DAILY))
    decision = replace(DECISION, governing=0)
    assert answers.ietf_fields(tried, decision) == (
        b'RateLimit-Policy: "plan";q=60;w=60\r\nRateLimit: "plan";r=59;t=61\r\n'
    )


def test_ietf_fields_of_leases() -> None:
    """A concurrency limit names its unit, and has no window."""
    held = Limit("open", "concurrency", 5, LEASE_US)
    decision = Decision(True, 0, None, 0, (Standing(4, 6_000_000),))
    assert answers.ietf_fields((held,), decision) == (
        b'RateLimit-Policy: "open";q=5;qu="concurrent-requests"\r\nRateLimit: "open";r=4;t=6\r\n'
    )


def test_undecided_fields() -> None:
    """Without a decision, the four fields report nothing remaining."""
    check = Check((PLAN,), ("x",), 1)
    assert answers.undecided_fields(check, 1_500_000) == (
        b"X-RateLimit-Limit: 60\r\nX-RateLimit-Remaining: 0\r\n"
        b"X-RateLimit-Reset: 3\r\nX-RateLimit-Reset-After: 1\r\n"
    )


def test_retry_after() -> None:
    """At least a second, rounded up; none if waiting does not help."""
    decision = Decision(False, 0, 1, 0, ())
    assert retry_after_s(decision) == 1
    decision.retry_us = 1_000_001
    assert retry_after_s(decision) == 2
    decision.retry_us = None
    assert retry_after_s(decision) is None


def test_refusal_bodies() -> None:
    """401 and similar, 429, and 429 for a JSON-RPC client."""
    assert json.loads(answers.refusal_body(KEY_MISSING, None, request_id="a-1")) == {
        "error": "unauthorized",
        "message": KEY_MISSING.message,
        "code": "INVALID_API_KEY",
        "request_id": "a-1",
    }
    assert json.loads(answers.refusal_body(RATE_LIMITED, 5, request_id="a-1")) == {
        "error": {
            "code": "rate_limit_exceeded",
            "message": RATE_LIMITED.message,
            "retry_after": 5,
            "request_id": "a-1",
        }
    }
    rpc = json.loads(answers.refusal_body(RATE_LIMITED, 5, json_rpc=True, request_id="a-1"))
    assert (rpc["jsonrpc"], rpc["id"]) == ("2.0", None)
    assert rpc["error"]["data"] == {
        "code": "rate_limit_exceeded",
        "retry_after": 5,
        "request_id": "a-1",
    }
    assert rpc["error"]["code"] == 429


def test_where_errors_are_documented() -> None:
    """With `error_docs`, each body has its URL with the code in lower case."""
    docs = "https://docs.example.com/errors"
    body = json.loads(answers.refusal_body(KEY_MISSING, None, error_docs=docs))
    assert body["doc"] == f"{docs}#invalid_api_key"
    limited = f"{docs}#rate_limit_exceeded"
    body = json.loads(answers.refusal_body(RATE_LIMITED, 5, error_docs=docs))
    assert body["error"]["doc"] == limited
    body = json.loads(answers.refusal_body(RATE_LIMITED, 5, json_rpc=True, error_docs=docs))
    assert body["error"]["data"]["doc"] == limited


@each_row(
    ("refusal", "error_docs", "json_rpc"),
    itertools.product(TABLE.values(), [None, "https://docs.example.com/errors"], [False, True]),
)
def test_frames(refusal: Refusal, error_docs: str | None, json_rpc: bool) -> None:
    """The parts and the id make the whole answer; HEAD differs only in the body."""
    request_id = b"0123-ab"
    parts = answers.refusal_frame(
        *(refusal, 5, (), b"", "connectors:read", len(request_id), error_docs),
        json_rpc=json_rpc,
        head_only=False,
    )
    start, (middle, end), body_bytes = parts
    head, _, body = (start + b"X-Request-Id: " + request_id + middle + request_id + end).partition(
        b"\r\n\r\n"
    )
    assert body == answers.refusal_body(
        *(refusal, 5, "connectors:read"),
        json_rpc=json_rpc,
        request_id=request_id.decode(),
        error_docs=error_docs,
    )
    assert b"\r\nContent-Length: %d\r\n" % len(body) in head + b"\r\n"
    assert body_bytes == len(body)
    bare = answers.refusal_frame(
        *(refusal, 5, (), b"", "connectors:read", len(request_id), error_docs),
        json_rpc=json_rpc,
        head_only=True,
    )
    assert bare == (start, (middle.partition(b"\r\n\r\n")[0] + b"\r\n\r\n",), 0)


def test_a_whole_frame() -> None:
    """Its bytes, around the fields of the limits and the id, which is in the body as well."""
    start, (middle, end), body_bytes = answers.refusal_frame(
        *(KEY_MISSING, None, (), b"Connection: close\r\n", "", 4, None),
        json_rpc=False,
        head_only=False,
    )
    body = (
        b'{"error": "unauthorized", "message": "%b", "code": "INVALID_API_KEY", '
        b'"request_id": "0-ab"}' % KEY_MISSING.message.encode()
    )
    assert start + b"X-Request-Id: 0-ab" + middle + b"0-ab" + end == (
        b"HTTP/1.1 401 Unauthorized\r\nContent-Type: application/json\r\n"
        b"WWW-Authenticate: Bearer\r\nX-Request-Id: 0-ab\r\n"
        b"Content-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(body), body)
    )
    assert body_bytes == len(body)


@each_row(
    ("refusal", "ends"),
    [
        (INSUFFICIENT_SCOPE, "Needed: a:read, b:read."),
        (INSUFFICIENT_PERMISSION, "Needed: scm:read."),
        (SERVICE_NOT_ENABLED, "The service: scm."),
        (BODY_TOO_LARGE, "At most: 10485760 bytes."),
        (URL_TOO_LONG, "At most: 8192 bytes."),
        (HEADERS_TOO_LARGE, "At most: 32768 bytes in 100 lines."),
    ],
)
def test_what_a_refusal_names(refusal: Refusal, ends: str) -> None:
    """The message ends with what the key lacks, or the bound that was exceeded."""
    route = Route(
        *("r", "GET", ("x",), False, "api"),
        scopes=("a:read", "b:read"),
        permission=("scm", "read"),
        service="scm",
    )
    name = answers.named(refusal, route, Bounds())
    message = json.loads(answers.refusal_body(refusal, None, name))["message"]
    assert message == f"{refusal.message} {ends}"


def test_every_refusal_is_worded() -> None:
    """Each entry of the table has a reason, a known status and a message."""
    for reason, refusal in TABLE.items():
        assert refusal.reason == reason
        assert refusal.status in answers.REASONS
        assert refusal.message.endswith(".")
        if refusal.status != 429:
            assert refusal.code == refusal.code.upper()


#: What a message may tell its reader to do; "then try again" also begins with one.
NEXT_STEP = re.compile(
    r"(?:\. |: |, then |, or )"
    r"(Ask|Check|Close|Contact|Quote|Replace|See|Send|Split|Start|Try|Use|Wait)\b",
    re.IGNORECASE,
)
#: What a client cannot reach: it has no access to the gateway's machine, policies and console.
NOT_FOR_CLIENTS = re.compile(
    r"console|dashboard|admin|polic(?:y|ies)|redis|gateway|--\w|\.yaml", re.IGNORECASE
)


@each_row("refusal", TABLE.values())
def test_every_message_says_what_to_do_next(refusal: Refusal) -> None:
    """And sends no client to something that only operators can use."""
    assert NEXT_STEP.search(refusal.message), refusal.message
    assert not NOT_FOR_CLIENTS.search(refusal.message), refusal.message
    assert NEXT_STEP.search("It is wrong. Send another one.")
    assert not NEXT_STEP.search("The request line is malformed.")


@each_row("refusal", TABLE.values())
def test_every_body_links_to_its_description(refusal: Refusal) -> None:
    """With `error_docs`, in each form of a body; without, there is no link."""
    page = "https://docs.example.com/errors"
    for json_rpc in (False, True):
        body = answers.refusal_body(refusal, 1, "x", json_rpc=json_rpc, error_docs=page)
        assert f'"doc": "{page}#{refusal.code.lower()}"' in body.decode()
        assert b'"doc"' not in answers.refusal_body(refusal, 1, "x", json_rpc=json_rpc)


def test_extra_fields() -> None:
    """401 names its scheme, 405 the methods, Retry-After the seconds."""
    assert answers.extra_fields(KEY_MISSING, None) == b"WWW-Authenticate: Bearer\r\n"
    assert answers.extra_fields(METHOD_NOT_ALLOWED, None, ("GET",)) == b"Allow: GET\r\n"
    assert answers.extra_fields(RATE_LIMITED, 3) == b"Retry-After: 3\r\n"


def test_whole_answers() -> None:
    """A body has its type and length; HEAD only states them; Connection is stated if needed."""
    assert answers.answer(200, b"A: b\r\n", b"{}", b"") == (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nA: b\r\nContent-Length: 2\r\n\r\n{}"
    )
    assert answers.answer(404, b"", b"{}", b"Connection: close\r\n", head_only=True) == (
        b"HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\n"
        b"Content-Length: 2\r\nConnection: close\r\n\r\n"
    )
    assert answers.connection_field(True, 0) == b"Connection: keep-alive\r\n"
