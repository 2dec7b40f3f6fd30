"""A gateway without free descriptors neither spins nor dies, and recovers."""

from __future__ import annotations

import asyncio
import resource
import signal

import pytest

from tests.end_to_end.test_observed import counted
from tests.hostile.backend import Backend
from tests.hostile.conftest import Serve, at_rest
from tests.kit import proc
from tests.kit.eventually import eventually
from tests.kit.raw_client import RawClient

pytestmark = pytest.mark.asyncio(loop_scope="session")

SPARE = 16
#: A quarter of the CPU time of a spinning process.
WINDOW_S, MOST_CPU_S = 2.0, 0.5
#: A line for each refused connection would be a flood; a spin makes thousands a second.
MOST_LINES = 200


async def test_out_of_descriptors(backend: Backend, serve: Serve) -> None:
    """More clients than descriptors: little CPU time, few log lines; recovery when they close."""
    gateway = await serve(backend.url)
    pid = gateway.worker_pid
    assert (await gateway.fetch("/short")).status == 200
    lines = len(gateway.output().splitlines())
    most = proc.descriptors(pid) + SPARE
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, most))
    clients = [await RawClient.connect(gateway.port) for _ in range(SPARE * 4)]
    try:
        await eventually(lambda: proc.descriptors(pid) >= most - 2, "descriptors are used up")
        used = proc.cpu_s(pid)
        await asyncio.sleep(WINDOW_S)
        used = proc.cpu_s(pid) - used
        written = len(gateway.output().splitlines()) - lines
        print(f"\nout of descriptors: {used:.2f} s of CPU in {WINDOW_S} s, {written} log lines")
        # A reload needs descriptors too: it may fail, but must not end the file watch.
        gateway.signal(signal.SIGHUP)
        assert used < MOST_CPU_S
        assert written < MOST_LINES
    finally:
        for client in clients:
            client.close()

    async def recovered() -> bool:
        try:
            return (await gateway.fetch("/short")).status == 200
        except (OSError, AssertionError):
            return False

    await eventually(recovered, "requests are served again")
    await at_rest(gateway)
    before = await counted(gateway, "gateway_policy_reload_total", result="success")
    gateway.signal(signal.SIGHUP)

    async def reloaded() -> bool:
        return await counted(gateway, "gateway_policy_reload_total", result="success") > before

    await eventually(reloaded, "policies are still reloaded")
