"""Our own pipelined connection to Redis, for what is asked all the time.

Commands go out as they come and replies are matched to them by their order alone. Hence one rule:
where that order could be in doubt (a reply that is late, one that cannot be read) the connection
is given up, and whoever waited on it is told `StoreDown`, once. `Wire` is one connection and lives
once; `StoreLink` keeps one up, and is what others use.

The link is the breaker, too. While there is no connection every `send` is answered StoreDown at
once, so an outage costs the requests of its first moment one timeout and the later ones nothing.
Attempts to return go on beside, and a connection counts only when the server has done, within the
same timeout, what it will be asked to do (`setup`): one that greets and then cannot write, is still
loading or takes its time is not up.

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
from gateway.stores.reply_bounds import MOST_REPLY_BYTES, ReplyBounds
from gateway.stores.topology import locate
from gateway.tasks import spawn

#: A reply as hiredis reads it (bytes, int, list, None, a ReplyError for an error reply), or
#: StoreDown where none will come.
Done = Callable[[Any], None]

#: Pauses between attempts. Nobody waits for these, and a store that is back is to be found soon.
_FIRST_PAUSE_S: Final = 0.05
_LAST_PAUSE_S: Final = 0.25
#: A connection that lived this long was a good one. What ends sooner was let in by mistake, and
#: would cost a timeout again and again if each time the first pause were the next one.
_PROVEN_S: Final = 5.0
#: To find out which server is meant, and to connect to it: a handshake over some distance, or the
#: name of a host, may take longer than an answer does.
_LOCATE_S: Final = 2.0
_CONNECT_S: Final = 0.5
#: After so much at once, whoever else waits for the event loop has a turn. It would go on reading
#: what comes, up to 8 MB: 150,000 pushes took a second.
_TURN_BYTES: Final = 64 * 1024
#: hiredis reads a null reply as None, so something else has to stand for "not all here yet".
_NOT_YET: Final = object()


def command(*words: bytes | str | int) -> bytes:
    """One command as it goes over the wire."""
    encoded: bytes = hiredis.pack_command(words)  # type: ignore[arg-type] # stub: one word
    return encoded


def grace_s(late_s: float, timeout_s: float) -> float:
    """How long to wait on for what is overdue, when the timer that says so came `late_s` late.

    While this process was busy with other things, an answer may have come that it has not read yet,
    and the question may have left only now: that time is not the store's. A loop may run its timers
    before it looks at its sockets, so there is always one more turn.
    """
    return min(max(late_s, 0.001), timeout_s)


def pause_s(last_s: float, lived_s: float) -> float:
    """How long to wait after a connection that lived so long (0: an attempt failed).

    last_s: the pause before it, 0 where there was none
    """
    if lived_s >= _PROVEN_S:
        return _FIRST_PAUSE_S
    return min(max(2 * last_s, _FIRST_PAUSE_S), _LAST_PAUSE_S)


def _settle(future: asyncio.Future[Any], reply: Any) -> None:
    if not future.done():  # whoever waited may have been cancelled
        future.set_result(reply)


class Wire(asyncio.Protocol):
    """One connection. After it is lost, nothing is sent and every `send` is told so."""

    def __init__(
        self,
        timeout_s: Callable[[], float],
        on_push: Callable[[list[Any]], None] | None,
        on_lost: Callable[[StoreDown], None],
        most_reply_bytes: int = MOST_REPLY_BYTES,
    ) -> None:
        self._timeout_s = timeout_s
        self._on_push = on_push
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader(notEnoughData=_NOT_YET)
        self._bounds = ReplyBounds(most_reply_bytes)
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
            self._timer = self._loop.call_at(now_s + self._timeout_s(), self._check_oldest)
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
        if len(data) >= _TURN_BYTES:
            self._let_others()
        try:
            self._bounds.check(data)
            reader.feed(data)
            reply = reader.gets()
            while reply is not _NOT_YET and self._lost is None:
                if isinstance(reply, hiredis.PushNotification):
                    if self._on_push is not None:
                        self._tell(self._on_push, reply)
                elif self._waiting:
                    self._tell(self._waiting.popleft()[1], reply)
                else:
                    self.close("the store sent a reply that nothing was asked for")
                reply = reader.gets()
        except Exception as error:  # a map by lists is a TypeError, an array without end another
            self.close(f"the store sent what cannot be read: {error}")

    def _let_others(self) -> None:
        """Read on in the next turn of the loop."""
        if self._transport is not None:
            self._transport.pause_reading()
            self._loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        if self._lost is None and self._transport is not None:
            self._transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        if self._lost is None:
            self._fail(StoreDown(f"the connection to the store was lost: {error or 'closed'}"))

    def _check_oldest(self) -> None:
        """One timer serves all: it looks at the oldest, and comes back for the next oldest."""
        self._timer = None
        if not self._waiting:
            return
        oldest, timeout_s = self._waiting[0], self._timeout_s()
        late_s = self._loop.time() - oldest[0] - timeout_s
        if late_s < 0:
            self._timer = self._loop.call_at(oldest[0] + timeout_s, self._check_oldest)
        else:
            more_s = grace_s(late_s, timeout_s)
            self._timer = self._loop.call_later(more_s, self._check_again, oldest)

    def _check_again(self, overdue: tuple[float, Done]) -> None:
        self._timer = None
        if self._waiting and self._waiting[0] is overdue:
            self.close(f"the store did not answer within {self._timeout_s():g} s")
        else:
            self._check_oldest()

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

    timeout_s: a reply that takes longer costs the connection; a callable is asked each time
    on_push:   gets RESP3 pushes; given one, the connection speaks RESP3
    setup:     commands that a new connection must carry out before it counts as up
    most_reply_bytes: a longer reply costs the connection, before anything is allocated for it
    on_up, on_down: listeners, called at each change: when connected and greeted; when lost
    """

    def __init__(
        self,
        address: StoreAddress,
        *,
        timeout_s: float | Callable[[], float] = 1.0,
        on_push: Callable[[list[Any]], None] | None = None,
        setup: Sequence[bytes] = (),
        most_reply_bytes: int = MOST_REPLY_BYTES,
    ) -> None:
        self.address = address
        #: The server of the last connection, or attempt; the address itself before the first.
        self.server = address
        self.on_up: list[Callable[[], None]] = []
        self.on_down: list[Callable[[StoreDown], None]] = []
        #: Why the last attempt or connection ended; None while nothing has.
        self.last_error: StoreDown | None = None
        self._timeout_s = timeout_s if callable(timeout_s) else lambda: timeout_s
        self._on_push = on_push
        self._setup = setup
        self._most_reply_bytes = most_reply_bytes
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

    def give_up(self, reason: str) -> None:
        """Take the store for lost, as it cannot do what it is there for; begin to connect anew."""
        if self._wire is not None:
            self._wire.close(self._without_secret(reason))

    async def ask(self, *words: bytes | str | int) -> Any:
        """One command, awaited. Raises StoreDown, also where the store answers with an error."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.send(command(*words), partial(_settle, future))
        reply = await future
        if isinstance(reply, StoreDown):
            raise reply
        if isinstance(reply, hiredis.ReplyError):
            raise StoreDown(f"the store refuses {words[0]!s}: {reply}") from reply
        return reply

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        paused_s = 0.0
        while True:
            lost: asyncio.Future[StoreDown] = loop.create_future()
            wire: Wire | None = None
            lived_s = 0.0
            try:
                wire = await self._connect(lost)
                if not lost.done():
                    up_s = loop.time()
                    self._came_up(wire)
                    await lost
                    lived_s = loop.time() - up_s
            except StoreDown as error:
                self.last_error = error
            finally:
                if wire is not None:
                    wire.close("the connection was closed on purpose")
            paused_s = pause_s(paused_s, lived_s)
            await asyncio.sleep(paused_s)

    async def _connect(self, lost: asyncio.Future[StoreDown]) -> Wire:
        """A connection that has been greeted. Raises StoreDown."""

        def on_lost(error: StoreDown) -> None:
            self._went_down(error)
            if not lost.done():
                lost.set_result(error)

        wire = Wire(self._timeout_s, self._on_push, on_lost, self._most_reply_bytes)
        try:
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
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(_LOCATE_S):
            address = self.server = await locate(self.address)
        # Reading the machine's authorities takes milliseconds that the requests have not got.
        tls = await asyncio.to_thread(ssl_context, address) if address.tls else None
        async with asyncio.timeout(_CONNECT_S):
            if address.kind == "unix":
                await loop.create_unix_connection(lambda: wire, address.path)
            else:
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
            # ASK: it is the owner of a slot of a cluster that is on its way to another node.
            if isinstance(reply, hiredis.ReplyError) and not str(reply).startswith("ASK "):
                refusal = self._without_secret(str(reply))
                raise StoreDown(f"{self.address.label} refuses us: {refusal}")

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

    def _without_secret(self, words: str) -> str:
        """An error's words; some servers quote what they did not understand."""
        password = self.address.password
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
