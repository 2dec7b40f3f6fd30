"""The admin API of `gateway serve`: its changes apply in every worker, at once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.end_to_end.conftest import Serve, Site
from tests.kit import proc
from tests.kit.command import run_aside
from tests.kit.eventually import eventually
from tests.kit.gateway import READY_S, Process, ServedGateway, run_command
from tests.kit.policies import write_policies
from tests.kit.ports import free_port
from tests.kit.redis_server import DURABLE, RedisServer
from tests.kit.wire import Response, fetch

pytestmark = pytest.mark.asyncio(loop_scope="session")


class Admin:
    """Calls a gateway's API with its token."""

    def __init__(self, gateway: ServedGateway) -> None:
        self._gateway = gateway

    async def __call__(
        self, method: str, path: str, body: object = None, **headers: str
    ) -> Response:
        content = None if body is None else json.dumps(body).encode()
        return await fetch(
            self._gateway.admin_port,
            f"/admin/v1{path}",
            key=self._gateway.admin_token,
            method=method,
            headers=[
                ("Host", "127.0.0.1"),
                ("Content-Type", "application/json"),
                *((name.replace("_", "-"), value) for name, value in headers.items()),
            ],
            body=content,
        )

    async def make_key(self, **fields: object) -> dict[str, Any]:
        answer = await self("POST", "/keys", {"name": "test", "plan": "free", **fields})
        assert answer.status == 201, answer.body
        return answer.json()


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def gateway(
    _site: Site, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ServedGateway]:
    """Two workers, for tests that change neither them nor their policies."""
    folder = tmp_path_factory.mktemp("admin")
    policies = write_policies(folder / "policies", _site.upstream.url)
    async with ServedGateway(folder, policies, _site.store, "--workers", "2") as gateway:
        yield gateway


async def always(gateway: ServedGateway, key: str, status: int, times: int = 10) -> bool:
    """Do all of this many new connections, to any worker, get this status?"""
    answers = [await gateway.fetch("/api/x", key=key) for _ in range(times)]
    return {answer.status for answer in answers} == {status}


async def test_the_life_of_a_key(gateway: ServedGateway) -> None:
    """Created, used at once, narrowed, rotated, suspended, resumed and revoked; each is audited."""
    admin = Admin(gateway)
    key = await admin.make_key()
    path, text = f"/keys/{key['id']}", key["key"]
    assert await always(gateway, text, 200)
    answer = await admin("PATCH", path, {"ip_ranges": ["192.0.2.0/24"]}, If_Match="*")
    assert answer.status == 200
    await eventually(lambda: always(gateway, text, 403), "the other address is refused")
    await admin("PATCH", path, {"ip_ranges": []}, If_Match="*")
    await eventually(lambda: always(gateway, text, 200), "it is let in again")
    new = (await admin("POST", f"{path}/rotate", {"overlap": "1h"})).json()
    for each in (text, new["key"]):
        assert await always(gateway, each, 200, 4)
    await admin("POST", f"{path}/suspend")
    await eventually(lambda: always(gateway, text, 401), "the suspended key is refused")
    assert await always(gateway, new["key"], 200, 4)
    await admin("POST", f"{path}/resume")
    await eventually(lambda: always(gateway, text, 200), "the resumed key is admitted")
    await admin("POST", f"{path}/revoke", X_Admin_Actor="anna")
    await eventually(lambda: always(gateway, text, 401), "the revoked key is refused")
    entries = (await admin("GET", f"/audit?subject=key:{key['id']}")).json()["items"]
    assert [entry["action"] for entry in reversed(entries)] == [
        "key.create",
        "key.edit",
        "key.edit",
        "key.rotate",
        "key.suspend",
        "key.resume",
        "key.revoke",
    ]
    assert entries[0]["actor"] == "anna (api, 127.0.0.1)"
    assert (await admin("GET", "/audit/verify")).json()["faults"] == []


async def test_usage_is_seen_as_the_access_log_has_it(gateway: ServedGateway) -> None:
    """The same values, a moment later."""
    admin = Admin(gateway)
    key = await admin.make_key(plan="brisk")
    statuses = [(await gateway.fetch("/api/x", key=key["key"])).status for _ in range(8)]
    admitted = statuses.count(200)

    async def is_counted() -> bool:
        shown = (await admin("GET", f"/keys/{key['id']}/usage?window=1h")).json()
        return bool(shown["requests"] == 8)

    await eventually(is_counted, "all eight are counted")
    shown = (await admin("GET", f"/keys/{key['id']}/usage?window=1h")).json()
    assert shown["groups"] == {"admitted": admitted, "limited": 8 - admitted, "refused": 0,
                               "failed": 0}  # fmt: skip

    async def was_used() -> bool:
        return (await admin("GET", f"/keys/{key['id']}")).json()["last_used"] is not None

    await eventually(was_used, "its last use is known")


