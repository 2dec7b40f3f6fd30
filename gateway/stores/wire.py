"""Our own pipelined connection to Redis, for what is asked all the time.

Commands go out as they come and replies are matched to them by their order alone. Hence one rule:
where that order could be in doubt (a reply that is late, one that cannot be read) the connection
is given up, and whoever waited on it is told `StoreDown`, once. `Wire` is one connection and lives
once; `StoreLink` keeps one up, and is what others use.

Server pushes (RESP3) are not replies and go to a listener of their own.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, cast

import hiredis

from gateway.domain.ports import StoreDown
from gateway.stores.connect import StoreAddress, ssl_context
from gateway.tasks import spawn

#: A reply as hiredis reads it (bytes, int, list, None, a ReplyError for an error reply), or
#: StoreDown where none will come.
Done = Callable[[Any], None]

_FIRST_BACKOFF_S: Final = 0.05
_LAST_BACKOFF_S: Final = 1.0
#: hiredis reads a null reply as None, so something else has to stand for "not all here yet".
_NOT_YET: Final = object()


def command(*words: bytes | str | int) -> bytes:
    """One command as it goes over the wire."""
    encoded: bytes = hiredis.pack_command(words)  # type: ignore[arg-type] # stub: one word
    return encoded


def _settle(future: asyncio.Future[Any], reply: Any) -> None:
    if not future.done():  # whoever waited may have been cancelled
        future.set_result(reply)


class Wire(asyncio.Protocol):
    """One connection. After it is lost, nothing is sent and every `send` is told so."""

    def __init__(
        self,
        timeout_s: float,
        on_push: Callable[[list[Any]], None] | None,
        on_lost: Callable[[StoreDown], None],
    ) -> None:
        self._timeout_s = timeout_s
        self._on_push = on_push
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(notEnoughData=_NOT_YET)
        self._waiting: deque[tuple[float, Done]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._lost: StoreDown | None = None

    def send(self, encoded: bytes, done: Done) -> None:
        """Send one command; `done` gets its reply, or StoreDown."""
        if self._transport is None or self._lost is not None:
            self._tell(done, self._lost or StoreDown("the store is not connected"))
            return
        now_s = self._loop.time()
        self._waiting.append((now_s, done))
        if self._timer is None:
            self._timer = self._loop.call_at(now_s + self._timeout_s, self._check_oldest)
        self._transport.write(encoded)

    def close(self, reason: str) -> None:
        """Give the connection up; whoever waits is told at once."""
        if self._lost is None:
            self._fail(StoreDown(reason))
            if self._transport is not None:
                self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._lost is not None:  # given up while it was being made
            transport.close()

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        try:
            reader.feed(data)
            while self._lost is None and (reply := reader.gets()) is not _NOT_YET:
                if isinstance(reply, hiredis.PushNotification):
                    if self._on_push is not None:
                        self._tell(self._on_push, reply)
                elif self._waiting:
                    self._tell(self._waiting.popleft()[1], reply)
                else:
                    self.close("the store sent a reply that nothing was asked for")
        except hiredis.ProtocolError as error:
            self.close(f"the store sent what is not RESP: {error}")

    def connection_lost(self, error: Exception | None) -> None:
        if self._lost is None:
            self._fail(StoreDown(f"the connection to the store was lost: {error or 'closed'}"))

    def _check_oldest(self) -> None:
        """One timer serves all: it looks at the oldest, and comes back for the next oldest."""
        self._timer = None
        if not self._waiting:
            return
        due_s = self._waiting[0][0] + self._timeout_s
        if due_s <= self._loop.time():
            self.close(f"the store did not answer within {self._timeout_s:g} s")
        else:
            self._timer = self._loop.call_at(due_s, self._check_oldest)

    def _fail(self, error: StoreDown) -> None:
        self._lost = error
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting:
            self._tell(self._waiting.popleft()[1], error)
        self._on_lost(error)

    def _tell(self, listener: Done, value: Any) -> None:
        """One listener's mistake must not cost the others their replies."""
        try:
            listener(value)
        except Exception as error:
            report = {"message": "a listener of the store's replies failed", "exception": error}
            self._loop.call_exception_handler(report)


