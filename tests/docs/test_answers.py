"""The commands of `console` examples are run, and must print what the documents show.

They run in a folder like a user's: with `policies`, a gateway that `gateway serve` has started
there, and its data in `.gateway`. Each example has a separate key, for which the documents say
`$KEY` and 7h3k9m2p4q6r; `$KEY_FREE` is one of the plan `free` without scopes.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from gateway.cli.demo_upstream import serve_demo_upstream
from gateway.domain.access_log import FIELDS
from tests.docs.pages import ROOT, Example, code_in, guides, page, rows
from tests.kit.command import run_aside
from tests.kit.eventually import eventually
from tests.kit.gateway import Process
from tests.kit.needs import needs
from tests.kit.ports import free_port
from tests.kit.wire import fetch

pytestmark = pytest.mark.asyncio(loop_scope="session")

KEY_ID = "7h3k9m2p4q6r"
START_S = 60.0
EXAMPLES = [each for one in guides() for each in one.examples("console")]
#: A command line that has one of them is for a shell.
SHELL_SIGNS = set("|&;<>$*\n")
FAULTY = "routes:\n  search: {match: GET /api/search/*, upstream: ap, rate: 30/minutes}\n"
#: What differs from run to run, and its replacement.
CHANGING = (
    (r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME"),
    (r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} [\d:]{8} GMT", "DATE"),
    (r"gwk_production_[2-9a-z]{12}_[0-9A-Za-z]{38}", "KEY"),
    (r"\b[0-9a-f]{12}-[0-9a-f]+\b", "REQUEST"),
    (r"\b[2-9a-hj-km-np-z]{12}\b", "ID"),
    (r"(?m)^(Retry-After|Content-Length|X-RateLimit-Reset(?:-After)?): \d+", r"\1: N"),
    (r'"(retry_after|reset_after)": \d+', r'"\1": 0'),
    (r', "(?:request_id|doc)": "[^"]*"', ""),
    (r"[ \t]+$", ""),
)


@dataclass
class Site:
    """A folder with a running gateway. port, admin_port: where it listens"""

    folder: Path
    port: int
    admin_port: int

    async def create_key(self, plan: str, **fields: object) -> tuple[str, str]:
        """A new key through the admin API: its id and its text."""
        token = (self.folder / ".gateway/admin-token").read_text().strip()
        answer = await fetch(
            self.admin_port,
            "/admin/v1/keys",
            method="POST",
            headers=[
                ("Host", "127.0.0.1"),
                ("Authorization", f"Bearer {token}"),
                ("Content-Type", "application/json"),
            ],
            body=json.dumps({"name": "ci", "plan": plan, **fields}).encode(),
        )
        made = answer.json()
        return made["id"], made["key"]

    async def run(self, command: str, environment: dict[str, str]) -> tuple[int, str]:
        """Run a command line of the documents; return its exit status and its output."""
        command = command.replace("127.0.0.1:8080", f"127.0.0.1:{self.port}")
        command = command.replace("127.0.0.1:9901", f"127.0.0.1:{self.admin_port}")
        if command.startswith("gateway ") and not set(command) & SHELL_SIGNS:
            done = await run_aside(*shlex.split(command)[1:], folder=self.folder)
            return done.returncode, done.output
        process = await asyncio.create_subprocess_exec(
            *("sh", "-c", command),
            cwd=self.folder,
            env={
                **{name: value for name, value in os.environ.items() if name[:8] != "GATEWAY_"},
                **environment,
                **{"PYTHONPATH": str(ROOT), "CURL_HOME": str(self.folder)},
            },
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await asyncio.wait_for(process.communicate(), START_S)
        return process.returncode or 0, output.decode().replace("\r\n", "\n")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site() -> AsyncIterator[Site]:
    port, admin_port = free_port(), free_port()
    # Not in tmp_path: the path of the private store's socket must be short.
    with tempfile.TemporaryDirectory(prefix="gw-", dir="/tmp") as name:
        folder = Path(name)
        (folder / "bin").mkdir()
        # Without it, curl would draw its progress into the pipe.
        (folder / ".curlrc").write_text("silent\n")
        program = folder / "bin/gateway"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m gateway "$@"\n')
        program.chmod(0o755)
        (folder / "policies").symlink_to(ROOT / "policies")
        for policies in ("serving", "faulty", "changed"):
            (folder / policies).mkdir()
            for path in (ROOT / "policies").glob("*.yaml"):
                (folder / policies / path.name).write_text(path.read_text())
        (folder / "faulty/routes.yaml").write_text(FAULTY)
        changed = folder / "changed/routes.yaml"
        text = changed.read_text().replace("rate: 10/minute", "rate: 100/hour", 1)
        text = text.replace("rate: 30/minute", "rate: 60/minute", 1)
        changed.write_text(text.replace('scopes: ["connectors:read"]', "auth: none"))
        (folder / "requests.log").write_text("".join(f"{line}\n" for line in log_lines()))
        async with serve_demo_upstream("127.0.0.1", 0) as upstream:
            path = folder / "serving/upstreams.yaml"
            served = f"127.0.0.1:{upstream}"
            shipped = path.read_text().replace("127.0.0.1:9000", served)
            path.write_text(shipped.replace("127.0.0.1:9100", served))
            process = Process(
                folder / "output",
                *("serve", "--policies", str(folder / "serving")),
                *("--listen", f"127.0.0.1:{port}", "--admin", f"127.0.0.1:{admin_port}"),
                *("--data", str(folder / ".gateway"), "--access-log", str(folder / "access.log")),
                environment={"GATEWAY_COURIERS": "1"},
            )
            try:
                await is_ready(process, admin_port)
                yield Site(folder, port, admin_port)
            finally:
                await process.stop()


async def is_ready(process: Process, admin_port: int) -> None:
    async with asyncio.timeout(START_S):
        while True:
            assert process.process.poll() is None, process.output()
            try:
                answer = await fetch(admin_port, "/readyz")
                # Couriers start after the workers serve.
                if answer.status == 200 and answer.json()["checks"]["couriers"] == "1 of 1":
                    return
            except OSError:
                pass
            await asyncio.sleep(0.02)


def log_lines() -> Iterator[str]:
    """Forty searches of one key within 20 seconds, as in the documents' access log."""
    (example,) = page("docs/operations.md").examples("json")
    line = json.loads(example.text) | {"decision": "admitted", "status": 200, "reason": None}
    for at in range(40):
        yield json.dumps(line | {"time": f"2026-11-22T10:37:{at // 2:02}.{at % 2 * 5}00000Z"})