async def test_a_limit_is_reset_everywhere(gateway: ServedGateway) -> None:
    """Also in the worker that has cached the refusal."""
    admin = Admin(gateway)
    key = await admin.make_key()

    async def spend() -> None:
        while (await gateway.fetch("/api/search/x", key=key["key"])).status == 200:
            pass

    await spend()
    for _ in range(8):
        assert (await gateway.fetch("/api/search/x", key=key["key"])).status == 429
    assert (await admin("POST", f"/keys/{key['id']}/limits/search/reset")).status == 204

    async def is_admitted() -> bool:
        return (await gateway.fetch("/api/search/x", key=key["key"])).status == 200

    await eventually(is_admitted, "the limit is whole again", within_s=15)


async def test_a_killed_worker_disturbs_no_client(serve: Serve) -> None:
    """The API runs in another process; a key created meanwhile is valid in the new worker."""
    gateway = await serve("--workers", "2")
    admin = Admin(gateway)
    killed = gateway.worker_pids()[0]
    os.kill(killed, signal.SIGKILL)
    key = await admin.make_key()
    assert (await admin("GET", f"/keys/{key['id']}")).status == 200

    def are_two_again() -> bool:
        pids = gateway.worker_pids()
        return len(pids) == 2 and killed not in pids

    await eventually(are_two_again, "another worker is there")
    await gateway.ready()
    await eventually(lambda: always(gateway, key["key"], 200), "both know the key")


async def test_loaded_policies_follow_the_files(serve: Serve) -> None:
    """The API shows new policies as soon as a worker has loaded them."""
    gateway = await serve("--workers", "2")
    admin = Admin(gateway)
    before = (await admin("GET", "/policies")).json()
    plans = gateway.policies / "plans.yaml"
    plans.write_text(plans.read_text().replace("60/minute,   burst: 100", "70/minute"))

    async def is_taken_up() -> bool:
        now = (await admin("GET", "/policies")).json()
        return bool(now["hash"] != before["hash"] and now["disk"]["hash"] == now["hash"])

    await eventually(is_taken_up, "the new policies are shown")
    assert (await admin("GET", "/policies")).json()["loaded"] > before["loaded"]


async def test_a_change_of_policies_is_recorded_once(
    serve: Serve, redis_server: RedisServer
) -> None:
    """With two workers, a change has one line in the log, one entry in the history and one in the
    audit log; files that are restored are loaded, and the history says by whom.
    """
    gateway = await serve("--workers", "2", store=redis_server.url)
    admin = Admin(gateway)

    async def entries(count: int) -> list[dict[str, Any]]:
        async def items() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = (await admin("GET", "/policies/history")).json()["items"]
            return found

        async def are_there() -> bool:
            return len(await items()) == count

        await eventually(are_there, f"{count} entries")
        return await items()

    (start,) = await entries(1)
    first = (await admin("GET", "/policies")).json()["hash"]
    assert (start["hash"], start["previous"], start["cause"]) == (first, None, "start")
    plans = gateway.policies / "plans.yaml"
    plans.write_text(plans.read_text().replace("60/minute,   burst: 100", "70/minute"))
    change, _ = await entries(2)
    assert (change["previous"], change["cause"]) == (first, "file change")
    assert change["summary"].startswith("limit: plan, plan free: 60/minute, burst 100")
    words = ("policies", "rollback", first, str(gateway.policies), "--store", redis_server.url)
    done = await run_aside(*words)
    assert done.returncode == 0, done.stderr
    back, *_ = await entries(3)
    assert (back["hash"], back["cause"]) == (first, "rollback")
    assert back["actor"].endswith(" (cli)")
    log = gateway.output()
    assert log.count(f"policy changed from {first} to {change['hash']} (file change): limit") == 1

    async def actions() -> list[str]:
        found = (await admin("GET", "/audit?action=policy")).json()["items"]
        return [each["action"] for each in found]

    expected = ["policy.load", "policy.rollback", "policy.load"]
    await eventually(lambda: _is(actions(), expected), "the audit log has each once")


async def _is(found: Awaitable[object], expected: object) -> bool:
    return await found == expected


async def test_a_killed_store_is_reported_and_recovers(serve: Serve) -> None:
    """503 meanwhile, while probes and metrics work."""
    server = await asyncio.to_thread(RedisServer(*DURABLE).start)
    try:
        gateway = await serve(store=server.url)
        admin = Admin(gateway)
        key = await admin.make_key()
        await asyncio.to_thread(server.kill)
        for path in ("/keys", f"/keys/{key['id']}", "/audit", "/usage"):
            answer = await admin("GET", path)
            assert (answer.status, answer.json()["code"]) == (503, "SERVICE_UNAVAILABLE"), path
        answer = await admin("POST", "/keys", {"name": "x", "plan": "free"})
        assert answer.status == 503
        assert (await fetch(gateway.admin_port, "/healthz")).status == 200
        await asyncio.to_thread(server.revive)

        async def is_back() -> bool:
            return (await admin("GET", f"/keys/{key['id']}")).status == 200

        await eventually(is_back, "the key is there again")
        assert (await admin.make_key())["id"] != key["id"]
    finally:
        await asyncio.to_thread(server.stop)


