"""Tests of every admin store; run with memory and with a real Redis."""

from __future__ import annotations

import pytest

from gateway.domain.ports import TokenMark
from tests.suites import every_rig

ONE = TokenMark("0a" * 32, "host one", "/var/lib/gate way/ä/admin-token")
OTHER = TokenMark("1b" * 32, "host-two", "/data/admin-token")
NAME, OTHER_NAME = "c" * 32, "d" * 32


class AdminStoreSuite:
    """Subclasses give a fixture `store`, empty at the start, and `pass_time` for its seconds."""

    @every_rig
    async def test_a_session_that_ended_is_known(self, store):
        """An ended session is known by its name; ending it again changes nothing."""
        assert await store.has_ended(NAME) is False
        for _ in range(2):
            await store.end_session(NAME, 60)
        assert await store.has_ended(NAME) is True
        assert await store.has_ended(OTHER_NAME) is False

    async def test_an_end_expires(self, store, pass_time):
        """An ended session expires when its cookie would have expired."""
        await store.end_session(NAME, 30)
        await store.end_session(OTHER_NAME, 60)
        pass_time(30)
        assert await store.has_ended(NAME) is False
        assert await store.has_ended(OTHER_NAME) is True

    @every_rig
    async def test_the_first_mark_stays(self, store):
        """A second mark returns the first one, also if the call is repeated after a lost answer."""
        for _ in range(2):
            assert await store.mark_token(ONE, 60) == ONE
            assert await store.mark_token(OTHER, 60) == ONE

    async def test_a_mark_of_the_same_token_is_one(self, store):
        """Several gateways may mark the same token; the place of the first is kept."""
        await store.mark_token(ONE, 60)
        adopted = TokenMark(ONE.digest, "host three", "/elsewhere/admin-token")
        assert await store.mark_token(adopted, 60) == ONE

    async def test_a_mark_goes_with_its_gateways(self, store, pass_time):
        """A mark expires unless its own token renews it."""
        await store.mark_token(ONE, 30)
        assert await store.mark_token(OTHER, 60) == ONE
        pass_time(30)
        assert await store.mark_token(OTHER, 60) == OTHER
        assert await store.mark_token(ONE, 60) == OTHER

    async def test_renewing_keeps_a_mark(self, store, pass_time):
        """A renewal extends the mark's expiry."""
        await store.mark_token(ONE, 30)
        await store.mark_token(ONE, 60)
        pass_time(30)
        assert await store.mark_token(OTHER, 60) == ONE

    @pytest.mark.parametrize("words", ["", " ", "a b\nc\x00", "%20", "ü𝒜"])
    async def test_whatever_a_host_is_called(self, store, words):
        """A mark with any texts is read as it was written."""
        mark = TokenMark(ONE.digest, words, words)
        assert await store.mark_token(mark, 60) == mark
