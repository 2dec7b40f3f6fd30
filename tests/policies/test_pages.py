"""Files of a policy folder that are sent to clients: which are read, and which are faults."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.policies.load import load
from gateway.policies.pages import MOST_BYTES, type_of
from tests.policies.folder import complaints, write


def with_page(folder: Path, path: str) -> Path:
    routes = f"routes: {{r: {{match: GET /b, respond: {{status: 200, file: {path!r}}}}}}}\n"
    return write(folder, routes=routes)


def test_a_file_is_read(tmp_path: Path) -> None:
    """As it is; links within the folder are followed, as mounted files are links."""
    (tmp_path / "..data").mkdir()
    (tmp_path / "..data" / "a.html").write_bytes(b"\xff<p>")
    (tmp_path / "pages").symlink_to("..data")
    respond = load(with_page(tmp_path, "pages/a.html")).routes["r"].respond
    assert respond is not None
    assert (respond.body, respond.content_type) == (b"\xff<p>", "text/html; charset=utf-8")


def test_a_changed_file_is_read_with_the_next_load(tmp_path: Path) -> None:
    """The policy that is loaded keeps what it read."""
    page = tmp_path / "a.txt"
    page.write_text("old")
    folder = with_page(tmp_path, "a.txt")
    old = load(folder)
    page.write_text("new")
    bodies = [one.routes["r"].respond for one in (old, load(folder))]
    assert [body.body for body in bodies if body is not None] == [b"old", b"new"]


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("../out.txt", "found '../out.txt', expected a file within the policy folder"),
        ("/etc/passwd", "found '/etc/passwd', expected a file within the policy folder"),
        ("link.txt", "found 'link.txt', expected a file within the policy folder"),
        ("missing.txt", "found 'missing.txt' (No such file or directory), expected a file that"),
        ("folder", "found 'folder' ("),
        ("pipe", "found 'pipe' ("),
        ("large.txt", f"found 'large.txt' (it is longer than {MOST_BYTES} bytes), expected a file"),
        ("", "found '' ("),
    ],
)
def test_faults(tmp_path: Path, path: str, fault: str) -> None:
    """No file outside of the folder can be published, and none blocks the process."""
    folder = tmp_path / "policies"
    folder.mkdir()
    (tmp_path / "out.txt").touch()
    (folder / "link.txt").symlink_to(tmp_path / "out.txt")
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe")
    (folder / "large.txt").write_bytes(b"x" * (MOST_BYTES + 1))
    (found,) = complaints(with_page(folder, path))
    assert found.startswith(f"routes.yaml:1: routes.r.respond.file: {fault}")


def test_types() -> None:
    """By the ending, in any letter case."""
    assert type_of("a/b.JSON") == "application/json"
    assert type_of("a.bin") is None
