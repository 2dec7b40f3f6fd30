"""Locust as a separate process, against correct gateways, and one with wrong answers.

Locust patches the whole process that imports it, so it is never imported here.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.kit.eventually import eventually
from tests.kit.policies import write_policies
from tests.kit.upstream import Exchange, ScriptedUpstream, build_response

# An extra that `make test` does not install. CI has to have it: there a skip is a failure.
pytestmark = pytest.mark.skipif(
    find_spec("locust") is None, reason="not installed: locust (extra `load`)"
)

ROOT = Path(__file__).resolve().parent.parent.parent
KEY = "gwk_production_of_no_kind"
PLANS = "plans:\n  free: {rate: 2/minute}\n"
VERIFY = "/v1/auth/verify"

#: Longer than any run takes.
TIMEOUT_S = 100.0
#: `python -m` that handles SIGINT even if the tests run in the background, which ignores it.
MODULE = "import runpy, signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
MODULE += "sys.argv.pop(0); runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"


async def run(
    *words: str, until: Callable[[], bool] | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run `python -m WORDS` in the checkout to its end.

    until: the condition at which it is interrupted, as by Ctrl-C; None: it ends by itself
    """
    ours = {name: text for name, text in os.environ.items() if not name.startswith("GATEWAY_")}
    with subprocess.Popen(  # noqa: ASYNC220 - a thread reads from it
        [sys.executable, "-c", MODULE, *words],
        cwd=ROOT,
        env={**ours, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        ending = asyncio.create_task(asyncio.to_thread(process.communicate, timeout=TIMEOUT_S))
        try:
            if until is not None:
                enough = until
                await eventually(lambda: ending.done() or enough(), "enough is seen", TIMEOUT_S)
                process.send_signal(signal.SIGINT)
            out, err = await ending
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(words, process.returncode, out, err)


async def locust(
    folder: Path,
    *words: str,
    file: str = "loadtests/locustfile.py",
    until: Callable[[], bool] | None = None,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """Run Locust without its web interface."""
    options = ["-f", file, "--headless", "--html", str(folder / "report.html"), *words]
    return await run("locust", *options, until=until, **environment)


async def run_briefly(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the load test until it has checked what it can, which may take long on a busy machine."""
    return await run("loadtests.traffic", "--seconds", "2", "--p99-ms", "60000", *words)


async def test_the_demo_passes(tmp_path: Path) -> None:
    """All assertions of a short run hold, and there is a report."""
    done = await run_briefly("--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "NOT MET" not in done.stdout
    for truth in ("no more is admitted than the limit", "Remaining falls by admissions only"):
        assert f"times: {truth}" in done.stdout
    assert "PASSED" in done.stdout
    report = (tmp_path / "report.html").read_text()
    assert "/api/search/*" in report
    assert "gwk_" not in report + (tmp_path / "locust.log").read_text() + done.stdout


async def test_two_gateways_on_one_redis_pass(tmp_path: Path) -> None:
    """Clients that share keys use two gateways on one Redis alternately; all assertions hold.

    One has a key of its own: the client library, which paces its requests.
    """
    done = await run_briefly("--gateways", "2", "--keys", "2", "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 gateway(s), 6 callers" in done.stdout
    assert "times: a client that paces its requests gets no 429" in done.stdout
    assert "met: 0 truths broken" in done.stdout
    assert "met: 0 truths unchecked" in done.stdout


async def test_wrong_answers_are_detected(tmp_path: Path) -> None:
    """A gateway that admits everything, with the fields of a first request, is detected.

    The limits are small, so that a few requests are enough.
    """
    policies = write_policies(tmp_path / "policies", "http://127.0.0.1:9", plans=PLANS)
    async with ScriptedUpstream(lie) as liar:
        done = await locust(
            tmp_path,
            *("--users", "2", "--spawn-rate", "2", "--host", liar.url, "--pace", "0.05"),
            file="loadtests",  # as users do
            until=lambda: len(liar.requests) >= 60,
            GATEWAY_KEY_FREE=KEY,
            GATEWAY_POLICIES=str(policies),
        )
    printed = done.stdout + done.stderr
    assert done.returncode == 1, printed
    for truth in (
        "no more is admitted than the limit",
        "Remaining is no more than is left",
        "Reset agrees with the clock",
    ):
        assert f"; {truth}: " in printed
    assert "met: 0 errors" in printed  # all statuses were good
    assert KEY not in printed + (tmp_path / "report.html").read_text()
    assert {VERIFY, "/whoami"} & {each.target for each in liar.requests}


async def lie(exchange: Exchange) -> None:
    """Admit each request, with constant fields of the plan, whatever the route."""
    await exchange.read_body()
    now_s = int(time.time())
    fields = {
        "Date": time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(now_s - 60)),
        "X-RateLimit-Limit": "2",
        "X-RateLimit-Remaining": "1",
        "X-RateLimit-Reset": str(now_s + 61),
        "X-RateLimit-Reset-After": "61",
    }
    key = {"plan": "free", "scopes": ["connectors:read"]}
    await exchange.write(build_response(200, json.dumps({"key": key}).encode(), fields.items()))


async def test_several_gateways_and_processes_in_stages(tmp_path: Path) -> None:
    """Two alternating addresses, two processes of Locust, and stages with more clients.

    No process knows the others' use of a key, so the fall of Remaining is not checked; the master
    prints the sum of all checks. It is interrupted in the second stage.
    """
    clients: list[str] = []

    async def refuse(exchange: Exchange) -> None:
        """Refuse each request, for longer than a client waits. A client begins with its key."""
        await exchange.read_body()
        target = exchange.request.target
        clients.extend([target] if target == VERIFY else [])
        await exchange.write(build_response(*refusal(target)))

    async with ScriptedUpstream(refuse) as one, ScriptedUpstream(refuse) as other:
        done = await locust(
            tmp_path,
            *("--stages", "2:1s,4:5m", "--processes", "2", "--pace", "0.1"),
            until=lambda: len(clients) >= 4 and min(len(one.requests), len(other.requests)) > 9,
            GATEWAY_KEY_FREE=f"{KEY}_a,{KEY}_b",
            GATEWAY_HOSTS=f"{one.url},{other.url}/",
        )
    printed = done.stdout + done.stderr
    assert done.returncode == 0, printed
    assert "times: a refusal says when to come back" in printed
    assert "Remaining falls" not in printed


def refusal(target: str) -> tuple[int, bytes, Iterable[tuple[str, str]]]:
    """Status, body and fields of a refusal; the key itself is told."""
    now_s = int(time.time())
    verify = target == VERIFY
    limit = {"/mcp": 100, "/api/search/issues?q=open": 30}.get(target, 60)
    fields = {
        "Date": time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(now_s)),
        "X-RateLimit-Limit": str(limit),
        "X-RateLimit-Remaining": "0",
        "X-RateLimit-Reset": str(now_s + 61),
        "X-RateLimit-Reset-After": "61",
        **({} if verify else {"Retry-After": "3600"}),
    }
    body = {"key": {"plan": "free", "scopes": ["connectors:read"]}}
    return 200 if verify else 429, json.dumps(body).encode(), fields.items()


async def test_missing_input_is_one_line(tmp_path: Path) -> None:
    """Missing or invalid input ends the run with one line, before any request."""
    cases = [
        ({}, [], 1, "no keys: put some into GATEWAY_KEY_FREE"),
        ({"GATEWAY_KEY_PRO": KEY, "GATEWAY_POLICIES": "tests"}, [], 1, "tests: "),
        ({"GATEWAY_KEY_PRO": KEY}, ["--stages", "10"], 2, "such as 10:30s"),
    ]
    runs = [
        locust(tmp_path, *words, "--run-time", "1s", **variables)
        for variables, words, _, _ in cases
    ]
    for done, (_, _, status, message) in zip(await asyncio.gather(*runs), cases, strict=True):
        assert done.returncode == status, done.stdout + done.stderr
        assert message in done.stderr
        assert "Traceback" not in done.stderr
