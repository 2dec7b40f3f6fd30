"""Both clients against the gateway itself, as a process."""

from __future__ import annotations

import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from gateway_client import (
    ConnectionFailed,
    Forbidden,
    GatewayError,
    InvalidRequest,
    NotFound,
    RateLimited,
    ServerError,
    SettingsInvalid,
    Unauthorized,
)

from gateway.domain.limits import Limit
from tests.client.gateways import Background, Site
from tests.client.scripted import Gate, Scripted, answer, held
from tests.client.shells import Clock, Open, OpenBoth, Shell
from tests.kit.gateway import READY_S, ServedGateway, keys_command
from tests.kit.keys import make_key
from tests.kit.policies import write_policies
from tests.kit.redis_server import DURABLE, RedisServer
from tests.kit.wire import TIMEOUT_S, fetch

CONNECTORS = ("connectors:read",)
#: A key that may send all the time.
BRISK = {"plan": "enterprise", "scopes": CONNECTORS}
Outcome = int | GatewayError


@pytest.fixture(scope="module")
def background() -> Iterator[Background]:
    with Background() as made:
        yield made


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    server = RedisServer().start()
    yield server.url
    server.stop()


@pytest.fixture(scope="module")
def site(store: str, background: Background, tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(background, tmp_path_factory.mktemp("site"), store)


def eventually(condition: Callable[[], bool], what: str) -> None:
    """Poll until the condition holds; fail with `what` if it does not in time."""
    give_up = time.monotonic() + READY_S
    while not condition():
        assert time.monotonic() < give_up, f"not in time: {what}"
        time.sleep(0.01)


# -- what it answers -------------------------------------------------------------------------------


def test_named_requests(site: Site, open_shell: Open) -> None:
    """Health, what the key may do, and the connectors; with the limits of the plan."""
    text, record = site.background.add_key(site.store, scopes=CONNECTORS)
    shell = open_shell(site.url, api_key=text)
    health, verified, connectors = (shell.call(name) for name in ("health", "verify", "connectors"))
    assert set(health) == {"status", "timestamp", "version"}
    assert health["status"] == "ok"
    assert (verified["key"]["id"], verified["key"]["plan"]) == (record.id, "free")
    assert {each["kind"] for each in connectors["connectors"]} > {"ticketing"}
    assert shell.limits is not None
    # Only the last one counts in the limit of the plan.
    assert (shell.limits.limit, shell.limits.remaining) == (60, 59)


def test_a_key_without_the_scope(site: Site, open_shell: Open) -> None:
    """Forbidden, with the code, the scope that it lacks, and the id of the request."""
    with pytest.raises(Forbidden) as raised:
        open_shell(site.url, api_key=site.key()).call("connectors")
    error = raised.value
    assert (error.status, error.code) == (403, "INSUFFICIENT_SCOPE")
    assert "Needed: connectors:read." in error.message
    log = site.gateway.access_log
    eventually(lambda: f'"{error.request_id}"' in log.read_text(), "it is in the access log")


def test_keys_that_are_not_valid(site: Site, open_shell: Open, background: Background) -> None:
    """Unknown, of another form, of another environment, or revoked: Unauthorized."""
    revoked, record = background.add_key(site.store)
    background.run(keys_command(site.store, "revoke", record.id))
    unknown, _ = make_key(secrets.randbelow)
    development = site.key(environment="development")
    for key in (unknown, "another-key", development, revoked):
        with pytest.raises(Unauthorized) as raised:
            open_shell(site.url, api_key=key).call("health")
        assert (raised.value.status, raised.value.code) == (401, "INVALID_API_KEY")
        assert key not in str(raised.value)


def test_a_key_of_another_environment(
    site: Site, open_shell: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the environment is known, the client refuses it itself."""
    monkeypatch.setenv("SERVICE_ENVIRONMENT", "production")
    with pytest.raises(SettingsInvalid, match="environment 'development'"):
        open_shell(site.url, api_key=site.key(environment="development"))
    assert open_shell(site.url, api_key=site.key()).call("health")["status"] == "ok"


def test_nothing_there(site: Site, open_shell: Open) -> None:
    """The upstream's own errors are of the same classes, without a code."""
    shell = open_shell(site.url, api_key=site.key())
    with pytest.raises(NotFound) as raised:
        shell.request("GET", "/v1/nowhere")
    assert (raised.value.code, raised.value.message) == (
        "",
        "404 Not Found: /v1/nowhere",
    )
    with pytest.raises(InvalidRequest) as malformed:
        shell.request("GET", "/v1/%2e%2e/%2e%2e")
    assert malformed.value.code == "BAD_PATH"


def test_a_limit(site: Site, open_shell: Open, clock: Clock) -> None:
    """Search admits 30 requests a minute: the next one is refused, also when it is sent again."""
    shell = open_shell(site.url, api_key=site.key())
    for number in range(30):
        shell.request("GET", f"/api/search/tides?page={number}")
    assert shell.limits is not None
    assert (shell.limits.limit, shell.limits.remaining) == (30, 0)
    with pytest.raises(RateLimited) as raised:
        shell.request("GET", "/api/search/tides")
    error = raised.value
    assert (error.code, error.limit, error.remaining) == ("rate_limit_exceeded", 30, 0)
    assert error.retry_after is not None
    assert 0 < error.retry_after <= 61
    assert error.reset == shell.limits.reset
    assert len(clock.waits) == 3


def test_a_patient_client_waits(site: Site, open_shell: Open, clock: Clock) -> None:
    """As long as the gateway says."""
    key = site.key()
    shell = open_shell(site.url, api_key=key, patient=True, retries=1)
    for _ in range(30):
        shell.request("GET", "/api/search/tides")
    with pytest.raises(RateLimited) as raised:
        shell.request("GET", "/api/search/tides")
    assert raised.value.retry_after is not None
    assert clock.waits[0] >= raised.value.retry_after


def test_a_batch(site: Site, open_shell: Open) -> None:
    """Each of its ids counts, and a request may have 50: it is split until it is accepted."""
    shell = open_shell(site.url, api_key=site.key(plan="pro"))
    ids = [f"doc_{number}" for number in range(80)]
    found = [
        each["id"]
        for results in shell.batch("/api/documents/batch", ids, size=200)
        for each in results["results"]
    ]
    assert found == ids
    assert shell.limits is not None
    assert (shell.limits.limit, shell.limits.remaining) == (100, 20)


@pytest.mark.parametrize("pace", [False, True])
def test_a_batch_that_costs_more_than_its_limit(site: Site, open_shell: Open, pace: bool) -> None:
    """It is split as well, without a wait, as waiting does not help."""
    override = Limit("batch", "rate", 20, 60_000_000)
    key = site.key(plan="pro", limits={"batch": override})
    shell = open_shell(site.url, api_key=key, pace=pace, patience_s=1)
    ids = [f"doc_{number}" for number in range(32)]
    answers = shell.batch("/api/documents/batch", ids, size=32)
    assert len(next(answers)["results"]) == 16
    with pytest.raises(RateLimited) as raised:
        list(answers)
    assert raised.value.limit == 20


def test_a_watch(site: Site, open_shell: Open) -> None:
    """A watch with its secret; what is wrong with one is told by its fields."""
    key, record = site.background.add_key(site.store)
    site.background.add_integration(site.store, f"int_{record.id}", record.account)
    shell = open_shell(site.url, api_key=key)
    arguments = ("https://127.0.0.1/hook", ["pull_request.*"])
    made = shell.call("watch", f"int_{record.id}", *arguments)
    assert made["secret"].startswith("whsec_")
    assert (made["url"], made["events"]) == arguments
    assert (made["integration"], made["status"]) == (f"int_{record.id}", "active")
    with pytest.raises(NotFound) as unknown:
        shell.call("watch", "int_5f1c8a60d3b2", *arguments)
    assert unknown.value.code == "NOT_FOUND"
    with pytest.raises(InvalidRequest) as wrong:
        shell.call("watch", f"int_{record.id}", "http://127.0.0.1/hook", ["pull_request.*"])
    assert (wrong.value.status, wrong.value.code) == (422, "INVALID")
    assert [each["path"] for each in wrong.value.faults] == ["url"]


# -- when parts of it fail, for both clients at once -----------------------------------------------


class Calls:
    """A client that sends all the time, until the end of its `with`.

    outcomes: a status or an error for each call; what is neither fails the test
    """

    def __init__(self, shell: Shell) -> None:
        self.outcomes: list[Outcome] = []
        self._shell = shell
        self._done = threading.Event()
        self._pool = ThreadPoolExecutor(1)

    def __enter__(self) -> Calls:
        self._running = self._pool.submit(self._run)
        return self

    def __exit__(self, *_error: object) -> None:
        self._done.set()
        self._pool.shutdown()
        self._running.result()  # raises what is not typed

    def _run(self) -> None:
        while not self._done.wait(0.01):  # within the rate of its plan
            try:
                self.outcomes.append(self._shell.request("GET", "/v1/connectors").status_code)
            except GatewayError as error:
                self.outcomes.append(error)

    def has_more(self, before: int, count: int) -> bool:
        assert not self._running.done(), self._running.result()
        return len(self.outcomes) >= before + count


def more(calls: Sequence[Calls], count: int = 30) -> set[Outcome]:
    """Wait for this many more calls of each client; the outcomes of those that began since."""
    before = [len(each.outcomes) for each in calls]
    for each, had in zip(calls, before, strict=True):
        eventually(lambda each=each, had=had: each.has_more(had, count), "more calls")
    return {
        outcome
        for each, had in zip(calls, before, strict=True)
        for outcome in each.outcomes[had + 1 :]
    }


def is_store(background: Background, gateway: ServedGateway, *, ok: bool) -> bool:
    """Does the gateway's probe say so?"""
    found = background.run(fetch(gateway.admin_port, "/readyz"))
    return (found.json()["checks"]["store"] == "ok") is ok


def test_an_outage_of_the_store(
    background: Background, open_both: OpenBoth, tmp_path: Path, clock: Clock
) -> None:
    """A key that the gateway knows is served; another one gets a typed error; then all is well."""
    server = RedisServer(*DURABLE).start()
    try:
        known, other = (background.add_key(server.url, **BRISK)[0] for _ in range(2))
        policies = write_policies(tmp_path / "policies", background.demo_upstream())
        gateway = background.serve(tmp_path / "gateway", policies, server.url)
        url = f"http://127.0.0.1:{gateway.port}"
        others = open_both(url, api_key=other)
        one, two = map(Calls, open_both(url, api_key=known, retries=0))
        with one, two:
            assert more((one, two)) == {200}
            server.kill()
            eventually(lambda: is_store(background, gateway, ok=False), "the loss is noticed")
            assert more((one, two)) == {200}
            for shell in others:
                with pytest.raises(ServerError, match="sent 4 times") as raised:
                    shell.request("GET", "/v1/connectors")
                assert (raised.value.status, raised.value.code) == (503, "SERVICE_UNAVAILABLE")
            server.start()
            eventually(lambda: is_store(background, gateway, ok=True), "it is available again")
            eventually(lambda: more((one, two)) == {200}, "all calls are answered")
        failed = {each for each in [*one.outcomes, *two.outcomes] if each != 200}
        assert {type(each) for each in failed} <= {ServerError}
        assert {each.code for each in failed if isinstance(each, ServerError)} <= {
            "SERVICE_UNAVAILABLE"
        }
        assert [each.request("GET", "/v1/connectors").status_code for each in others] == [200, 200]
    finally:
        server.stop()


def test_a_drain(
    background: Background, store: str, open_both: OpenBoth, tmp_path: Path, clock: Clock
) -> None:
    """A gateway that stops answers what is in progress; the next one answers what is sent again."""
    gate = Gate()
    steps = [held(gate, answer(200, "in time"))] * 2 + [answer(200, "by the next")] * 2
    key, _ = background.add_key(store)
    with Scripted(*steps) as upstream, ThreadPoolExecutor(2) as pool:
        policies = write_policies(tmp_path / "policies", upstream.url)
        gateway = background.serve(tmp_path / "one", policies, store)
        url = f"http://127.0.0.1:{gateway.port}"
        shells, others = open_both(url, api_key=key), open_both(url, api_key=key)
        pending = [pool.submit(each.request, "POST", "/api/x", json={}) for each in shells]
        upstream.received(2)
        gateway.signal(signal.SIGTERM)
        eventually(lambda: not accepts(gateway.port), "no connection is accepted")
        for each in others:
            with pytest.raises(ConnectionFailed, match=r"ConnectError.*\(sent 4 times\)"):
                each.request("POST", "/api/y", json={})
        gate.open()
        assert [each.result(TIMEOUT_S).json() for each in pending] == ["in time"] * 2
        assert background.run(gateway.ended()) == 0

        def start_next() -> None:
            clock.on_wait = lambda: None
            ports = gateway.port, gateway.admin_port
            background.serve(tmp_path / "two", policies, store, ports=ports)

        clock.on_wait = start_next
        for each in shells:
            assert each.request("POST", "/api/z", json={}).json() == "by the next"
        assert [got.target for got in upstream.got] == ["/api/x"] * 2 + ["/api/z"] * 2


def accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), TIMEOUT_S).close()
    except OSError:
        return False
    return True


def test_a_take_over(
    background: Background, store: str, open_both: OpenBoth, tmp_path: Path, clock: Clock
) -> None:
    """While another gateway takes over, every call is answered."""
    key, _ = background.add_key(store, **BRISK)
    policies = write_policies(tmp_path / "policies", background.demo_upstream())
    before = background.serve(tmp_path / "one", policies, store)
    one, two = map(Calls, open_both(f"http://127.0.0.1:{before.port}", api_key=key))
    with one, two:
        more((one, two))
        background.serve(
            *(tmp_path / "two", policies, store, "--take-over"),
            ports=(before.port, before.admin_port),
            data=before.data,
        )
        assert background.run(before.ended()) == 0
        more((one, two))
    assert {*one.outcomes, *two.outcomes} == {200}