class StoreLink:
    """Keeps a connection to one Redis up: connects, greets, and begins again when it is lost.

    timeout_s: a reply that takes longer costs the connection
    on_push:   gets RESP3 pushes; given one, the connection speaks RESP3
    setup:     commands sent on each new connection before it counts as up
    on_up, on_down: listeners, called at each change: when connected and greeted; when lost
    """

    def __init__(
        self,
        address: StoreAddress,
        *,
        timeout_s: float = 1.0,
        on_push: Callable[[list[Any]], None] | None = None,
        setup: Sequence[bytes] = (),
    ) -> None:
        self.address = address
        self.on_up: list[Callable[[], None]] = []
        self.on_down: list[Callable[[StoreDown], None]] = []
        #: Why the last attempt or connection ended; None while nothing has.
        self.last_error: StoreDown | None = None
        self._timeout_s = timeout_s
        self._on_push = on_push
        self._setup = setup
        self._wire: Wire | None = None
        self._task: asyncio.Task[None] | None = None
        self._up = asyncio.Event()

    @property
    def is_up(self) -> bool:
        return self._wire is not None

    def start(self) -> None:
        """Begin to connect, and keep at it until `stop`. Needs a running loop."""
        if self._task is None:
            self._task = spawn(self._run(), "store link")

    async def stop(self) -> None:
        """Disconnect for good; harmless when repeated."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def wait_up(self) -> None:
        """Return once connected."""
        await self._up.wait()

    def send(self, encoded: bytes, done: Done) -> None:
        """Send one command (see `command`); `done` gets the reply, or StoreDown, once."""
        if self._wire is None:
            done(StoreDown("the store is not connected"))
        else:
            self._wire.send(encoded, done)

    async def ask(self, *words: bytes | str | int) -> Any:
        """One command, awaited. Raises StoreDown, or hiredis.ReplyError."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.send(command(*words), partial(_settle, future))
        reply = await future
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def _run(self) -> None:
        backoff_s = _FIRST_BACKOFF_S
        while True:
            lost: asyncio.Future[StoreDown] = asyncio.get_running_loop().create_future()
            wire: Wire | None = None
            try:
                wire = await self._connect(lost)
                if not lost.done():
                    backoff_s = _FIRST_BACKOFF_S
                    self._came_up(wire)
                await lost
            except StoreDown as error:
                self.last_error = error
            finally:
                if wire is not None:
                    wire.close("the connection was closed on purpose")
            await asyncio.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, _LAST_BACKOFF_S)

    async def _connect(self, lost: asyncio.Future[StoreDown]) -> Wire:
        """A connection that has been greeted. Raises StoreDown."""

        def on_lost(error: StoreDown) -> None:
            self._went_down(error)
            if not lost.done():
                lost.set_result(error)

        wire = Wire(self._timeout_s, self._on_push, on_lost)
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._open(wire)
                await self._greet(wire)
        except OSError as error:  # TimeoutError and ssl.SSLError among them
            wire.close("the connection could not be made")
            reason = str(error) or "it did not answer in time"
            raise StoreDown(f"cannot connect to {self.address.label}: {reason}") from error
        except BaseException:
            wire.close("the connection could not be made")
            raise
        return wire

    async def _open(self, wire: Wire) -> None:
        address, loop = self.address, asyncio.get_running_loop()
        if address.kind == "unix":
            await loop.create_unix_connection(lambda: wire, address.path)
        else:
            tls = ssl_context(address)
            await loop.create_connection(lambda: wire, address.host, address.port, ssl=tls)

    async def _greet(self, wire: Wire) -> None:
        """Send who we are and what we need in one go. Raises StoreDown at the first error."""
        loop = asyncio.get_running_loop()
        replies: list[asyncio.Future[Any]] = []
        for words in (*self._greeting(), *self._setup):
            replies.append(loop.create_future())
            wire.send(words, partial(_settle, replies[-1]))
        for reply in await asyncio.gather(*replies):
            if isinstance(reply, StoreDown):
                raise reply
            if isinstance(reply, hiredis.ReplyError):
                raise StoreDown(f"{self.address.label} refuses us: {self._without_secret(reply)}")

    def _greeting(self) -> list[bytes]:
        address = self.address
        greeting: list[bytes] = []
        login = (
            () if address.password is None else (address.username or "default", address.password)
        )
        if self._on_push is not None:
            greeting.append(command("HELLO", 3, *(("AUTH", *login) if login else ())))
        elif address.password is not None:
            # The one-word form also suits a server older than users.
            greeting.append(command("AUTH", *(login if address.username else (address.password,))))
        if address.db:
            greeting.append(command("SELECT", address.db))
        # A server that is still loading its data greets politely and then answers nothing.
        greeting.append(command("PING"))
        return greeting

    def _without_secret(self, reply: Exception) -> str:
        """An error's words; some servers quote what they did not understand."""
        words, password = str(reply), self.address.password
        return words.replace(password, "***") if password else words

    def _came_up(self, wire: Wire) -> None:
        self._wire = wire
        self._up.set()
        for listener in self.on_up:
            listener()

    def _went_down(self, error: StoreDown) -> None:
        self.last_error = error
        if self._wire is not None:
            self._wire = None
            self._up.clear()
            for listener in self.on_down:
                listener(error)
