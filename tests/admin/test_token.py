"""Where the admin token comes from, and what is refused as one."""

from __future__ import annotations

import os
import secrets
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.admin.token import AdminToken, TokenFault, read_token
from gateway.domain import key_format

GIVEN = "correct-horse-battery"


def test_one_is_made_at_the_first_start(tmp_path: Path) -> None:
    """In a file that only its owner can read, in its own folder; later starts read it."""
    made = read_token({}, tmp_path / "data")
    path = tmp_path / "data" / "admin-token"
    assert made.source == str(path)
    assert path.read_text() == f"{made.text}\n"
    assert len(made.text) >= 43
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert made.origin == "made"
    assert read_token({}, tmp_path / "data") == replace(made, origin="kept")
    assert os.listdir(path.parent) == ["admin-token"]


def test_starts_at_one_time_agree(tmp_path: Path) -> None:
    """The first one generates it; none reads an incomplete one."""
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: read_token({}, tmp_path), range(16)))
    assert len({token.text for token in found}) == 1
    assert [token.origin for token in found].count("made") == 1
    assert os.listdir(tmp_path) == ["admin-token"]


def test_one_that_came_first_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if it did not exist yet when this start looked."""
    first = read_token({}, tmp_path)
    monkeypatch.setattr(os.path, "lexists", lambda _: False)
    assert read_token({}, tmp_path) == replace(first, origin="kept")
    assert os.listdir(tmp_path) == ["admin-token"]


def test_the_environment_takes_precedence(tmp_path: Path) -> None:
    """Then none is generated. An empty variable counts as not set."""
    token = read_token({"GATEWAY_ADMIN_TOKEN": GIVEN}, tmp_path)
    assert (token.text, token.source) == (GIVEN, "GATEWAY_ADMIN_TOKEN")
    assert os.listdir(tmp_path) == []
    assert read_token({"GATEWAY_ADMIN_TOKEN": ""}, tmp_path).source.endswith("admin-token")


def test_a_file_may_be_named(tmp_path: Path) -> None:
    """Like a secret mounted into a container: with any permissions, and an end of line."""
    file = tmp_path / "secret"
    file.write_text(f"{GIVEN}\n")
    token = read_token({"GATEWAY_ADMIN_TOKEN_FILE": str(file)}, tmp_path / "data")
    assert (token.text, token.source) == (GIVEN, str(file))


def test_a_token_is_not_printed() -> None:
    """Not even if the value is logged by mistake."""
    assert GIVEN not in repr(read_token({"GATEWAY_ADMIN_TOKEN": GIVEN}, Path()))


@pytest.mark.parametrize(
    ("text", "is_weak"),
    [
        ("1234567890123456", True),
        ("correct-horse-battery", True),
        ("passwordpasswordpassword", True),
        ("correct-horse-battery-staple", False),
        ("0f3c9a7be1d24586" * 2, False),
        ("Toq6cWIBYHi_zvsVN0yyFr1QYS7Rik8U5XOMoptMWf0", False),
    ],
)
def test_weak_tokens_are_recognised(text: str, is_weak: bool) -> None:
    """A token is weak if it is shorter than four words, or repeats a few characters."""
    assert AdminToken(text, "GATEWAY_ADMIN_TOKEN").is_weak is is_weak


def test_no_digest_is_made_of_a_given_token(tmp_path: Path) -> None:
    """Its digest would allow guesses; that of a generated one does not."""
    given = read_token({"GATEWAY_ADMIN_TOKEN": GIVEN}, tmp_path)
    with pytest.raises(AssertionError):
        _ = given.digest
    made, other = read_token({}, tmp_path / "one"), read_token({}, tmp_path / "two")
    assert made.digest != other.digest
    assert made.text not in made.digest


KEY = key_format.mint("production", secrets.randbelow)[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x" * 15, "found 15 characters, expected 16 or more"),
        ("x" * 8 + " " + "x" * 8, "expected printable ASCII without spaces"),
        ("pässwörter-sind-lang", "expected printable ASCII without spaces"),
        (KEY, "found an API key"),
    ],
    ids=["short", "spaced", "not-ascii", "api-key"],
)
def test_an_invalid_token_is_reported(tmp_path: Path, text: str, words: str) -> None:
    """In one line, which says where it came from and never contains it."""
    places = [
        {"GATEWAY_ADMIN_TOKEN": text},
        {"GATEWAY_ADMIN_TOKEN_FILE": str(tmp_path / "given")},
        *([{}] if text.isascii() else ()),  # a kept one is read as ASCII, so as another text
    ]
    for environ in places:
        for name in ("given", "admin-token"):
            (tmp_path / name).write_text(text)
            (tmp_path / name).chmod(0o600)
        with pytest.raises(TokenFault, match=words) as raised:
            read_token(environ, tmp_path)
        assert text not in str(raised.value)
        assert "\n" not in str(raised.value)


def test_an_empty_file_is_no_token(tmp_path: Path) -> None:
    """A secret mounted without content is not silently replaced by a generated token."""
    (tmp_path / "secret").write_text("\n")
    with pytest.raises(TokenFault, match="found 0 characters"):
        read_token({"GATEWAY_ADMIN_TOKEN_FILE": str(tmp_path / "secret")}, tmp_path)


def test_two_tokens_are_refused(tmp_path: Path) -> None:
    """It would be unknown which one applies."""
    environ = {"GATEWAY_ADMIN_TOKEN": GIVEN, "GATEWAY_ADMIN_TOKEN_FILE": "x"}
    with pytest.raises(TokenFault, match="set one of them"):
        read_token(environ, tmp_path)


def test_others_must_not_read_it(tmp_path: Path) -> None:
    """A file that others can read is no secret."""
    read_token({}, tmp_path)
    (tmp_path / "admin-token").chmod(0o640)
    with pytest.raises(TokenFault, match="chmod 600"):
        read_token({}, tmp_path)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """Others may have created it to have another file read."""
    (tmp_path / "other").write_text(GIVEN)
    (tmp_path / "admin-token").symlink_to(tmp_path / "other")
    with pytest.raises(TokenFault, match="cannot keep the admin token there"):
        read_token({}, tmp_path)


def test_a_folder_that_others_write_keeps_no_token(tmp_path: Path) -> None:
    """Others could replace the token."""
    made = read_token({}, tmp_path / "data")
    (tmp_path / "data").chmod(0o777)
    with pytest.raises(TokenFault, match="chmod go-w") as raised:
        read_token({}, tmp_path / "data")
    assert made.text not in str(raised.value)


def test_a_folder_in_its_place_is_refused(tmp_path: Path) -> None:
    """A folder at the path of the file is refused."""
    (tmp_path / "admin-token").mkdir(mode=0o700)
    with pytest.raises(TokenFault, match="admin-token"):
        read_token({}, tmp_path)


def test_a_data_folder_that_cannot_be_used_is_reported(tmp_path: Path) -> None:
    """A read-only container gets its token from the environment."""
    (tmp_path / "data").write_text("a file where the folder should be")
    with pytest.raises(TokenFault, match="set GATEWAY_ADMIN_TOKEN or GATEWAY_ADMIN_TOKEN_FILE"):
        read_token({}, tmp_path / "data")
