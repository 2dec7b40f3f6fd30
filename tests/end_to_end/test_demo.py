"""`gateway demo` as a new user runs it: what it prints works, and it leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from tests.kit.eventually import eventually
from tests.kit.gateway import READY_S, Process, command, run_command
from tests.kit.needs import needs
from tests.kit.policies import copy_shipped
from tests.kit.ports import free_port
from tests.kit.upstream import ScriptedUpstream
from tests.kit.wire import TIMEOUT_S, Header, Response, fetch

pytestmark = pytest.mark.asyncio(loop_scope="session")

LAST_LINE = "Ctrl-C ends the demo and removes its data."
#: Starts a command that heeds SIGHUP, also where the tests run under nohup.
HEEDING = "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_DFL); "
HEEDING += "os.execv(sys.argv[1], sys.argv[1:])"


@dataclass
class Demo:
    """A running demo. temporary: its folder for temporary files."""

    process: Process
    port: int
    admin_port: int
    temporary: Path

    async def paste(self, shows: str) -> str:
        """Run the command below the line `# SHOWS…` in a shell; what it prints."""
        found = re.search(rf"^# {shows}.*\n(.*)$", self.process.out.read_text(), re.MULTILINE)
        assert found is not None
        shell = await asyncio.create_subprocess_exec(
            *("sh", "-c", found[1]), stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        printed, _ = await asyncio.wait_for(shell.communicate(), TIMEOUT_S * 2)
        return printed.decode()

    async def run(self, shows: str) -> Response:
        """Send the request of the first curl command below the line `# SHOWS…`."""
        printed = self.process.out.read_text()
        found = re.search(rf"^# {shows}.*\n(.*)$", printed, re.MULTILINE)
        assert found is not None, printed
        headers: list[Header] = []
        for header in re.findall(r"-H '([^']*)'", found[1].split(" | awk")[0]):
            name, _, value = header.partition(": ")
            if (name, value) not in headers:
                headers.append((name, value))
        target = re.findall(rf"http://127\.0\.0\.1:{self.port}(/\S*?)(?=[;\s]|$)", found[1])[0]
        body = re.findall(r" -d '([^']*)'", found[1])
        if body:
            return await fetch(
                self.port, target, method="POST", headers=headers, body=body[0].encode()
            )
        return await fetch(self.port, target, headers=headers)


@pytest_asyncio.fixture(loop_scope="session")
async def demo(tmp_path: Path) -> AsyncIterator[Demo]:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    port, admin_port = free_port(), free_port()
    process = Process(
        tmp_path / "demo",
        "demo",
        *("--listen", f"127.0.0.1:{port}", "--admin", f"127.0.0.1:{admin_port}"),
        *("--policies", str(copy_shipped(tmp_path / "policies"))),
        environment={"TMPDIR": str(temporary)},
        launcher=(sys.executable, "-c", HEEDING),
    )
    try:
        await eventually(lambda: LAST_LINE in process.out.read_text(), "the demo runs", READY_S)
        yield Demo(process, port, admin_port, temporary)
    finally:
        await process.stop()


@needs("curl")
async def test_webhooks_in_one_command(demo: Demo) -> None:
    """A watch, a captured event, its delivery, and its signature, which the receiver checked."""
    watch, captured, received = (await demo.paste("webhooks")).split("\n", 2)
    assert json.loads(watch)["secret"].startswith("whsec_")
    assert json.loads(captured)["result"] == "captured"
    (one,) = json.loads(received)["received"]
    assert one["signature"] == "verified"
    assert (one["event"]["type"], one["event"]["data"]["key"]) == ("ticket.created", "acme/api#23")


async def test_a_watch_by_either_header(demo: Demo) -> None:
    """Both headers of keys reach the couriers; a watch is tested five times a minute."""
    printed = re.search(r"^# webhooks.*\n(.*)$", demo.process.out.read_text(), re.MULTILINE)
    assert printed is not None
    key, url = (
        re.findall(pattern, printed[1])[0] for pattern in (r"Bearer ([^']+)'", r'"url": "([^"]+)"')
    )
    body = json.dumps({"url": url, "events": ["ticket.*"]}).encode()
    ids = []
    for name, value in (("Authorization", f"Bearer {key}"), ("apiKey", key)):
        headers = [(name, value), ("Content-Type", "application/json")]
        target = "/api/v1/integrations/int_demo/watches"
        answer = await fetch(demo.port, target, method="POST", headers=headers, body=body)
        assert answer.status == 201
        ids.append(answer.json()["id"])
    body = json.dumps({"watch_id": ids[1]}).encode()
    answers = [
        await fetch(demo.port, "/api/webhooks/test", method="POST", headers=headers, body=body)
        for _ in range(6)
    ]
    assert [each.status for each in answers] == [200] * 5 + [429]
    assert (answers[0].json()["delivered"], answers[0].json()["status"]) == (True, 204)
    assert answers[5]["X-RateLimit-Limit"] == "5"


async def test_what_it_prints_works(demo: Demo) -> None:
    """The printed lines give 200 with the headers, 401, 403, and 429 once the limit is reached."""
    answer = await demo.run("200, and how much remains")
    assert (answer.status, answer["X-RateLimit-Limit"]) == (200, "600")
    assert (await demo.run("401")).status == 401
    refused = await demo.run("403")
    assert (refused.status, refused.json()["code"]) == (403, "INSUFFICIENT_SCOPE")
    assert refused.json()["message"].endswith("Needed: connectors:read.")
    statuses = [(await demo.run("200 as often as search allows")).status for _ in range(32)]
    assert statuses == [200] * 30 + [429] * 2
    limited = await demo.run("429")
    assert (limited.status, limited["X-RateLimit-Limit"]) == (429, "30")
    assert 1 <= int(limited["Retry-After"]) <= 62
    assert (await demo.run("what a key may do")).json()["key"]["plan"] == "pro"
    assert (await fetch(demo.admin_port, "/readyz")).status == 200


async def test_its_mcp_server(demo: Demo) -> None:
    """The printed lines list tools, call one, and are refused for want of a permission."""
    listed = (await demo.run("MCP: the tools")).json()["result"]["tools"]
    assert [tool["name"] for tool in listed] == ["search_code", "create_ticket"]
    called = await demo.run("MCP: call a tool")
    assert called["X-RateLimit-Remaining"] == "29"
    assert called.json()["result"]["structuredContent"]["matches"]
    refused = (await demo.run("MCP: a tool that this key may not call")).json()["error"]
    assert (refused["code"], refused["message"][-17:]) == (403, "Needed: scm:read.")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_nothing_is_left(demo: Demo, number: signal.Signals) -> None:
    """Whichever signal ends it: exit 0, no process, no socket, no file, no error."""
    assert (await demo.run("200, and how much remains")).status == 200
    assert len(processes_in(demo.temporary)) == 1
    demo.process.signal(number)
    assert await demo.process.ended() == 0
    assert processes_in(demo.temporary) == []
    assert os.listdir(demo.temporary) == []
    assert demo.process.err.read_text() == ""
    with pytest.raises(ConnectionRefusedError):
        await fetch(demo.port, "/health")


#: Like `make` in a terminal without a shell: the session leader, which survives a SIGHUP.
_LIKE_MAKE = """
import os, signal, subprocess, sys
terminal = os.open(sys.argv[1], os.O_RDWR)
signal.signal(signal.SIGHUP, lambda *_: None)
sys.exit(subprocess.run(sys.argv[2:], stdin=terminal, stdout=terminal, stderr=terminal).returncode)
"""


async def test_a_closed_terminal_ends_it(tmp_path: Path) -> None:
    """Also if only another process, which waits for the demo, gets the SIGHUP."""
    master, slave = pty.openpty()
    listen, admin = (f"127.0.0.1:{free_port()}" for _ in "12")
    process = subprocess.Popen(  # noqa: ASYNC220 - it starts at once
        [
            *(sys.executable, "-c", _LIKE_MAKE, os.ttyname(slave)),
            *command("demo", "--listen", listen, "--admin", admin),
        ],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        start_new_session=True,
    )
    printed = bytearray()
    try:
        while LAST_LINE.encode() not in printed:
            printed += await asyncio.to_thread(os.read, master, 65536)
        os.close(slave)
        assert len(processes_in(tmp_path)) == 1
        os.close(master)
        await asyncio.to_thread(process.wait, TIMEOUT_S)
        assert processes_in(tmp_path) == []
        assert os.listdir(tmp_path) == []
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


async def test_no_process_is_left_by_a_demo_that_is_killed(demo: Demo) -> None:
    """Its Redis ends with it, as no later start could find it. Only its small folder remains."""
    assert len(processes_in(demo.temporary)) == 1
    demo.process.signal(signal.SIGKILL)
    await demo.process.ended()
    await eventually(lambda: processes_in(demo.temporary) == [], "its Redis is dead")


async def test_a_taken_port_is_named(tmp_path: Path) -> None:
    """One line that names the option to change; nothing was started."""
    async with ScriptedUpstream() as other:
        for option in ("--listen", "--admin", "--upstream-port"):
            ports = {"--listen": free_port(), "--admin": free_port(), "--upstream-port": 0}
            ports[option] = other.port
            done = await asyncio.to_thread(
                run_command,
                *("demo", "--listen", f"127.0.0.1:{ports['--listen']}"),
                *("--admin", f"127.0.0.1:{ports['--admin']}"),
                *("--upstream-port", str(ports["--upstream-port"])),
                environment={"TMPDIR": str(tmp_path)},
            )
            assert (done.returncode, done.stdout) == (1, "")
            assert re.fullmatch(r"gateway demo: .*\n", done.stderr)
            assert option in done.stderr
            assert str(other.port) in done.stderr
    assert os.listdir(tmp_path) == []
    assert processes_in(tmp_path) == []


def processes_in(folder: Path) -> list[int]:
    """The processes whose working directory is in the folder, even if removed, like its Redis."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or belongs to another user
            if (process / "cwd").readlink().is_relative_to(folder):
                found.append(int(process.name))
    return found
