"""Requests from arguments, and errors from answers; and that the key goes nowhere else.

Tests with `open_shell` run for both clients.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import traceback
from pathlib import Path
from typing import Any

import httpx
import pytest
from gateway_client import (
    ApiError,
    ConnectionFailed,
    Forbidden,
    GatewayError,
    InvalidRequest,
    NotFound,
    RateLimited,
    ServerError,
    Unauthorized,
)
from gateway_client.calls import (
    Batches,
    error_of,
    http_options,
    lost_of,
    path_of,
    sent_of,
    url_of,
    watch_body,
    watches_path,
)
from gateway_client.retries import Lost, Sent
from gateway_client.settings import read_settings
from hypothesis import given
from hypothesis import strategies as st

from tests.client.scripted import (
    Scripted,
    Step,
    answer,
    limited,
    limits,
    refused,
    response,
    send,
    too_costly,
)
from tests.client.shells import KEY, SECRET, Clock, Open
from tests.kit.certificates import make_certificate
from tests.kit.ports import free_port
from tests.kit.reach import mostly, reached, reaches

OK = answer(200, {"done": True})
SETTINGS = read_settings({}, api_key=KEY, base_url="https://api.example.com/base")
LOCAL = read_settings({}, api_key=KEY, base_url="http://127.0.0.1:8080")


# -- errors ----------------------------------------------------------------------------------------

MESSAGE = "This API key lacks a scope that this request needs. Needed: connectors:read."
DOC = "https://docs.example.com/errors#insufficient_scope"
FAULTS = [{"path": "url", "found": "http://x", "expected": "an https URL"}]
JSON_RPC = {
    "jsonrpc": "2.0",
    "id": None,
    "error": {
        "code": 429,
        "message": "Rate limit exceeded.",
        "data": {"code": "rate_limit_exceeded", "retry_after": 61, "request_id": "ca63-5"},
    },
}


def gateways(code: str, **more: Any) -> dict[str, Any]:
    return {"error": "an error", "message": MESSAGE, "code": code, "request_id": "ca63-5", **more}


@pytest.mark.parametrize(
    ("status", "body", "headers", "kind", "expected"),
    [
        (401, gateways("INVALID_API_KEY"), {}, Unauthorized, {"code": "INVALID_API_KEY"}),
        (
            403,
            gateways("INSUFFICIENT_SCOPE", doc=DOC),
            {},
            Forbidden,
            {"code": "INSUFFICIENT_SCOPE", "doc": DOC, "request_id": "ca63-5"},
        ),
        (404, gateways("NOT_FOUND"), {}, NotFound, {"code": "NOT_FOUND", "faults": (), "doc": ""}),
        (
            422,
            gateways("INVALID", faults=FAULTS),
            {},
            InvalidRequest,
            {"code": "INVALID", "faults": tuple(FAULTS)},
        ),
        (400, gateways("BAD_REQUEST"), {"X-Request-Id": "a"}, InvalidRequest, {"request_id": "a"}),
        (413, gateways("COST_TOO_HIGH"), {}, InvalidRequest, {"code": "COST_TOO_HIGH"}),
        (500, gateways("INTERNAL_ERROR"), {}, ServerError, {"retry_after": None}),
        (
            503,
            gateways("MAINTENANCE"),
            {"Retry-After": "1800"},
            ServerError,
            {"code": "MAINTENANCE", "retry_after": 1800.0},
        ),
        (
            429,
            {"error": {"code": "rate_limit_exceeded", "message": "m", "retry_after": 61}},
            {**limits(30, 0, 61), "Retry-After": "61"},
            RateLimited,
            {
                "code": "rate_limit_exceeded",
                "retry_after": 61.0,
                "limit": 30,
                "remaining": 0,
                "reset": 1_795_343_894,
            },
        ),
        (
            429,
            JSON_RPC,
            {**limits(100, 0, 61), "Retry-After": "61"},
            RateLimited,
            {"code": "rate_limit_exceeded", "limit": 100, "request_id": "ca63-5"},
        ),
        (
            429,
            {"error": {"code": "cost_exceeds_limit", "message": "m", "retry_after": None}},
            limits(30, 0, 61),
            RateLimited,
            {"code": "cost_exceeds_limit", "retry_after": None, "limit": 30},
        ),
        # -- of other servers
        (429, b"slow down", {}, RateLimited, {"retry_after": None, "limit": None, "reset": None}),
        (
            502,
            b"<h1>Bad gateway</h1>",
            {},
            ServerError,
            {"code": "", "message": "502 Scripted (x)"},
        ),
        (418, [1, 2], {}, InvalidRequest, {"code": "", "doc": "", "faults": ()}),
        (400, {"error": {"code": 7, "message": ["m"]}}, {}, InvalidRequest, {"code": ""}),
        (400, {"faults": "many", "code": None}, {}, InvalidRequest, {"faults": ()}),
        (400, {"faults": ["one", {"path": "a"}]}, {}, InvalidRequest, {"faults": ({"path": "a"},)}),
        (400, b"\xff" * 10, {}, InvalidRequest, {"code": ""}),
        (400, b"{" * 100_000, {}, InvalidRequest, {"code": ""}),
        (400, {"message": "m" * 5000}, {}, InvalidRequest, {"message": f"{'m' * 1000} (x)"}),
    ],
)
def test_errors(
    open_shell: Open,
    status: int,
    body: object,
    headers: dict[str, str],
    kind: type[ApiError],
    expected: dict[str, object],
) -> None:
    """The class is by the status, and has what the answer tells, whatever its form."""
    with Scripted(answer(status, body, headers)) as server, pytest.raises(ApiError) as raised:
        open_shell(server, retries=0).request("POST", "/v1/a")
    error = raised.value
    assert (type(error), error.status) == (kind, status)
    message = expected.pop("message", error.message)
    assert error.message.partition(" (")[0] == str(message).partition(" (")[0]
    assert {name: getattr(error, name) for name in expected} == expected


bodies = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=9)),
    lambda each: st.one_of(
        st.lists(each, max_size=3),
        st.dictionaries(
            st.sampled_from(["error", "data", "code", "message", "faults", "doc", "request_id"]),
            each,
            max_size=4,
        ),
    ),
)


@given(
    st.integers(400, 599),
    st.one_of(st.binary(max_size=50), bodies.map(lambda each: json.dumps(each).encode())),
    st.dictionaries(st.sampled_from(["Retry-After", "X-Request-Id"]), st.text("0129 aé,")),
)
def test_any_body(status: int, body: bytes, headers: dict[str, str]) -> None:
    """Whatever a server sends, there is an error with this status, whose texts are texts."""
    encoded = {name: value.encode() for name, value in headers.items()}
    found = error_of(httpx.Response(status, headers=encoded, content=body))
    assert found.status == status
    assert all(isinstance(each, str) for each in (found.code, found.doc, found.request_id))
    assert all(isinstance(each, dict) for each in found.faults)


# -- where requests go -----------------------------------------------------------------------------

NO_PATHS = [
    "",
    "v1/connectors",
    "https://evil.example/v1/connectors",
    "//evil.example/v1/connectors",
    "/\\evil.example/v1",
    "\\\\evil.example/v1",
    "@evil.example/v1",
    ".evil.example/v1",
    ":8081/v1",
    "?page=2",
    "/v1/\nconnectors",
    "/v1/\x00",
    f"/v1/{'a' * 70_000}",
]


@pytest.mark.parametrize("path", NO_PATHS, ids=lambda path: repr(path[:20]))
def test_what_is_no_path(open_shell: Open, path: str) -> None:
    """Whole URLs are refused, as the key would go to another server; nothing is sent."""
    with Scripted() as server, pytest.raises(ValueError, match="path: found"):
        open_shell(server).request("GET", path)
    assert server.connections == 0


@reaches(0.1)
@given(
    mostly(
        st.text(st.characters(codec="ascii", exclude_categories=["C"]), max_size=30).map(
            "/{}".format
        ),
        st.text(max_size=30),
    )
)
def test_any_path(path: str) -> None:
    """Whatever follows the base, the host stays the same."""
    try:
        url = httpx.URL(url_of(SETTINGS, path))
    except (ValueError, httpx.InvalidURL):
        return
    reached()
    assert (url.scheme, url.host, url.port) == ("https", "api.example.com", None)
    assert url.userinfo == b""


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer other"},
        {"authorization": ""},
        {"APIKEY": "other"},
        {"apiKey": KEY},
    ],
)
def test_headers_that_would_replace_the_key(open_shell: Open, headers: dict[str, str]) -> None:
    """They are refused, of a request and of all requests, and their values are not told."""
    with Scripted() as server:
        shell = open_shell(server)
        with pytest.raises(ValueError, match="the client sends its own key") as raised:
            shell.request("GET", "/v1/a", headers=headers)
        assert KEY not in str(raised.value)
        with pytest.raises(ValueError, match="the client sends its own key"):
            open_shell(server, http={"headers": headers})
        with pytest.raises(ValueError, match="found auth, expected none"):
            open_shell(server, http={"auth": ("user", "password")})


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Copy": "a-secret\n"},
        {"X-Copy": "a-secret\r\nX-Other: b"},
        {"X-Copy": "a-secret\x00"},
        {"X-Copy": " a-secret"},
        {"X-Copy": "a-secret\t"},
        {"X Copy": "a-secret"},
        {"X-Copy:": "a-secret"},
        {"": "a-secret"},
        {"X-Copié": "a-secret"},
    ],
)
def test_what_is_no_header(open_shell: Open, headers: dict[str, str]) -> None:
    """It is refused before anything is sent, and its value is not told."""
    with Scripted() as server, pytest.raises(ValueError, match="headers: ") as raised:
        open_shell(server).request("GET", "/v1/a", headers=headers)
    assert "a-secret" not in str(raised.value)
    assert server.connections == 0


def test_headers_of_all_requests(open_shell: Open) -> None:
    """Those of `http` are sent beside the client's own; theirs are used where both have one."""
    with Scripted(OK) as server:
        headers = {"X-Team": "blue", "user-agent": "tides/1"}
        open_shell(server, http={"headers": headers}).request("GET", "/v1/a")
        (got,) = server.got
    assert got.all("authorization") == [f"Bearer {KEY}"]
    assert (got.all("x-team"), got.all("user-agent")) == (["blue"], ["tides/1"])
    assert got.all("accept") == ["application/json"]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_redirects_are_not_followed(open_shell: Open, status: int, method: str) -> None:
    """The redirect is the answer, and nothing goes to its target."""
    with Scripted() as other, Scripted(answer(status, location=f"{other.url}/v1")) as server:
        found = open_shell(server).request(method, "/v1/a", json={})
        assert (found.status_code, found.headers["location"]) == (status, f"{other.url}/v1")
        assert other.connections == 0


