"""Single requests that check that a peer answers, and does what is measured.

A peer that omits a part of the work would be faster, so each is checked before it is measured.
"""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from loadtests.compare.keys import TINY_PEAK, KeySet
from loadtests.compare.scenarios import Layer, Workload

SMALL: Final = b"hello\n"
BIG_BYTES: Final = 65_536

#: The keys that one rule each refuses, and the answer.
RULES: Final = {"foreign": 401, "expired": 401, "elsewhere": 403, "unscoped": 403}
#: The key of the small plan must be refused within this number of requests.
_TRIES: Final = 3 * TINY_PEAK


class Wrong(Exception):
    """A peer did not behave as expected; the text has the request and the answer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """headers: by their names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def ask(
    port: int, path: str, key: str = "", *, method: str = "GET", body: bytes | None = None
) -> Answer:
    """One request on its own connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        connection.request(method, path, body, headers)
        found = connection.getresponse()
        names = {name.lower(): value for name, value in found.getheaders()}
        return Answer(found.status, names, found.read())
    finally:
        connection.close()


def is_up(port: int, path: str = "/small") -> bool:
    """Does it answer, and not with an error of its own?"""
    try:
        return ask(port, path).status < 500
    except (OSError, http.client.HTTPException):
        return False


def check_peer(
    port: int, layer: Layer, keys: KeySet, *, rules: frozenset[str], headers: tuple[str, ...]
) -> None:
    """Check the rules and the limit of a new peer. Raises Wrong.

    rules: those of RULES that it has; headers: its rate headers, without "x-ratelimit-"
    """
    if layer == "proxy":
        return
    if layer in ("all", "log"):
        for rule in sorted(rules):
            _expect(port, f"the {rule} key", getattr(keys, rule).text, RULES[rule])
        _check_headers(port, keys.good.text, headers)
    if layer != "key":
        _check_small_limit(port, keys)


def check_workload(port: int, workload: Workload, layer: Layer, keys: KeySet) -> None:
    """Check the requests to be measured, one of each kind. Raises Wrong."""
    if layer != "proxy":
        # During an outage the gateway cannot decide whether a key exists, only whether it is
        # well-formed.
        bad = "nonsense" if layer == "process" else keys.unknown.text
        _expect(port, "a bad key", bad, 401)
        _expect(port, "no key", "", 401)
    if workload.name == "refused":
        _exhausted(port, keys)
    elif workload.body_bytes:
        body = b"x" * workload.body_bytes
        answer = ask(port, workload.path, keys.good.text, method="POST", body=body)
        if answer.headers.get("x-body-bytes") != str(len(body)):
            raise Wrong(f"the upstream did not get the body: {answer.status} {answer.headers}")
    else:
        answer = _expect(port, "the good key", keys.good.text, 200, workload.path)
        if answer.body != SMALL and len(answer.body) != BIG_BYTES:
            raise Wrong(f"not the upstream's body: {answer.body[:80]!r}")


def _check_small_limit(port: int, keys: KeySet) -> None:
    statuses = [ask(port, "/small", keys.tiny.text).status for _ in range(_TRIES)]
    admitted = statuses.count(200)
    if not 1 <= admitted <= TINY_PEAK or statuses[admitted:] != [429] * (_TRIES - admitted):
        raise Wrong(f"{TINY_PEAK} were to be admitted, then 429 to follow: {statuses}")


def _exhausted(port: int, keys: KeySet) -> None:
    """Use up the small plan again: some of it has been refilled since the last try."""
    statuses = [ask(port, "/small", keys.tiny.text).status for _ in range(_TRIES)]
    if statuses[-1] != 429:
        raise Wrong(f"the key of the small plan is not refused: {statuses}")


def _check_headers(port: int, key: str, headers: tuple[str, ...]) -> None:
    answer = _expect(port, "the good key", key, 200)
    for name in headers:
        if not answer.headers.get(f"x-ratelimit-{name.lower()}", "").isdigit():
            raise Wrong(f"no figure in X-RateLimit-{name}: {dict(answer.headers)}")


def _expect(port: int, what: str, key: str, status: int, path: str = "/small") -> Answer:
    answer = ask(port, path, key)
    if answer.status != status:
        raise Wrong(f"{what} was answered with {answer.status} instead of {status}")
    return answer
