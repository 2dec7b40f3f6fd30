"""The gateway as users run it, in a separate process; and commands on its keys, in this one."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.kit import proc
from tests.kit.command import run_aside
from tests.kit.ports import free_port
from tests.kit.wire import TIMEOUT_S, Response, fetch

#: Without other settings of gateways from the environment.
_ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("GATEWAY_")},
    # Only tests of webhooks need couriers, which take a second to start.
    "GATEWAY_COURIERS": "0",
}


def command(*arguments: str) -> list[str]:
    """The command line of `gateway ARGUMENTS`."""
    return [sys.executable, "-m", "gateway", *arguments]


def run_command(
    *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a `gateway` command to its end, in a process: `tests.kit.command` is much faster."""
    return subprocess.run(
        command(*arguments),
        env={**_ENVIRONMENT, **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


async def create_key(store: str, policies: Path, **options: str | list[str]) -> tuple[str, str]:
    """Create a key as an operator does; return its id and its text. Option a_b="x" is --a-b x."""
    options = {"name": "test", "plan": "free", **options}
    words = [
        word
        for name, values in options.items()
        for value in (values if isinstance(values, list) else [values])
        for word in (f"--{name.replace('_', '-')}", value)
    ]
    made = await keys_command(store, "create", "--policies", str(policies), *words)
    return made["id"], made["key"]


async def keys_command(store: str, verb: str, *arguments: str) -> Any:
    """Run `gateway keys VERB … --json` on this store; return its output."""
    return await _command("keys", verb, *arguments, "--store", store, "--json")


async def accounts_command(store: str, verb: str, *arguments: str) -> Any:
    """Run `gateway accounts VERB … --json` on this store; return its output."""
    return await _command("accounts", verb, *arguments, "--store", store, "--json")


async def _command(*words: str) -> Any:
    done = await run_aside(*words, environment=_ENVIRONMENT)
    assert done.returncode == 0, f"{words}: {done.stderr}"
    return json.loads(done.stdout)


#: For a gateway to get ready. Its start takes one or two seconds of CPU time, which a busy machine
#: may give it slowly: 20 s were not enough on one with two cores.
READY_S = 90.0


class Process:
    """A `gateway` command that runs until it is stopped; its output is in files of `folder`.

    It has its own process group, as from a shell: `interrupt` is Ctrl-C.
    launcher: words before the command, which run it; descriptors: what that inherits
    """

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        environment: dict[str, str] | None = None,
        launcher: Sequence[str] = (),
        descriptors: Sequence[int] = (),
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.out, self.err = folder / "out", folder / "err"
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(
                [*launcher, *command(*arguments)],
                env={**_ENVIRONMENT, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                process_group=0,
                pass_fds=descriptors,
            )

    def interrupt(self) -> None:
        """Send SIGINT to the whole group, as a terminal does."""
        os.killpg(self.process.pid, signal.SIGINT)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def ended(self) -> int:
        """Wait for its end; return its exit status."""
        return await asyncio.to_thread(self.process.wait, TIMEOUT_S * 2)

    async def stop(self) -> int:
        """Stop it as an operator does; return its exit status. No effect after its end."""
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
        try:
            return await self.ended()
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise

    def output(self) -> str:
        """Its output so far, for the message of a failed test."""
        return self.out.read_text() + self.err.read_text()


class ServedGateway(Process):
    """`gateway serve`, on free ports by default; ready once its `async with` is entered."""

    def __init__(
        self,
        folder: Path,
        policies: Path,
        store: str,
        *arguments: str,
        ports: tuple[int, int] | None = None,
        data: Path | None = None,
        **options: Any,
    ) -> None:
        self.policies = policies
        self.port, self.admin_port = ports or (free_port(), free_port())
        self.access_log = folder / "access.log"
        self.data = data or folder / "data"
        super().__init__(
            folder,
            "serve",
            *("--policies", str(policies), "--store", store),
            *("--listen", f"127.0.0.1:{self.port}", "--admin", f"127.0.0.1:{self.admin_port}"),
            *("--data", str(self.data), "--access-log", str(self.access_log)),
            *arguments,
            **options,
        )

    async def __aenter__(self) -> ServedGateway:
        try:
            await self.ready()
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def ready(self) -> None:
        """Wait until it is ready."""
        give_up = time.monotonic() + READY_S
        while True:
            assert self.process.poll() is None, f"the gateway ended: {self.output()}"
            assert time.monotonic() < give_up, (
                f"the gateway does not get ready; it has used {proc.cpu_s(self.process.pid):.1f} s "
                f"of CPU and wrote: {self.output()!r}"
            )
            try:
                if (await fetch(self.admin_port, "/readyz")).status == 200:
                    return
            except OSError:
                pass
            await asyncio.sleep(0.02)

    def worker_pids(self) -> list[int]:
        """The processes of its workers."""
        return proc.children(self.process.pid, "gateway.cli.worker")

    @property
    def worker_pid(self) -> int:
        """The only one."""
        (pid,) = self.worker_pids()
        return pid

    async def fetch(self, target: str, **request: Any) -> Response:
        """Send one request on a new connection, as `tests.kit.wire.fetch`."""
        return await fetch(self.port, target, **request)

    @property
    def admin_token(self) -> str:
        """The token that it has generated."""
        return (self.data / "admin-token").read_text().strip()

    async def metrics(self) -> str:
        """A scrape, by address, like Prometheus's."""
        headers = [("Host", "127.0.0.1")]
        return (await fetch(self.admin_port, "/metrics", headers=headers)).body.decode()

    def log_lines(self) -> list[dict[str, Any]]:
        """The access log so far."""
        return [json.loads(line) for line in self.access_log.read_text().splitlines()]