def steps(example: Example) -> Iterator[tuple[str, str]]:
    """Each command and the output below it. A line that ends in "|" or "\\" goes on in the next."""
    for part in re.split(r"^\$ ", example.text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        end = next(at for at, line in enumerate(lines) if not line.endswith(("|", "\\")))
        yield "\n".join(lines[: end + 1]), "\n".join(lines[end + 1 :])


def settled(text: str) -> str:
    """The text without what differs from run to run."""
    for pattern, word in CHANGING:
        text = re.sub(pattern, word, text, flags=re.MULTILINE)
    return text.strip("\n")


def comparable(text: str) -> Any:
    """Head and body of an answer, a JSON value, or the text itself."""
    head, blank, body = text.partition("\n\n")
    if head.startswith("HTTP/1.1"):
        return head, comparable(body) if blank else None
    try:
        return json.loads(text)
    except ValueError:
        return text


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: each.where)
@needs("curl")
async def test_console(example: Example, site: Site) -> None:
    """The shown output is the real one, except for dates, ids and times; "…" omits the rest."""
    permissions = {"ticketing": ["write"]} if "create_ticket" in example.text else {}
    key_id, key = await site.create_key("pro", scopes=["connectors:read"], permissions=permissions)
    _, key_free = await site.create_key("free")
    environment = {
        "KEY": key,
        "KEY_FREE": key_free,
        "PATH": f"{site.folder / 'bin'}:{os.environ['PATH']}",
    }
    shown_steps = list(steps(example))
    assert shown_steps
    for command, shown in shown_steps:
        status, printed = await site.run(command.replace(KEY_ID, key_id), environment)
        expected, found = settled(shown), settled(printed)
        if "…" in expected:
            assert is_cut_from(expected, found), printed
        elif expected:
            assert comparable(found) == comparable(expected), printed
        else:
            assert status == 0, printed


