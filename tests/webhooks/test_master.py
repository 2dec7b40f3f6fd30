"""The webhook key is given, or made once and kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.webhooks.master import FILE, VARIABLE, MasterFault, read_master

GIVEN = "k" * 32


def test_a_key_is_made_once(tmp_path: Path) -> None:
    """The second start reads what the first one made, which only the user can read."""
    first = read_master({}, tmp_path / "data")
    again = read_master({}, tmp_path / "data")
    assert first == again
    assert len(first.key) >= 32
    assert (tmp_path / "data" / FILE).stat().st_mode & 0o777 == 0o600
    assert first.key.decode() not in repr(first)


def test_a_key_is_given(tmp_path: Path) -> None:
    """By a variable, or by a file that one names; nothing is made then."""
    file = tmp_path / "key"
    file.write_text(f"{GIVEN}\n")
    found = read_master({VARIABLE: GIVEN}, tmp_path / "data")
    assert found.key == read_master({f"{VARIABLE}_FILE": str(file)}, tmp_path).key == GIVEN.encode()
    assert found.source == VARIABLE
    assert not (tmp_path / "data").exists()


def test_what_is_derived_differs() -> None:
    """Neither the mark, which the store has, nor the token tells the other."""
    found = read_master({VARIABLE: GIVEN}, Path())
    assert found.mark != found.token
    assert GIVEN not in found.mark + found.token


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({VARIABLE: "short"}, "GATEWAY_WEBHOOK_KEY: found 5 characters"),
        ({VARIABLE: "ä" * 40}, "printable ASCII"),
        ({f"{VARIABLE}_FILE": "/nowhere/key"}, "cannot be read"),
        ({VARIABLE: GIVEN, f"{VARIABLE}_FILE": "/nowhere"}, "set one of them"),
    ],
)
def test_a_key_is_refused(environ: dict[str, str], words: str, tmp_path: Path) -> None:
    """With one line that names what to change, and never with the key."""
    with pytest.raises(MasterFault, match=words) as caught:
        read_master(environ, tmp_path)
    assert "short" not in str(caught.value)


def test_a_folder_that_others_can_write(tmp_path: Path) -> None:
    """No key is made in it."""
    (tmp_path / "data").mkdir(mode=0o777)
    (tmp_path / "data").chmod(0o777)
    with pytest.raises(MasterFault, match="cannot keep the webhook key there"):
        read_master({}, tmp_path / "data")
