"""The console's sessions: what a cookie holds, for which browser and how long; time is a number."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import replace

import pytest

from gateway.admin.sessions import IDLE_S, LONGEST_S, RENEW_S, Session, Sessions
from gateway.domain.ports import StoreDown
from gateway.stores.admin import MemoryAdminStore
from tests.kit.admin import Failing

TOKEN, OTHER = "correct-horse-battery-staple", "another-horse-battery-staple"
CLIENT = "https Mozilla/5.0 (X11; Linux x86_64)"
NOW_S = 1_800_000_000.25


@pytest.fixture
def store() -> MemoryAdminStore:
    return MemoryAdminStore()


@pytest.fixture
def sessions(store: MemoryAdminStore) -> Sessions:
    return Sessions(TOKEN, store)


def signed_in(sessions: Sessions, name: str = "anna") -> tuple[Session, str]:
    session = sessions.open(name, NOW_S)
    return session, sessions.seal(session, CLIENT)


def test_a_cookie_is_a_session(sessions: Sessions) -> None:
    """Its name, times and CSRF token are read back unchanged."""
    session, cookie = signed_in(sessions, "zoë O'Neill")
    assert sessions.unseal(cookie, CLIENT, NOW_S) == session
    assert session.name == "zoë O'Neill"
    assert session.opened_s == session.used_s == 1_800_000_000


def test_the_longest_name_fits(sessions: Sessions) -> None:
    """In letters of four bytes each."""
    session, cookie = signed_in(sessions, "\U00020000" * 64)
    assert sessions.unseal(cookie, CLIENT, NOW_S) == session


def test_all_gateways_with_the_token_take_it(sessions: Sessions) -> None:
    """Also one started after the sign-in; its forms are valid there, too."""
    session, cookie = signed_in(sessions)
    assert Sessions(TOKEN, MemoryAdminStore()).unseal(cookie, CLIENT, NOW_S) == session


def test_another_token_ends_all_sessions(sessions: Sessions) -> None:
    """A change of the token ends every session."""
    _, cookie = signed_in(sessions)
    assert Sessions(OTHER, MemoryAdminStore()).unseal(cookie, CLIENT, NOW_S) is None


def test_each_sign_in_is_a_separate_session(sessions: Sessions) -> None:
    """Even for the same person in the same second."""
    (one, first), (two, second) = signed_in(sessions), signed_in(sessions)
    assert len({one.id, two.id, one.csrf, two.csrf, first, second}) == 6


def test_neither_token_nor_secrets_are_in_it(sessions: Sessions) -> None:
    """Nor are they in the session's repr."""
    session, cookie = signed_in(sessions)
    content = urlsafe_b64decode(cookie + "==")
    for secret in (TOKEN, session.csrf):
        assert secret.encode() not in content
        assert secret not in cookie
        assert secret not in repr(session)


def test_every_byte_is_sealed(sessions: Sessions) -> None:
    """A cookie with any bit changed is invalid, and so is a part of one."""
    _, cookie = signed_in(sessions)
    content = urlsafe_b64decode(cookie + "=" * (-len(cookie) % 4))
    for place in range(len(content)):
        forged = bytearray(content)
        forged[place] ^= 1
        assert sessions.unseal(urlsafe_b64encode(forged).decode(), CLIENT, NOW_S) is None
    for length in range(len(content)):
        assert sessions.unseal(urlsafe_b64encode(content[:length]).decode(), CLIENT, NOW_S) is None


@pytest.mark.parametrize(
    "cookie",
    ["", "x", "=", "====", "ä", "\ud800", "a" * 1_024, "a" * 1_025, "a" * 8_000, TOKEN, "\x00"],
)
def test_an_invalid_cookie_is_no_session(sessions: Sessions, cookie: str) -> None:
    """Whatever it contains."""
    assert sessions.unseal(cookie, CLIENT, NOW_S) is None


def test_a_cookie_signed_with_the_token_is_no_session(sessions: Sessions) -> None:
    """The signing key is not the token, so that a cookie is no fast way to test guesses."""
    import hmac

    body = b"1." + json.dumps(["id", "anna", int(NOW_S), int(NOW_S), "0" * 16]).encode()
    mac = hmac.digest(TOKEN.encode(), body, "sha256")
    forged = urlsafe_b64encode(mac + body).decode()
    assert sessions.unseal(forged, CLIENT, NOW_S) is None


@pytest.mark.parametrize(
    "other",
    ["http Mozilla/5.0 (X11; Linux x86_64)", "https curl/8", "https ", "", "https \udcff"],
)
def test_it_is_bound_to_the_browser_and_to_tls(sessions: Sessions, other: str) -> None:
    """A cookie in another browser, or from clear text under TLS, is invalid."""
    _, cookie = signed_in(sessions)
    assert sessions.unseal(cookie, other, NOW_S) is None