@pytest.mark.parametrize("location", ["https://[", "\x01", "é", "//", "http://:x", "a" * 70_000])
def test_redirects_to_nowhere(open_shell: Open, clock: Clock, location: str) -> None:
    """A target that is none gives the answer or a typed error."""
    step = send(response(302, location=location))
    with Scripted(always=step) as server, contextlib.suppress(GatewayError):
        assert open_shell(server).request("GET", "/v1/a").status_code == 302


# -- proxies ---------------------------------------------------------------------------------------

PROXIES = ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_no_proxy_to_this_machine(
    open_shell: Open, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    """It would see the key, which is not encrypted on this way."""
    with Scripted() as proxy, Scripted(OK) as server:
        for name in PROXIES:
            monkeypatch.setenv(name, proxy.url)
        open_shell(f"http://{host}:{server.port}").request("GET", "/v1/a")
        assert proxy.connections == 0
        assert server.got[0].all("authorization") == [f"Bearer {KEY}"]


def test_a_proxy_does_not_see_the_key(
    open_shell: Open, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    """To other machines it is used, for a tunnel; one that refuses was not asked to do anything."""
    with Scripted(*[answer(502)] * 4) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        with pytest.raises(ConnectionFailed, match="ProxyError"):
            open_shell("https://api.example.invalid").request("POST", "/v1/a")
        assert {(got.method, got.target) for got in proxy.got} == {
            ("CONNECT", "api.example.invalid:443")
        }
        assert SECRET not in repr([got.raw for got in proxy.got])


def test_hosts_without_a_proxy(
    open_shell: Open, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The names in NO_PROXY are reached directly."""
    name = "api.example.invalid"
    certificate = make_certificate(tmp_path, [name])
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate.certificate, certificate.key)
    trust = ssl.create_default_context(cafile=str(certificate.ca))
    look_up = socket.getaddrinfo

    def is_here(host: Any, *arguments: Any, **named: Any) -> Any:
        named_so = host in (name, name.encode())
        return look_up("127.0.0.1" if named_so else host, *arguments, **named)

    monkeypatch.setattr(socket, "getaddrinfo", is_here)
    with Scripted() as proxy, Scripted(OK, tls=tls) as server:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        monkeypatch.setenv("NO_PROXY", "example.invalid")
        shell = open_shell(f"https://{name}:{server.port}", http={"verify": trust})
        assert shell.request("GET", "/v1/a").status_code == 200
        assert proxy.connections == 0


def test_a_certificate_of_nobody(open_shell: Open, tmp_path: Path, clock: Clock) -> None:
    """A server that cannot prove its name gets no key."""
    certificate = make_certificate(tmp_path, ["127.0.0.1"])
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate.certificate, certificate.key)
    with Scripted(tls=tls) as server, pytest.raises(ConnectionFailed, match="CERTIFICATE_VERIFY"):
        open_shell(server).request("GET", "/v1/a")
    assert server.got == []


# -- watches and batches ---------------------------------------------------------------------------


def test_a_watch(open_shell: Open) -> None:
    """Both key headers, and the body as the API wants it; its secret is returned."""
    made = {"id": "wat_1", "secret": "whsec_x"}
    with Scripted(answer(201, made)) as server:
        shell = open_shell(server)
        found = shell.call("watch", "int_5f1c", "https://a.example/h", ("ticket.*",))
        (got,) = server.got
    assert found == made
    assert (got.method, got.target) == ("POST", "/api/v1/integrations/int_5f1c/watches")
    assert (got.all("authorization"), got.all("apikey")) == ([f"Bearer {KEY}"], [KEY])
    assert got.json() == {"url": "https://a.example/h", "events": ["ticket.*"]}


@pytest.mark.parametrize("step", [refused(503, "EVENTS_FULL"), lambda turn: turn.reset()])
def test_a_watch_is_made_once(open_shell: Open, clock: Clock, step: Step) -> None:
    """It is not sent again where there could be two; after a 429 it is."""
    arguments = ("int_1", "https://a.example/h", ["ticket.*"])
    with Scripted(step) as server, pytest.raises(GatewayError, match="may have been executed"):
        open_shell(server).call("watch", *arguments)
    with Scripted(limited(), answer(201, {"id": "wat_1"})) as server:
        assert open_shell(server).call("watch", *arguments) == {"id": "wat_1"}


@pytest.mark.parametrize("integration", ["", "a/b", "..", "int_1?x=1", "int 1", "int_é", "int%2F1"])
def test_an_integration_is_one_segment(integration: str) -> None:
    """Another id would be another path."""
    with pytest.raises(ValueError, match="integration: found"):
        watches_path(integration)


def test_events_are_a_list() -> None:
    """One text would be a list of letters."""
    with pytest.raises(TypeError, match="events: found a text"):
        watch_body("https://a.example", "ticket.*")


IDS = [str(number) for number in range(7)]


def sent(server: Scripted) -> list[str]:
    """The ids of each request."""
    return ["".join(got.json()["ids"]) for got in server.got]


def test_a_batch(open_shell: Open) -> None:
    """The ids are split, and the answers come in order, one for each request."""
    with Scripted(answer(200, "a"), answer(200, ["b"]), answer(200, {})) as server:
        answers = open_shell(server).batch("/api/documents/batch", IDS, size=3)
        assert server.got == []
        assert next(answers) == "a"
        assert len(server.got) == 1
        assert list(answers) == [["b"], {}]
        assert sent(server) == ["012", "345", "6"]
        assert server.got[0].target == "/api/documents/batch"


def test_a_batch_of_nothing(open_shell: Open) -> None:
    """Nothing is sent."""
    with Scripted() as server:
        assert list(open_shell(server).batch("/api/a/batch", [])) == []


@pytest.mark.parametrize("step", [refused(413, "COST_TOO_HIGH"), too_costly()])
@pytest.mark.parametrize("pace", [False, True])
def test_a_batch_that_costs_too_much(
    open_shell: Open, clock: Clock, step: Step, pace: bool
) -> None:
    """Half as many are sent from then on, until they are accepted; nothing is waited for."""
    good = answer(200, {}, limits(60, 50, 61))
    with Scripted(step, step, good, step, *[good] * 6) as server:
        found = list(open_shell(server, pace=pace).batch("/api/a/batch", list("01234567"), size=8))
        expected = ["01234567", "0123", "01", "23", "2", "3", "4", "5", "6", "7"]
        assert (sent(server), len(found)) == (expected, 7)
    assert clock.waits == []


@pytest.mark.parametrize(
    "step", [refused(403, "INSUFFICIENT_SCOPE"), refused(413, "BODY_TOO_LARGE")]
)
def test_a_batch_that_fails(open_shell: Open, step: Step) -> None:
    """Other errors are raised, after the answers before."""
    with Scripted(answer(200, 1), step) as server:
        answers = open_shell(server).batch("/api/a/batch", IDS, size=3)
        assert next(answers) == 1
        with pytest.raises(ApiError, match="No"):
            next(answers)


def test_one_id_that_costs_too_much(open_shell: Open) -> None:
    """There is nothing to split, so the error is raised."""
    steps = [refused(413, "COST_TOO_HIGH")] * 3
    with Scripted(*steps) as server, pytest.raises(InvalidRequest, match="No"):
        list(open_shell(server).batch("/api/a/batch", IDS, size=5))
    assert sent(server) == ["01234", "01", "0"]


@pytest.mark.parametrize(
    ("ids", "size", "expected"),
    [("abc", 5, TypeError), (b"abc", 5, TypeError), (["a"], 0, ValueError)],
)
def test_batches_are_of_a_list(ids: Any, size: int, expected: type[Exception]) -> None:
    """A text would be a list of letters, and no size sends nothing for ever."""
    with pytest.raises(expected, match="expected"):
        Batches(ids, size)


# -- what is told of requests ----------------------------------------------------------------------


def test_options() -> None:
    """The environment is read for other machines alone, and nothing is followed."""
    for settings, trust in ((SETTINGS, True), (LOCAL, False)):
        found = http_options(settings, None)
        assert (found["trust_env"], found["follow_redirects"]) == (trust, False)
    assert http_options(LOCAL, {"timeout": 3})["timeout"] == 3


def test_a_path_is_told_without_its_query() -> None:
    """Which may have secrets."""
    assert path_of(httpx.Request("GET", "https://a.example/b/c?token=d#e")) == "/b/c"


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (httpx.Request("GET", "https://a.example"), Sent("GET")),
        (httpx.Request("post", "https://a.example", json={}), Sent("POST")),
        (
            httpx.Request("POST", "https://a.example", headers={"IDEMPOTENCY-KEY": "1"}),
            Sent("POST", has_idempotency_key=True),
        ),
        (httpx.Request("POST", "https://a.example", headers={"Idempotency-Key": ""}), Sent("POST")),
        (
            httpx.Request("PUT", "https://a.example", content=iter([b"a"])),
            Sent("PUT", is_repeatable=False),
        ),
        (
            httpx.Request("PUT", "https://a.example", files={"a": b"b"}),
            Sent("PUT", is_repeatable=False),
        ),
    ],
)
def test_what_was_sent(request_: httpx.Request, expected: Sent) -> None:
    """What the decision on a retry needs."""
    assert sent_of(request_) == expected


@pytest.mark.parametrize(
    ("kind", "was_sent"),
    [
        (httpx.ConnectError, False),
        (httpx.ConnectTimeout, False),
        (httpx.PoolTimeout, False),
        (httpx.ProxyError, False),
        (httpx.ReadError, True),
        (httpx.ReadTimeout, True),
        (httpx.WriteError, True),
        (httpx.WriteTimeout, True),
        (httpx.RemoteProtocolError, True),
        (httpx.DecodingError, True),
    ],
)
def test_what_was_lost(kind: type[httpx.RequestError], was_sent: bool) -> None:
    """The server has seen nothing where there was no connection to it."""
    assert lost_of(kind("it failed")) == Lost(was_sent)


# -- the key is told to nobody ---------------------------------------------------------------------

ANYTHING: list[Step] = [
    answer(401, gateways("INVALID_API_KEY")),
    answer(500, b"<h1>"),
    limited(40_000),
    send(b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"),
    lambda turn: turn.reset(),
    answer(302, location="https://["),
]


@pytest.mark.parametrize("step", ANYTHING)
def test_errors_do_not_have_the_key(open_shell: Open, step: Step) -> None:
    """Neither their text, nor what Python prints of them and of those that they come from."""
    with Scripted(step) as server:
        shell = open_shell(server, retries=0)
        try:
            shell.request("POST", "/v1/a", json={})
        except GatewayError as error:
            shown = "".join(traceback.format_exception(error)) + repr(error) + repr(vars(error))
            assert SECRET not in shown
        assert SECRET not in repr(shell.client) + str(shell.client)
        assert SECRET not in repr(shell.client._settings)


def test_no_connection_does_not_have_the_key(open_shell: Open, clock: Clock) -> None:
    """Where nobody listens, and where the key is in the URL as well."""
    shell = open_shell(f"http://127.0.0.1:{free_port()}")
    with pytest.raises(ConnectionFailed) as raised:
        shell.request("GET", f"/v1/a?key={KEY}")
    assert SECRET not in "".join(traceback.format_exception(raised.value))


def test_what_a_server_says_is_printable() -> None:
    """Neither an escape of a terminal nor a key that it repeats is in an error."""
    body = {"message": f"bad \x1b]0;x\x07 {KEY}", "code": "\x9b", "request_id": "r\n1"}
    response = httpx.Response(
        400,
        json=body,
        headers={"X-Request-Id": "r\t2"},
        request=httpx.Request("GET", "https://api.example.com/v1/a"),
    )
    error = error_of(response)
    assert (error.message, error.code) == ("bad \\x1b]0;x\\x07 [key]", "\\x9b")
    assert error.request_id == "r\\n1"
    assert "\n" not in str(error)
