"""Files that others can reach: what they put there is refused, without waiting for it."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway import files
from gateway.files import check_own, open_chosen, open_private, private_folder, read_regular

APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT
Give = Callable[[Path], None]


@pytest.fixture
def give_away(monkeypatch: pytest.MonkeyPatch) -> Give:
    """Make a path another user's: by its owner if permitted, else by faking our own user id."""

    def given(path: Path) -> None:
        if os.geteuid() == 0:
            os.chown(path, 12_345, -1, follow_symlinks=False)
        else:
            monkeypatch.setattr(files.os, "geteuid", lambda: 12_345)

    return given


def put_fifo(path: Path) -> None:
    os.mkfifo(path)


def put_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))


def put_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


# -- reading files ---------------------------------------------------------------------------------


def test_a_file_is_read_whole(tmp_path: Path) -> None:
    """A file is read also through links, as Kubernetes mounts them, and exactly up to the bound."""
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "link", 5) == b"12345"


def test_a_longer_file_is_refused(tmp_path: Path) -> None:
    """A file one byte above the bound is refused."""
    (tmp_path / "file").write_bytes(b"12345")
    with pytest.raises(OSError, match="it is longer than 4 bytes"):
        read_regular(tmp_path / "file", 4)


NO_FILES = [
    (put_fifo, "a named pipe"),
    (put_socket, "a socket"),
    (put_device, "a device"),
    (Path.mkdir, "a folder"),
]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A path short enough for a socket."""
    monkeypatch.chdir(tmp_path)
    return Path("x")


@pytest.mark.parametrize(("put", "kind"), NO_FILES)
def test_special_files_are_refused(place: Path, put: Callable[[Path], None], kind: str) -> None:
    """Reading a pipe would block, and a device has no end: both are refused."""
    put(place)
    with pytest.raises(OSError, match=f"it is {kind}, not a regular file"):
        read_regular(place, 10)


@pytest.mark.parametrize(("put", "kind"), [NO_FILES[0], NO_FILES[2]])
def test_special_files_that_replace_a_file_are_refused(
    place: Path, monkeypatch: pytest.MonkeyPatch, put: Callable[[Path], None], kind: str
) -> None:
    """The opened file is checked, not only the path before."""
    before = Path(__file__).stat()
    put(place)
    monkeypatch.setattr(files.os, "stat", lambda _: before)
    with pytest.raises(OSError, match=f"it is {kind}, not a regular file"):
        read_regular(place, 10)


# -- the gateway's own folder ----------------------------------------------------------------------


def test_a_private_folder_is_made(tmp_path: Path) -> None:
    """It and its parents are created for their owner alone; creating it again changes nothing."""
    path = tmp_path / "a" / "b"
    assert private_folder(path) == private_folder(path) == path
    assert stat.S_IMODE(path.stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o770, 0o777, 0o1777, 0o702])
def test_a_folder_that_others_write_is_refused(tmp_path: Path, mode: int) -> None:
    """The error has the remedy; the sticky bit does not prevent others from adding files."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(mode)
    with pytest.raises(OSError, match="chmod go-w") as refused:
        private_folder(tmp_path / "data")
    assert refused.value.filename == str(tmp_path / "data")
    (tmp_path / "data").chmod(mode & ~0o022)
    assert private_folder(tmp_path / "data")


