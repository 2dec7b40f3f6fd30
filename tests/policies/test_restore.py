"""Replacing all files of a policy folder."""

from __future__ import annotations

import os
from pathlib import Path
from unittest.mock import patch

import pytest

from gateway.domain.policy_files import hash_of
from gateway.policies.load import load, load_texts
from gateway.policies.restore import contents, keep_copy, replace_files
from tests.policies.folder import PLANS, faults_of, write


def test_the_texts_of_a_policy(tmp_path: Path) -> None:
    """A loaded policy has its texts exactly; the same policy is loaded from them, with its hash."""
    text = f"\ufeff# \u00e9\r\n{PLANS}"
    policy = load(write(tmp_path, plans=text))
    assert policy.source is not None
    assert policy.source.folder == str(tmp_path)
    texts = policy.source.texts
    assert texts is not None
    assert texts["plans.yaml"].encode() == (tmp_path / "plans.yaml").read_bytes()
    assert hash_of(texts) == policy.hash == hash_of(contents(tmp_path))
    again = load_texts(tmp_path, texts)
    assert (again.hash, again.routes, again.plans) == (policy.hash, policy.routes, policy.plans)


def test_texts_that_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a policy that is too large, or has a file with an unusual name, none are kept."""
    with monkeypatch.context() as patched:
        patched.setattr("gateway.policies.documents.MOST_TEXT_BYTES", 100)
        source = load(write(tmp_path)).source
        assert source is not None
        assert source.texts is None
    (tmp_path / "a\nb.yaml").write_text("")
    source = load(tmp_path).source
    assert source is not None
    assert source.texts is None


def test_files_are_replaced(tmp_path: Path) -> None:
    """New, changed and removed files; others and hidden ones stay, and equal ones are untouched."""
    write(tmp_path, more="{}")
    for name in (".hidden.yaml", "notes.txt"):
        (tmp_path / name).write_text("x")
    os.chmod(tmp_path / "plans.yaml", 0o640)
    before = (tmp_path / "routes.yaml").stat()
    texts = {name: content.decode() for name, content in contents(tmp_path).items()}
    wanted = {**texts, "plans.yaml": "# changed\r\n", "new.yaml": "{}"}
    del wanted["more.yaml"]
    replace_files(tmp_path, wanted)
    assert contents(tmp_path) == {name: text.encode() for name, text in wanted.items()}
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix != ".yaml") == [
        "notes.txt"
    ]
    assert (tmp_path / ".hidden.yaml").exists()
    assert (tmp_path / "plans.yaml").stat().st_mode & 0o777 == 0o640
    after = (tmp_path / "routes.yaml").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    """The file that it names stays as it is."""
    folder = tmp_path / "policies"
    folder.mkdir()
    other = tmp_path / "plans.yaml"
    other.write_text("outside")
    (folder / "plans.yaml").symlink_to(other)
    replace_files(folder, {"plans.yaml": "inside"})
    assert other.read_text() == "outside"
    assert (folder / "plans.yaml").read_text() == "inside"
    assert not (folder / "plans.yaml").is_symlink()


@pytest.mark.parametrize("name", ["../a.yaml", "/a.yaml", "a/b.yaml", ".a.yaml", "a.txt", ""])
def test_only_plain_names(tmp_path: Path, name: str) -> None:
    """No file is written beyond the folder, nor one that the gateway would not read."""
    folder = tmp_path / "policies"
    folder.mkdir()
    with pytest.raises(ValueError, match="not the names"):
        replace_files(folder, {"a.yaml": "x", name: "x"})
    assert list(tmp_path.rglob("*")) == [folder]


def test_a_failure_before_the_first_replacement(tmp_path: Path) -> None:
    """Nothing is changed, and no file is left over."""
    write(tmp_path)
    before = contents(tmp_path)
    calls = 0

    def fails(_descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError(28, "No space left on device")

    with (
        patch("gateway.policies.restore.os.fsync", fails),
        pytest.raises(OSError, match="No space"),
    ):
        replace_files(tmp_path, {"a.yaml": "x", "plans.yaml": "x"})
    assert contents(tmp_path) == before
    assert len(list(tmp_path.iterdir())) == len(before)


def test_a_copy(tmp_path: Path) -> None:
    """Files are copied into a hidden folder, which is no part of the policy."""
    write(tmp_path)
    copy = keep_copy(tmp_path, contents(tmp_path))
    assert contents(copy) == contents(tmp_path)
    assert copy.name.startswith(".before-")
    assert faults_of(tmp_path) == []
