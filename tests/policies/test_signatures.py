"""`signatures` and `verify_signature` of a route: what is read, and each fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.domain.webhooks.signatures import Names, Verification
from gateway.policies.load import load
from tests.policies.folder import complaints, write

SECRET = "s" * 16
ROUTES = """
routes:
  hooks: {{match: "POST /hooks/**", upstream: api, auth: none, verify_signature: {0}{1}}}
"""


def folder_with(
    folder: Path, signatures: str, secrets: str = SECRET, name: str = "partner", more: str = ""
) -> Path:
    (folder / "secrets.txt").write_text(secrets)
    return write(
        folder, routes=ROUTES.format(name, more), gateway=f"signatures: {{partner: {signatures}}}\n"
    )


def read(folder: Path, signatures: str, secrets: str = SECRET) -> Verification:
    found = load(folder_with(folder, signatures, secrets)).routes["hooks"].verification
    assert found is not None
    return found


def test_defaults(tmp_path: Path) -> None:
    """The service's headers and Standard Webhooks, in 300 s; the body has its bound."""
    folder = folder_with(tmp_path, "{secrets: secrets.txt}")
    route = load(folder).routes["hooks"]
    assert route.verification == Verification("partner", (SECRET,))
    assert route.body_bytes == 1024 * 1024
    assert {"x-service-signature", "webhook-id"} <= load(folder).counted_headers
    assert str(folder / "secrets.txt") in load(folder).used


def test_all_settings(tmp_path: Path) -> None:
    """Several secrets, forms, another brand, tolerance and bound."""
    given = (
        "{secrets: secrets.txt, forms: [body-only], brand: acme, tolerance: 60s, max_body: 1KiB}"
    )
    found = read(tmp_path, given, f"\ufeff{SECRET}\n\n{SECRET}2\n")
    assert found == Verification(
        *("partner", (SECRET, SECRET + "2"), ("body-only",)),
        *(Names("x-acme-timestamp", "x-acme-signature"), 60.0, 1024),
    )
    assert found.headers == ("x-acme-timestamp", "x-acme-signature")


def test_the_smaller_bound_holds(tmp_path: Path) -> None:
    """A route may have a smaller one than its signature."""
    folder = folder_with(tmp_path, "{secrets: secrets.txt}", more=", body: 10KiB")
    assert load(folder).routes["hooks"].body_bytes == 10 * 1024


@pytest.mark.parametrize(
    ("signatures", "words"),
    [
        ("{}", "secrets"),
        ("{secrets: none.txt}", "a file that can be read"),
        ("{secrets: secrets.txt, forms: []}", "at least one form"),
        ("{secrets: secrets.txt, forms: [sha1]}", "body-only"),
        ("{secrets: secrets.txt, brand: X-Acme}", "a word of a-z"),
        ("{secrets: secrets.txt, tolerance: 0s}", "above 0s"),
        ("{secrets: secrets.txt, max_body: 5MiB}", "up to 4MiB"),
        ("{secrets: secrets.txt, key: a}", "key"),
    ],
)
def test_faults(tmp_path: Path, signatures: str, words: str) -> None:
    """Each says what was expected."""
    told = complaints(folder_with(tmp_path, signatures))
    assert any(words in each for each in told), told


@pytest.mark.parametrize(
    ("secrets", "words"),
    [
        ("", "0 lines"),
        ("short", "whose line 1 has 5 characters"),
        (f"{SECRET}\n{SECRET} x", "whose line 2 has other characters"),
        (f"{SECRET}\n" * 5, "5 lines"),
    ],
)
def test_faults_of_secrets(tmp_path: Path, secrets: str, words: str) -> None:
    """None of them shows a secret."""
    (told,) = complaints(folder_with(tmp_path, "{secrets: secrets.txt}", secrets))
    assert words in told
    assert SECRET not in told


@pytest.mark.parametrize(
    ("name", "more", "words"),
    [
        ("other", "", "an entry of signatures (partner)"),
        ("partner", ", mcp: {}", "no verify_signature on a route with mcp"),
    ],
)
def test_faults_of_routes(tmp_path: Path, name: str, more: str, words: str) -> None:
    """A name that is not defined, and a route whose bodies are read otherwise."""
    told = complaints(folder_with(tmp_path, "{secrets: secrets.txt}", name=name, more=more))
    assert any(words in each for each in told), told
