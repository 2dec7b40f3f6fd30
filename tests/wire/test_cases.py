"""Every case of `tests/wire_cases`: byte by byte in memory, and whole over a real socket."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from gateway.app import Gateway
from tests.kit.eventually import eventually
from tests.kit.wire import TIMEOUT_S
from tests.wire.bench import KEY_TEXTS, MemoryBench, policy_for, started
from tests.wire.cases import FOLDER, Case, read_all
from tests.wire.upstream import JudgingUpstream, SocketConversation
from tests.wire.verdict import judge, read_statuses, sends_of, statuses_of

#: The unit tests run the same lines, and measuring them again takes as long as the cases.
pytestmark = pytest.mark.no_cover

CASES = read_all()
every_case = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])

#: Longer messages are cut into pieces of a prime length in place of single bytes.
MOST_SINGLE_BYTES = 8 * 1024
PIECE_BYTES = 251

#: The attacks that messages can express; the others need time, a store or two ends.
ATTACKS = {*range(1, 47), 50, 51, 56} - {20, 30}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemoryBench]:
    made = MemoryBench(tmp_path_factory.mktemp("memory"))
    yield made
    made.close()


@dataclass(slots=True)
class Site:
    """A gateway on a port, and its upstream."""

    gateway: Gateway
    upstream: JudgingUpstream

    async def settled(self) -> None:
        """Wait until the gateway has finished with its clients, and the upstream has read all."""
        await eventually(lambda: not self.gateway._context.connections, "the clients have closed")
        for _ in range(5):
            await asyncio.sleep(0)


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    upstream = JudgingUpstream()
    server = await asyncio.get_running_loop().create_server(
        lambda: SocketConversation(upstream), "127.0.0.1", 0
    )
    folder = tmp_path_factory.mktemp("sockets")
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with started(policy_for(folder, url), folder) as gateway:
        yield Site(gateway, upstream)
    server.close()


def sent_by(case: Case) -> bytes:
    return b"".join(case.filled(KEY_TEXTS))


def bytewise(data: bytes) -> list[bytes]:
    step = 1 if len(data) <= MOST_SINGLE_BYTES else PIECE_BYTES
    return [data[at : at + step] for at in range(0, len(data), step)]


@every_case
def test_byte_by_byte(bench: MemoryBench, case: Case) -> None:
    """Each byte is sent separately, and the outcome is what the case's file says."""
    bench.complaints.clear()
    outcome = bench.run(map(bytewise, sends_of(case)), case.answers, case.hangs_up)
    assert bench.complaints == []
    judge(case, outcome.written, outcome.ended, bench.upstream)
    assert bench.limiter.admitted >= len(bench.upstream.requests)


@every_case
@pytest.mark.asyncio(loop_scope="session")
async def test_whole(site: Site, case: Case) -> None:
    """The message is sent in one piece over a real socket, with the same outcome."""
    site.upstream.expect(case.answers, case.hangs_up)
    client = Client(*await asyncio.open_connection("127.0.0.1", site.gateway.port), case)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            for data in sends_of(case):
                await client.send(data)
                await client.read_more()
            await client.read_all()
    finally:
        client.close()
        await site.settled()
    judge(case, bytes(client.read), client.ended, site.upstream)


class Client:
    """Sends, and collects what it receives."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, case: Case
    ) -> None:
        self._reader, self._writer, self._case = reader, writer, case
        self.read = bytearray()
        self.ended = False

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()

    async def read_more(self) -> None:
        """Each message gets an answer; an incomplete one gets none."""
        if self._case.ending != "waits" and not self._is_complete():
            await self._read()

    async def read_all(self) -> None:
        """Read until the end, if one is due, else until every answer is there."""
        ends = self._case.ending in {"closes", "broken"}
        while not self.ended if ends else not self._is_complete():
            await self._read()

    def close(self) -> None:
        self._writer.transport.abort()

    def _is_complete(self) -> bool:
        statuses, left = read_statuses(bytes(self.read), self._case.methods, self.ended)
        return len(statuses) >= len(statuses_of(self._case)) and not left

    async def _read(self) -> None:
        if self.ended:
            raise AssertionError(f"the connection ended early, after {bytes(self.read)!r}")
        try:
            data = await self._reader.read(1 << 20)
        except ConnectionError:
            data = b""
        self.read += data
        self.ended = not data


def test_every_attack_has_a_case() -> None:
    """The files are named after the attacks, and each attack that is a message has one."""
    numbered = {int(match[1]) for case in CASES if (match := re.match(r"(\d\d)-", case.name))}
    assert ATTACKS - numbered == set()


def test_the_folder_has_only_cases() -> None:
    """Every file in the folder is a case that is run, or the README."""
    names = {path.name for path in FOLDER.iterdir()} - {"README.md"}
    assert names == {f"{case.name}.case" for case in CASES}
    assert len({case.title for case in CASES}) == len(CASES), "each title is unique"
    assert not [
        case.name for case in CASES if re.search(rb"\{([0-9]+\*|key}|other})", sent_by(case))
    ]
