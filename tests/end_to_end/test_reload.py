"""Policies that change under load."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter

import pytest

from tests.end_to_end.conftest import Serve, Site
from tests.end_to_end.test_observed import counted
from tests.kit.eventually import eventually
from tests.kit.gateway import ServedGateway
from tests.kit.policies import PLANS, ROUTES
from tests.kit.wire import Wire, bearer

pytestmark = pytest.mark.asyncio(loop_scope="session")


def rewrite(gateway: ServedGateway, name: str, text: str) -> None:
    """Replace one of the gateway's policy files, as an editor does."""
    path = gateway.policies / f"{name}.yaml"
    draft = path.with_suffix(".new")
    draft.write_text(text)
    draft.replace(path)


async def advertised(gateway: ServedGateway, key: str) -> str:
    """The plan's limit as the gateway reports it now, at no cost."""
    return (await gateway.fetch("/v1/auth/verify", key=key))["X-RateLimit-Limit"]


async def test_a_new_limit_holds_under_load(site: Site, serve: Serve) -> None:
    """The limit changes within seconds; no request fails meanwhile, and no counter is lost.

    Both limits are more than clients send in a minute, however fast the machine is.
    """
    plans = PLANS.replace("6000/minute, burst: 10000", "1000000/minute")
    gateway = await serve(plans=plans)
    key = await site.key("enterprise")
    statuses: Counter[int] = Counter()
    done = asyncio.Event()

    async def load() -> None:
        async with await Wire.connect(gateway.port) as wire:
            while not done.is_set():
                statuses[(await wire.request("GET", "/api/x", bearer(key))).status] += 1

    async with asyncio.TaskGroup() as tasks:
        for _ in range(4):
            tasks.create_task(load())
        await eventually(lambda: statuses.total() > 50, "requests flow")
        rewrite(gateway, "plans", plans.replace("1000000/minute", "2000000/minute"))

        async def changed() -> bool:
            return await advertised(gateway, key) == "2000000"

        try:
            await eventually(changed, "the new limit is reported")
            before = statuses.total()
            await eventually(lambda: statuses.total() > before + 50, "requests still flow")
        finally:
            done.set()
    assert set(statuses) == {200}
    answer = await gateway.fetch("/v1/auth/verify", key=key)
    assert int(answer["X-RateLimit-Remaining"]) == 2_000_000 - statuses.total()


async def test_a_broken_edit_is_refused(site: Site, serve: Serve) -> None:
    """The previous policy stays, the log names file and fault, and a repaired file is loaded."""
    gateway = await serve()
    key = await site.key("free")
    assert await advertised(gateway, key) == "60"
    rewrite(gateway, "plans", PLANS.replace("60/minute,   burst", "70/minit,   burst"))
    await eventually(lambda: "70/minit" in gateway.output(), "the log names the fault")
    (line,) = [line for line in gateway.output().splitlines() if "70/minit" in line]
    assert "plans.yaml:3" in line
    assert await advertised(gateway, key) == "60"
    assert await counted(gateway, "gateway_policy_reload_total", result="refused") == 1
    rewrite(gateway, "plans", PLANS.replace("60/minute,   burst", "70/minute,   burst"))

    async def repaired() -> bool:
        return await advertised(gateway, key) == "70"

    await eventually(repaired, "the repaired file is taken")


async def test_faulty_files_are_reported_until_they_are_mended(site: Site, serve: Serve) -> None:
    """The gauge is 1 while the files have faults, also after a worker was restarted."""
    gateway = await serve()

    async def is_faulty() -> bool:
        return await counted(gateway, "gateway_policy_faulty") == 1

    async def is_mended() -> bool:
        return not await is_faulty()

    assert await is_mended()
    rewrite(gateway, "plans", "plans: none\n")
    await eventually(is_faulty, "the files are reported as faulty")
    os.kill(gateway.worker_pid, signal.SIGKILL)

    async def restarted() -> bool:
        return await counted(gateway, "gateway_worker_restarts_total") == 1

    await eventually(restarted, "the worker is restarted")
    await eventually(is_faulty, "the new worker reports them too")
    rewrite(gateway, "plans", PLANS)
    await eventually(is_mended, "the old files are good again")