def test_a_folder_that_others_read_is_accepted(tmp_path: Path) -> None:
    """Its files have their own modes."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o755)
    assert private_folder(tmp_path / "data")


def test_a_folder_of_another_user_is_refused(tmp_path: Path, give_away: Give) -> None:
    """Its owner could change everything in it."""
    (tmp_path / "data").mkdir()
    give_away(tmp_path / "data")
    with pytest.raises(OSError, match="data belongs to another user"):
        private_folder(tmp_path / "data")


def test_another_users_link_to_a_folder_is_refused(tmp_path: Path, give_away: Give) -> None:
    """Its owner could choose which of our folders is used."""
    (tmp_path / "own").mkdir(mode=0o700)
    (tmp_path / "data").symlink_to("own")
    assert private_folder(tmp_path / "data")
    give_away(tmp_path / "data")
    with pytest.raises(OSError, match="data belongs to another user"):
        private_folder(tmp_path / "data")


# -- the gateway's own file ------------------------------------------------------------------------


def test_a_private_file_is_made_and_found(tmp_path: Path) -> None:
    """It is created for its owner alone, whatever the umask is."""
    umask = os.umask(0)
    try:
        for text in (b"1", b"2"):
            with open(open_private(tmp_path / "x", APPEND), "ab") as file:
                file.write(text)
    finally:
        os.umask(umask)
    assert (tmp_path / "x").read_bytes() == b"12"
    assert stat.S_IMODE((tmp_path / "x").stat().st_mode) == 0o600


@pytest.mark.parametrize("put", [put_fifo, put_socket, put_device, Path.mkdir])
def test_nothing_else_is_taken_for_a_private_file(place: Path, put: Callable[[Path], None]) -> None:
    """Links and special files are refused, without waiting for a pipe."""
    put(place)
    with pytest.raises(OSError):
        open_private(place, os.O_RDWR | os.O_CREAT)


def test_a_file_that_others_reach_is_refused(tmp_path: Path, give_away: Give) -> None:
    """Its mode and its owner are checked; no descriptor stays open."""
    path = tmp_path / "x"
    path.touch(0o600)
    path.chmod(0o640)
    open_before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="chmod 600"):
        open_private(path, os.O_RDONLY)
    path.chmod(0o600)
    give_away(path)
    with pytest.raises(OSError, match="x belongs to another user"):
        open_private(path, os.O_RDONLY)
    assert len(os.listdir("/proc/self/fd")) == open_before


def test_a_missing_path_is_ones_own(tmp_path: Path) -> None:
    """A missing path passes the check."""
    check_own(tmp_path / "none")


# -- paths that the operator chose -----------------------------------------------------------------


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder in which every user may create files."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


def test_in_ones_own_folder_links_are_followed(tmp_path: Path) -> None:
    """A link there is followed."""
    (tmp_path / "link").symlink_to("file")
    os.close(open_chosen(tmp_path / "link", APPEND, 0o600))
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600


def test_a_name_without_a_folder_is_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with `--access-log access.log`."""
    monkeypatch.chdir(tmp_path)
    os.close(open_chosen("access.log", APPEND, 0o640))
    assert os.listdir(tmp_path) == ["access.log"]


def test_in_a_shared_folder_a_file_of_ones_own_is_used(shared: Path) -> None:
    """A file is created there, and used again."""
    for _ in "12":
        os.close(open_chosen(shared / "log", APPEND, 0o640))
    assert os.listdir(shared) == ["log"]


def test_in_a_shared_folder_no_link_is_followed(shared: Path, tmp_path: Path) -> None:
    """The link's target is unchanged."""
    (tmp_path / "own").write_bytes(b"precious")
    (shared / "log").symlink_to(tmp_path / "own")
    with pytest.raises(OSError, match="log is a link, which is not followed"):
        open_chosen(shared / "log", APPEND | os.O_TRUNC, 0o640)
    (shared / "log").unlink()
    os.link(tmp_path / "own", shared / "log")
    with pytest.raises(OSError, match="it has a second hard link"):
        open_chosen(shared / "log", APPEND, 0o640)
    assert (tmp_path / "own").read_bytes() == b"precious"


@pytest.mark.parametrize("put", [put_fifo, Path.touch])
def test_in_a_shared_folder_nothing_of_anothers_is_used(
    shared: Path, give_away: Give, put: Callable[[Path], None]
) -> None:
    """Others could read what is written, or make the gateway wait."""
    put(shared / "log")
    give_away(shared / "log")
    with pytest.raises(OSError, match="log belongs to another user"):
        open_chosen(shared / "log", APPEND, 0o640)