def is_cut_from(expected: str, found: str) -> bool:
    """Is it the same text, with "…" in place of a line's end, or of all further lines?"""
    ours, theirs = expected.splitlines(), found.splitlines()
    if ours[-1] == "…":
        ours.pop()
        theirs = theirs[: len(ours)]
    if len(ours) != len(theirs):
        return False
    for line, other in zip(ours, theirs, strict=True):
        start, cut, _ = line.partition("…")
        if not (other.startswith(start) if cut else other == line):
            return False
    return True


@pytest.mark.parametrize(
    ("expected", "found", "same"),
    [
        ("a …\nb", "a 1\nb", True),
        ("a …\nb", "b 1\nb", False),
        ("a\n…", "a\nb\nc", True),
        ("a …", "a 1\nb", False),
    ],
)
async def test_omissions(expected: str, found: str, same: bool) -> None:
    """All shown text must be there; only "…" matches anything."""
    assert is_cut_from(expected, found) is same


async def test_the_access_log(site: Site) -> None:
    """A line of the log has the example's fields, and the table describes each."""
    (example,) = page("docs/operations.md").examples("json")
    _, key = await site.create_key("pro")
    await fetch(site.port, "/api/search/x", headers=[("Authorization", f"Bearer {key}")])
    log = site.folder / "access.log"
    async with asyncio.timeout(START_S):
        while not log.read_text().endswith("\n"):  # noqa: ASYNC110 - the kernel does not notify
            await asyncio.sleep(0.02)
    line = json.loads(log.read_text().splitlines()[-1])
    assert list(line) == list(json.loads(example.text))
    section = page("docs/operations.md").section("Access log")
    documented = [
        name
        for row in rows(section.partition("Without further settings")[2].partition("Reasons of")[0])
        for name in code_in(row[0])
    ]
    assert sorted(documented) == sorted(FIELDS)
    assert set(documented[: len(line)]) == set(line)


async def test_metrics(site: Site) -> None:
    """A scrape has exactly the metrics of docs/metrics.md, with their types."""
    documented = [
        (code_in(row[0])[0], row[1]) for row in rows(page("docs/metrics.md").text) if len(row) == 4
    ]
    types: list[tuple[str, str]] = []

    async def a_courier_reports() -> bool:
        answer = await fetch(site.admin_port, "/metrics", headers=[("Host", "127.0.0.1")])
        types[:] = re.findall(r"^# TYPE (gateway_\w+) (\w+)$", answer.body.decode(), re.MULTILINE)
        return any(name.startswith("gateway_webhook_") for name, _ in types)

    # It starts after the workers serve.
    await eventually(a_courier_reports, "metrics of a courier", START_S)
    assert sorted(documented) == sorted(types)


@pytest.mark.parametrize(
    "example",
    [each for one in guides() for each in one.examples("http")],
    ids=lambda each: each.where,
)
async def test_requests(example: Example, site: Site) -> None:
    """A request of the documents is admitted, with a valid key in place of its key."""
    _, key = await site.create_key("pro", scopes=["connectors:read"])
    first, *lines = example.text.splitlines()
    method, target, _ = first.split(" ")
    fields = [line.split(": ", 1) for line in lines]
    sent = [(name, re.sub(r"gwk_\S+", key, value)) for name, value in fields]
    answer = await fetch(site.port, target, method=method, headers=sent)
    assert answer.status == 200
