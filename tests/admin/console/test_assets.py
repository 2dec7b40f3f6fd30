"""Styles, scripts and icons."""

from __future__ import annotations

import re
from hashlib import sha256
from importlib.resources import files

import pytest

from gateway.admin.console import assets
from tests.kit.console import Console

STATIC = files("gateway.admin.console").joinpath("static")
TEMPLATES = files("gateway.admin.console").joinpath("templates")


def test_vendored_files_match_their_list() -> None:
    """VENDORED.md has each file's version, licence and digest."""
    rows = re.findall(
        r"^\| `([^`]+)` \| (.+) \| ([\d.]+) \| \w+, `([^`]+)` \| ([0-9a-f]{64}) \|$",
        STATIC.joinpath("VENDORED.md").read_text(),
        re.MULTILINE,
    )
    assert [row[0] for row in rows] == ["pico.min.css"]
    for name, _, version, licence, digest in rows:
        content = STATIC.joinpath(name).read_bytes()
        assert sha256(content).hexdigest() == digest
        assert f"v{version}" in content[:200].decode()
        assert "Permission is hereby granted" in STATIC.joinpath(licence).read_text()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("console.css", "text/css"),
        ("console.js", "text/javascript"),
        ("icon.svg", "image/svg+xml"),
    ],
)
async def test_a_file_is_cached_for_a_year(console: Console, name: str, kind: str) -> None:
    """Files need no session, have their type, and are cached for a year: the URL has a digest."""
    answer = await console.browser().get(assets.address_of(name))
    assert answer.status == 200
    assert answer.text == STATIC.joinpath(name).read_text()
    assert answer.headers["Content-Type"].startswith(kind)
    assert answer.headers["Cache-Control"] == "public, immutable, max-age=31536000"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_a_file_without_its_digest_is_cached_for_an_hour(console: Console) -> None:
    """The style sheet requests files without a digest, which must not be cached forever."""
    answer = await console.browser().get("/console/static/chevron.svg")
    assert answer.headers["Cache-Control"] == "public, max-age=3600"


@pytest.mark.parametrize("name", ["VENDORED.md", "nothing.css", "routes.py"])
async def test_nothing_else_is_served(console: Console, name: str) -> None:
    """Only styles, scripts and icons of the folder are served."""
    assert (await console.browser().get(f"/console/static/{name}")).status == 404


def test_nothing_is_inline_and_nothing_comes_from_elsewhere() -> None:
    """Templates have nothing inline; neither they nor the style sheet load from other sites."""
    for file in TEMPLATES.iterdir():
        text = file.read_text()
        assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:|https?://|\|\s*safe", text), (
            file
        )
        assert not re.search(r"<script(?! src=)", text), file
    for name in ("console.css", "console.js"):
        assert not re.search(r"https?://|url\(\"?data:|@import", STATIC.joinpath(name).read_text())