def test_a_session_lives_while_it_is_used(sessions: Sessions) -> None:
    """It ends half an hour after its last use."""
    session, cookie = signed_in(sessions)
    assert sessions.unseal(cookie, CLIENT, session.used_s + IDLE_S - 1) is not None
    assert sessions.unseal(cookie, CLIENT, session.used_s + IDLE_S) is None
    renewed = sessions.renewed(session, session.used_s + IDLE_S - 1)
    assert renewed == replace(session, used_s=session.used_s + IDLE_S - 1)
    later = sessions.seal(renewed, CLIENT)
    assert sessions.unseal(later, CLIENT, session.used_s + 2 * IDLE_S - 2) == renewed


def test_a_cookie_is_renewed_once_a_minute(sessions: Sessions) -> None:
    """Not on each page."""
    session, _ = signed_in(sessions)
    assert sessions.renewed(session, session.used_s + RENEW_S - 1) is None
    assert sessions.renewed(session, session.used_s + RENEW_S) is not None


def test_a_session_ends_after_half_a_day(sessions: Sessions) -> None:
    """Even if it is used all the time."""
    session, _ = signed_in(sessions)
    used = replace(session, used_s=session.opened_s + LONGEST_S - 10)
    cookie = sessions.seal(used, CLIENT)
    assert sessions.unseal(cookie, CLIENT, session.opened_s + LONGEST_S - 1) == used
    assert sessions.unseal(cookie, CLIENT, session.opened_s + LONGEST_S) is None


async def test_a_session_that_was_ended_has_ended_everywhere(
    sessions: Sessions, store: MemoryAdminStore
) -> None:
    """At every gateway of the store, even with a valid cookie; ending it again does nothing."""
    (session, _), (other, _) = signed_in(sessions), signed_in(sessions)
    for _ in range(2):
        await sessions.end(session, NOW_S)
    for each in (sessions, Sessions(TOKEN, store)):
        assert await each.has_ended(session) is True
        assert await each.has_ended(other) is False


async def test_the_store_knows_no_session(sessions: Sessions) -> None:
    """An ended session is stored under a name that only gateways can compute, until it expires."""
    noted: list[tuple[str, int]] = []

    class Watched(MemoryAdminStore):
        async def end_session(self, name: str, for_s: int) -> None:
            noted.append((name, for_s))

    sessions = Sessions(TOKEN, Watched())
    session, cookie = signed_in(sessions)
    await sessions.end(session, NOW_S + 100)
    ((name, for_s),) = noted
    assert session.id not in name
    assert name not in cookie
    assert for_s == LONGEST_S - 100
    other = Sessions(OTHER, Watched())
    await other.end(session, NOW_S + 100)
    assert noted[1][0] != name


async def test_an_end_that_the_store_missed_is_stored_later(store: MemoryAdminStore) -> None:
    """Until then the session has ended at this gateway, but perhaps not at others."""
    failing = Failing(store)
    sessions, elsewhere = Sessions(TOKEN, failing), Sessions(TOKEN, store)  # type: ignore[arg-type]
    (session, _), (other, _) = signed_in(sessions), signed_in(sessions)
    failing.failure = StoreDown("refused")
    await sessions.end(session, NOW_S)
    assert await sessions.has_ended(session) is True
    with pytest.raises(StoreDown):
        await sessions.has_ended(other)
    assert await elsewhere.has_ended(session) is False
    await sessions.note_ended(NOW_S + 1)
    failing.failure = None
    await sessions.note_ended(NOW_S + 2)
    assert await elsewhere.has_ended(session) is True


async def test_an_end_outlasts_the_stores_data() -> None:
    """At the gateway that ended the session, and one that has read the note, until it expires."""
    store = MemoryAdminStore()
    here, there, never_asked = (Sessions(TOKEN, store) for _ in range(3))
    session, _ = signed_in(here)
    await here.end(session, NOW_S)
    assert await there.has_ended(session) is True
    store._ended.clear()
    for now_s in (NOW_S, session.opened_s + LONGEST_S - 1):
        await here.note_ended(now_s)
        await there.note_ended(now_s)
        assert await here.has_ended(session) is True
        assert await there.has_ended(session) is True
    assert await never_asked.has_ended(session) is False
    for each in (here, there):
        await each.note_ended(session.opened_s + LONGEST_S)
        assert await each.has_ended(session) is False


async def test_cached_ends_are_bounded(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    """The latest; earlier ones are only in the store."""
    monkeypatch.setattr("gateway.admin.sessions.MOST_ENDED", 3)
    ended = [signed_in(sessions)[0] for _ in range(5)]
    for session in ended:
        await sessions.end(session, NOW_S)
        assert len(sessions._ended) <= 3
    assert list(sessions._ended) == [session.id for session in ended[2:]]
    assert [await sessions.has_ended(session) for session in ended] == [True] * 5


async def test_expired_ends_are_dropped(store: MemoryAdminStore) -> None:
    """Ends that could not be stored do not accumulate."""
    failing = Failing(store)
    sessions = Sessions(TOKEN, failing)  # type: ignore[arg-type]
    session, _ = signed_in(sessions)
    failing.failure = StoreDown("refused")
    await sessions.end(session, NOW_S)
    later = sessions.open("ben", NOW_S + LONGEST_S)
    await sessions.end(later, NOW_S + LONGEST_S + 1)
    failing.failure = None
    assert await sessions.has_ended(session) is False
    assert await sessions.has_ended(later) is True
