"""A pipelined connection to Redis, for the commands of the hot path.

Commands are sent at once, and replies are matched to them by their order only. So where the order
is uncertain (a reply is late, or cannot be read), the connection is closed, and each waiting
callback gets `StoreDown`, once. `Pipeline` is one connection; `StoreConnection` reconnects, and is
what other modules use.

It is also a circuit breaker. While there is no connection every `send` fails with StoreDown at
once, so an outage costs one timeout for the requests in progress when it begins, and nothing for
later ones. Reconnecting continues in the background, and a connection counts as up only when the
server has executed, within the same timeout, the commands of `setup`: a server that accepts
connections but cannot write, is still loading or is slow is not up.

Redis may close connections that nobody uses (its setting `timeout`, in seconds). So a PING is sent
twice a second where nothing waits for a reply. It has no timeout, as nobody waits for it either: a
server that pauses for longer than a reply may take is no outage if it is not asked meanwhile.

Server pushes (RESP3) are not replies; they go to a separate listener.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any, Final, cast

import hiredis

from gateway.domain.ports import StoreDown
from gateway.stores.redis.address import StoreAddress, read_password, ssl_context
from gateway.stores.redis.reply_bounds import MOST_REPLY_BYTES, ReplyBounds
from gateway.stores.redis.topology import locate
from gateway.tasks import end, spawn

#: Gets a reply as hiredis reads it (bytes, int, list, None, a ReplyError for an error reply), or
#: StoreDown where there is none.
Done = Callable[[Any], None]

#: Pauses between attempts: short, so that a store that has recovered is noticed soon.
_FIRST_PAUSE_S: Final = 0.05
_LAST_PAUSE_S: Final = 0.25
#: After a connection that was up for this long, the first pause is used again. After a shorter one
#: the pauses grow, as each such connection may cost its commands a timeout.
_PROVEN_S: Final = 5.0
#: Timeouts of finding the server, and of connecting to it: a handshake over a long distance, or the
#: look-up of a host name, may take longer than a reply.
_LOCATE_S: Final = 2.0
_CONNECT_S: Final = 0.5
#: After this much at once, reading pauses for one turn of the event loop. Otherwise up to 8 MB are
#: read at a time: 150,000 pushes took a second.
_TURN_BYTES: Final = 64 * 1024
#: Commands whose name has two words, among those that connections begin with.
_CONTAINERS: Final = (b"CLIENT", b"SCRIPT")
#: How often a PING is sent, and how many times in a row it may be due while one is not answered.
_BEAT_S: Final = 0.5
_MOST_MISSED: Final = 4
#: When a PING was sent: it is never late.
_NEVER_LATE: Final = inf
#: "Not complete yet". Not None, because hiredis reads a null reply as None.
_NOT_YET: Final = object()


def command(*arguments: bytes | str | int) -> bytes:
    """One command, encoded."""
    encoded: bytes = hiredis.pack_command(arguments)  # type: ignore[arg-type] # stub: one word
    return encoded


_PING: Final = command("PING")


def grace_s(late_s: float, timeout_s: float) -> float:
    """How much longer to wait for an overdue reply, when the timer that found it ran `late_s` late.

    While this process was busy, the reply may have arrived without being read, and the command may
    have been sent late: that delay is not the store's. An event loop may run its timers before it
    reads its sockets, so the grace period is at least one more turn of the loop.
    """
    return min(max(late_s, 0.001), timeout_s)


def pause_s(last_s: float, lived_s: float) -> float:
    """The pause after a connection that was up for `lived_s` (0: an attempt failed).

    last_s: the pause before that connection, 0 where there was none
    """
    if lived_s >= _PROVEN_S:
        return _FIRST_PAUSE_S
    return min(max(2 * last_s, _FIRST_PAUSE_S), _LAST_PAUSE_S)


def set_result(future: asyncio.Future[Any], reply: Any) -> None:
    """A callback for one reply, which is awaited."""
    if not future.done():  # the waiter may have been cancelled
        future.set_result(reply)


def code_of(error: hiredis.ReplyError) -> str:
    """The word that an error of the server begins with: "NOPERM"."""
    return str(error).partition(" ")[0]


def checked(reply: Any, verb: object) -> Any:
    """The reply to a command. Raises StoreDown, also where the store answered with an error."""
    if isinstance(reply, StoreDown):
        raise reply
    if isinstance(reply, hiredis.ReplyError):
        raise StoreDown(f"the store refuses {verb!s}: {reply}") from reply
    return reply


class Pipeline(asyncio.Protocol):
    """One connection. After it is lost, every `send` fails."""

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
        self._missed = 0
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._lost: StoreDown | None = None

    def send(self, encoded: bytes, done: Done) -> None:
        """Send one command; `done` is called with its reply, or StoreDown."""
        if self._transport is None or self._lost is not None:
            self._call(done, self._lost or StoreDown("the store is not connected"))
            return
        now_s = self._loop.time()
        self._waiting.append((now_s, done))
        if self._timer is None:
            self._timer = self._loop.call_at(now_s + self._timeout_s(), self._check_oldest)
        self._transport.write(encoded)

    def keep_alive(self) -> None:
        """Send a PING, if nothing waits for a reply; close if none was answered for seconds."""
        if not self._waiting:
            self._missed = 0
            if self._transport is not None and self._lost is None:
                self._waiting.append((_NEVER_LATE, _ignore))
                self._transport.write(_PING)
        elif self._waiting[0][0] == _NEVER_LATE:
            self._missed += 1
            if self._missed == _MOST_MISSED:
                self.close(f"the store did not answer within {_MOST_MISSED * _BEAT_S:g} s")

    def close(self, reason: str) -> None:
        """Close the connection; waiting callbacks get StoreDown at once."""
        if self._lost is None:
            self._fail(StoreDown(reason))
            if self._transport is not None:
                self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._lost is not None:  # closed while it was being made
            transport.close()

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        if len(data) >= _TURN_BYTES:
            self._yield_to_others()
        try:
            self._bounds.check(data)
            reader.feed(data)
            reply = reader.gets()
            while reply is not _NOT_YET and self._lost is None:
                if isinstance(reply, hiredis.PushNotification):
                    if self._on_push is not None:
                        self._call(self._on_push, reply)
                elif self._waiting:
                    self._call(self._waiting.popleft()[1], reply)
                else:
                    self.close("the store sent a reply to no command")
                reply = reader.gets()
        except Exception as error:  # hiredis raises a TypeError for a map with lists as keys
            self.close(f"the store sent a reply that cannot be read: {error}")

    def _yield_to_others(self) -> None:
        """Resume reading in the next turn of the loop."""
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
        """Check the oldest command, then the next one: one timer for all commands."""
        self._timer = None
        oldest, timeout_s = self._oldest(), self._timeout_s()
        if oldest is None:
            return
        late_s = self._loop.time() - oldest[0] - timeout_s
        if late_s < 0:
            self._timer = self._loop.call_at(oldest[0] + timeout_s, self._check_oldest)
        else:
            more_s = grace_s(late_s, timeout_s)
            self._timer = self._loop.call_later(more_s, self._check_again, oldest)

    def _oldest(self) -> tuple[float, Done] | None:
        """The first command that somebody waits for: the first one, or that after a PING."""
        return next((sent for sent in self._waiting if sent[0] != _NEVER_LATE), None)

    def _check_again(self, overdue: tuple[float, Done]) -> None:
        self._timer = None
        if self._oldest() is overdue:
            self.close(f"the store did not answer within {self._timeout_s():g} s")
        else:
            self._check_oldest()

    def _fail(self, error: StoreDown) -> None:
        self._lost = error
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting:
            self._call(self._waiting.popleft()[1], error)
        self._on_lost(error)

    def _call(self, listener: Done, value: Any) -> None:
        """Call a listener; one that fails does not affect the others."""
        try:
            listener(value)
        except Exception as error:
            report = {"message": "a callback for the store's replies failed", "exception": error}
            self._loop.call_exception_handler(report)


class StoreConnection:
    """Keeps a connection to one Redis up: connects, logs in, and reconnects when it is lost.

    timeout_s: of a reply, after which the connection is closed; a callable is called each time
    on_push:   gets RESP3 pushes while the connection is up; with it, the connection speaks RESP3
    setup:     commands that the server must execute before a new connection counts as up
    accepted:  codes of errors with which it counts as up all the same
    most_reply_bytes: at a longer reply the connection is closed, before memory is allocated for it
    on_up, on_down: listeners, called when the connection is up, and when it is lost
    on_failed: listeners, called with the reason when an attempt to connect has failed
    """

    def __init__(
        self,
        address: StoreAddress,
        *,
        timeout_s: float | Callable[[], float] = 1.0,
        on_push: Callable[[list[Any]], None] | None = None,
        setup: Sequence[bytes] = (),
        accepted: Sequence[str] = (),
        most_reply_bytes: int = MOST_REPLY_BYTES,
    ) -> None:
        self.address = address
        #: The server of the last connection, or attempt; the address itself before the first.
        self.server = address
        self.on_up: list[Callable[[], None]] = []
        self.on_down: list[Callable[[StoreDown], None]] = []
        self.on_failed: list[Callable[[StoreDown], None]] = []
        #: Why the last attempt or connection ended; None: none has yet.
        self.last_error: StoreDown | None = None
        self._timeout_s = timeout_s if callable(timeout_s) else lambda: timeout_s
        self._on_push = on_push
        self._setup = setup
        # ASK is no error here: a slot that the server owns is moving to another node.
        self._accepted = frozenset(("ASK", *accepted))
        self._most_reply_bytes = most_reply_bytes
        self._pipeline: Pipeline | None = None
        self._task: asyncio.Task[None] | None = None
        self._beat: asyncio.TimerHandle | None = None
        self._up = asyncio.Event()

    @property
    def is_up(self) -> bool:
        return self._pipeline is not None

    def start(self) -> None:
        """Connect, and reconnect until `stop`. Needs a running loop."""
        if self._task is None:
            self._task = spawn(self._run(), "store link")

    async def stop(self) -> None:
        """Disconnect, and do not reconnect; harmless when repeated."""
        task, self._task = self._task, None
        await end(task)

    async def wait_up(self) -> None:
        """Return once connected."""
        await self._up.wait()

    def send(self, encoded: bytes, done: Done) -> None:
        """Send one command (see `command`); `done` is called once, with the reply or StoreDown."""
        if self._pipeline is None:
            done(StoreDown(str(self.last_error or "the store is not connected")))
        else:
            self._pipeline.send(encoded, done)

    def reconnect(self, reason: str) -> None:
        """Close the connection, as the store cannot do what it is needed for; open another."""
        if self._pipeline is not None:
            self._pipeline.close(self._without_secret(reason))

    async def ask(self, *arguments: bytes | str | int) -> Any:
        """One command, awaited. Raises StoreDown, also where the store answers with an error."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.send(command(*arguments), partial(set_result, future))
        return checked(await future, arguments[0])

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        paused_s = 0.0
        while True:
            lost: asyncio.Future[StoreDown] = loop.create_future()
            pipeline: Pipeline | None = None
            lived_s = 0.0
            try:
                pipeline = await self._connect(lost)
                if not lost.done():
                    up_s = loop.time()
                    self._connected(pipeline)
                    await lost
                    lived_s = loop.time() - up_s
            except StoreDown as error:
                self.last_error = error
                for listener in self.on_failed:
                    listener(error)
            finally:
                if pipeline is not None:
                    pipeline.close("the gateway closed the connection")
            paused_s = pause_s(paused_s, lived_s)
            await asyncio.sleep(paused_s)

    async def _connect(self, lost: asyncio.Future[StoreDown]) -> Pipeline:
        """A connection that has been set up. Raises StoreDown."""

        def on_lost(error: StoreDown) -> None:
            self._lost_connection(error)
            if not lost.done():
                lost.set_result(error)

        pipeline = Pipeline(self._timeout_s, self._pushed, on_lost, self._most_reply_bytes)
        try:
            await self._open(pipeline)
            await self._greet(pipeline)
        except OSError as error:  # TimeoutError and ssl.SSLError among them
            pipeline.close("the connection could not be made")
            reason = str(error) or "it did not answer in time"
            raise StoreDown(f"cannot connect to {self.address.label}: {reason}") from error
        except BaseException:
            pipeline.close("the connection could not be made")
            raise
        return pipeline

    async def _open(self, pipeline: Pipeline) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(_LOCATE_S):
            address = self.server = await locate(self.address)
        tls = None
        if address.tls or address.password_file:
            # Reading the machine's authorities takes milliseconds, which would delay requests.
            tls, password = await asyncio.to_thread(_read_files, address)
            self.server = replace(address, password=password)
        async with asyncio.timeout(_CONNECT_S):
            if address.kind == "unix":
                await loop.create_unix_connection(lambda: pipeline, address.path)
            else:
                await loop.create_connection(lambda: pipeline, address.host, address.port, ssl=tls)

    async def _greet(self, pipeline: Pipeline) -> None:
        """Log in and execute `setup`, sent together. Raises StoreDown at the first error."""
        loop = asyncio.get_running_loop()
        replies: list[asyncio.Future[Any]] = []
        commands = (*self._greeting(), *self._setup)
        for encoded in commands:
            replies.append(loop.create_future())
            pipeline.send(encoded, partial(set_result, replies[-1]))
        for encoded, reply in zip(commands, await asyncio.gather(*replies), strict=True):
            if isinstance(reply, StoreDown):
                raise reply
            if isinstance(reply, hiredis.ReplyError) and code_of(reply) not in self._accepted:
                refusal = self._without_secret(str(reply))
                raise StoreDown(
                    f"{self.server.label} refuses the connection at {_verb(encoded)}: {refusal}"
                )

    def _greeting(self) -> list[bytes]:
        address = self.server
        greeting: list[bytes] = []
        login = (
            () if address.password is None else (address.username or "default", address.password)
        )
        if self._on_push is not None:
            greeting.append(command("HELLO", 3, *(("AUTH", *login) if login else ())))
        elif address.password is not None:
            # Without a user, this also works with servers older than ACLs.
            greeting.append(command("AUTH", *(login if address.username else (address.password,))))
        if address.db:
            greeting.append(command("SELECT", address.db))
        # A server that is still loading its data accepts AUTH, and refuses everything else.
        greeting.append(command("PING"))
        return greeting

    def _without_secret(self, arguments: str) -> str:
        """An error's text without the password: some servers quote commands that they reject."""
        password = self.server.password
        return arguments.replace(password, "***") if password else arguments

    def _pushed(self, message: list[Any]) -> None:
        """Pass a push on, but none before the connection is up.

        A server that loads its data, or a replica that copies them, pushes every name as changed.
        Its listener takes all as changed anyway when the connection is up.
        """
        if self._on_push is not None and self._pipeline is not None:
            self._on_push(message)

    def _connected(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._beat = asyncio.get_running_loop().call_later(_BEAT_S, self._keep_alive)
        self._up.set()
        for listener in self.on_up:
            listener()

    def _keep_alive(self) -> None:
        if self._pipeline is not None:
            self._beat = asyncio.get_running_loop().call_later(_BEAT_S, self._keep_alive)
            self._pipeline.keep_alive()

    def _lost_connection(self, error: StoreDown) -> None:
        self.last_error = error
        if self._beat is not None:
            self._beat.cancel()
            self._beat = None
        if self._pipeline is not None:
            self._pipeline = None
            self._up.clear()
            for listener in self.on_down:
                listener(error)


def _read_files(address: StoreAddress) -> tuple[ssl.SSLContext | None, str | None]:
    """What the files of an address have now: for TLS, and the password. Raises OSError."""
    return ssl_context(address), read_password(address)


def _verb(encoded: bytes) -> str:
    """What an encoded command is called: "AUTH", "CLIENT TRACKING". It contains no argument."""
    first, second = (encoded.split(b"\r\n")[2::2] + [b""])[:2]
    return (b"%b %b" % (first, second) if first in _CONTAINERS else first).decode("ascii")


def _ignore(_: object) -> None: ...