async def test_a_new_route_is_served(site: Site, serve: Serve) -> None:
    """Routes are added and removed with the file."""
    gateway = await serve()
    key = await site.key()
    assert (await gateway.fetch("/later/x", key=key)).status == 404
    rewrite(gateway, "routes", ROUTES + "  later: {match: GET /later/**, upstream: api}\n")

    async def served() -> bool:
        return (await gateway.fetch("/later/x", key=key)).status == 200

    await eventually(served, "the new route is served")


async def test_sighup_reloads_and_harms_nothing(site: Site, serve: Serve) -> None:
    """On SIGHUP the files are loaded again, changed or not; open connections continue."""
    gateway = await serve()
    key = await site.key()
    async with await Wire.connect(gateway.port) as wire:
        assert (await wire.request("GET", "/api/x", bearer(key))).status == 200
        before = await counted(gateway, "gateway_policy_reload_total", result="success")
        gateway.signal(signal.SIGHUP)

        async def read_anew() -> bool:
            now = await counted(gateway, "gateway_policy_reload_total", result="success")
            return now == before + 1

        await eventually(read_anew, "SIGHUP reloads")
        answer = await wire.request("GET", "/api/x", bearer(key))
        assert (answer.status, answer["X-RateLimit-Remaining"]) == (200, "58")


async def test_sighup_opens_the_access_log_anew(site: Site, serve: Serve) -> None:
    """After the log was renamed, lines go to a new file, and none is lost."""
    gateway = await serve()
    key = await site.key()
    moved = gateway.access_log.with_suffix(".1")
    await gateway.fetch("/api/before", key=key)
    gateway.access_log.rename(moved)
    gateway.signal(signal.SIGHUP)
    await eventually(gateway.access_log.exists, "a new log is opened")
    await gateway.fetch("/api/after", key=key)
    await eventually(lambda: "/api/after" in gateway.access_log.read_text(), "it is written")
    assert "/api/before" in moved.read_text()


async def test_warnings_are_logged_once_a_load(site: Site, serve: Serve) -> None:
    """Whatever the number of workers, a warning is one line for each policy that is loaded."""
    gateway = await serve("--workers", "2")
    opened = '  rest: {match: "* /**", upstream: api, auth: none}\n'
    rewrite(gateway, "routes", ROUTES + opened)

    async def loaded() -> bool:
        # both workers
        hashes = await counted(gateway, "gateway_policy_info")
        served = [(await gateway.fetch("/nowhere/x")).status for _ in range(8)]
        return hashes == 1 and set(served) == {200}

    await eventually(loaded, "the new routes are served")
    lines = [line for line in gateway.output().splitlines() if "policy warning" in line]
    assert [line for line in lines if "routes.rest.match" in line] == lines[-1:]
    assert "found '* /**' with auth: none" in lines[-1]


def many_routes(rate: int) -> str:
    """Three hundred routes, each with a limit of its own."""
    rows = (
        f'  r{index}: {{match: "GET,POST /v1/area{index // 10}/{{id}}/thing{index % 10}", '
        f"upstream: api, rate: {rate}/minute}}\n"
        for index in range(300)
    )
    return f'routes:\n{"".join(rows)}  all: {{match: "* /**", upstream: api}}\n'


MANY_PLANS = "plans:\n" + "".join(
    f"  p{index}: {{rate: {60_000 + index}/minute, burst: {100_000 + index}, "
    f"limits: [{{name: monthly, quota: {10**9 + index}/month, from: account}}], "
    f"routes: {{r{index}: {50_000 + index}/minute}}}}\n"
    for index in range(40)
)


async def test_policies_of_a_real_size(site: Site, serve: Serve) -> None:
    """300 routes and 40 plans are replaced under load: no request fails, and the change applies."""
    gateway = await serve(routes=many_routes(30_000), plans=MANY_PLANS)
    key = await site.key("p7")
    path = "/v1/area3/x/thing4"
    statuses: Counter[int] = Counter()
    done = asyncio.Event()

    async def load() -> None:
        async with await Wire.connect(gateway.port) as wire:
            while not done.is_set():
                statuses[(await wire.request("GET", path, bearer(key))).status] += 1

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(load())
        await eventually(lambda: statuses.total() > 20, "requests flow")
        rewrite(gateway, "routes", many_routes(40_000))

        async def changed() -> bool:
            return (await gateway.fetch(path, key=key))["X-RateLimit-Limit"] == "40000"

        try:
            await eventually(changed, "the new limit is reported")
            await eventually(lambda: "policy changed from" in gateway.output(), "it is compared")
        finally:
            done.set()
    assert set(statuses) == {200}