async def test_a_sign_in_holds_at_every_gateway(serve: Serve) -> None:
    """Behind one load balancer, without a given token, they share token, session and sign-out."""
    one, other = await serve("--workers", "2"), await serve()
    assert one.admin_token == other.admin_token
    host = ("Host", "127.0.0.1")
    form = ("Content-Type", "application/x-www-form-urlencoded")
    typed = f"name=anna&token={one.admin_token}".encode()
    answer = await fetch(
        one.admin_port, "/console/sign-in", method="POST", headers=[host, form], body=typed
    )
    assert answer.status == 303
    held = ("Cookie", answer["Set-Cookie"].partition(";")[0])
    pages = [
        await fetch(gateway.admin_port, "/console", headers=[host, held])
        for gateway in (one, other)
    ]
    assert [page.status for page in pages] == [200, 200]
    csrf = pages[1].body.partition(b'name="csrf" value="')[2].partition(b'"')[0]
    answer = await fetch(
        other.admin_port,
        "/console/sign-out",
        method="POST",
        headers=[host, held, form],
        body=b"csrf=" + csrf,
    )
    assert answer["Location"] == "/console/sign-in?done=signed-out"
    for gateway in (one, other):
        page = await fetch(gateway.admin_port, "/console", headers=[host, held])
        assert (page.status, page["Location"]) == (303, "/console/sign-in?next=/console")


def about(pid: int, what: str) -> str:
    """A file of the kernel about a process."""
    return Path(f"/proc/{pid}/{what}").read_text()


async def test_no_process_shows_the_token(site: Site, tmp_path: Path) -> None:
    """A token from the environment is in no log, command line or worker."""
    token = "correct-horse-battery-staple"
    policies = write_policies(tmp_path / "policies", site.upstream.url)
    port, admin_port = free_port(), free_port()
    process = Process(
        tmp_path,
        *("serve", "--policies", str(policies), "--store", site.store),
        *("--listen", f"127.0.0.1:{port}", "--admin", f"127.0.0.1:{admin_port}"),
        *("--admin-host", "gate.internal", "--data", str(tmp_path / "data")),
        environment={"GATEWAY_ADMIN_TOKEN": token},
    )
    try:

        async def answers() -> bool:
            try:
                return (await fetch(admin_port, "/readyz")).status == 200
            except OSError:
                return False

        await eventually(answers, "it is ready", READY_S)
        for host, status in (("gate.internal", 200), ("other.internal", 421)):
            answer = await fetch(admin_port, "/admin/v1/keys", key=token, headers=[("Host", host)])
            assert answer.status == status
        (worker,) = proc.children(process.process.pid, "gateway.cli.worker")
        assert token in about(process.process.pid, "environ")
        for pid, what in (
            (process.process.pid, "cmdline"),
            (worker, "cmdline"),
            (worker, "environ"),
        ):
            assert token not in about(pid, what)
        assert "admin on http://127.0.0.1" in process.output()
        assert "admin token in GATEWAY_ADMIN_TOKEN" in process.output()
        assert not (tmp_path / "data" / "admin-token").exists()
    finally:
        await process.stop()
    assert token not in process.output()


async def refused_start(folder: Path, environment: dict[str, str]) -> str:
    """The error of a gateway that does not start and exits with 1."""
    policies = write_policies(folder / "policies", "http://127.0.0.1:9")
    words = ("serve", "--policies", str(policies), "--store", "memory://")
    at = ("--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data", str(folder / "data"))
    done = await asyncio.to_thread(run_command, *words, *at, environment=environment)
    assert done.returncode == 1
    return done.stderr


async def test_an_invalid_token_is_reported(tmp_path: Path) -> None:
    """The gateway does not start; it prints one line and exits with 1."""
    error = await refused_start(tmp_path, {"GATEWAY_ADMIN_TOKEN": "short"})
    assert "GATEWAY_ADMIN_TOKEN: found 5 characters, expected 16 or more" in error


async def test_a_token_that_would_never_be_read(tmp_path: Path) -> None:
    """A start does not wait for the writer of a pipe: no signal could end it then."""
    pipe = tmp_path / "token"
    os.mkfifo(pipe)
    error = await refused_start(tmp_path, {"GATEWAY_ADMIN_TOKEN_FILE": str(pipe)})
    assert "GATEWAY_ADMIN_TOKEN_FILE" in error
    assert f"{pipe} cannot be read: it is a named pipe, not a regular file" in error
