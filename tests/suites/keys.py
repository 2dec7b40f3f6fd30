"""What every key store promises; run over memory and over a real Redis."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import MappingProxyType

import pytest

from gateway.domain.keys import Account, KeyRecord
from gateway.domain.limits import Limit
from gateway.domain.networks import parse_network
from gateway.domain.ports import KeyChanged, KeyTaken

NOW = 1_800_000_000_123_456


def plain_key(key_id: str = "7h3k9m2p4q6r", **fields) -> KeyRecord:
    """A record with nothing but the needful; `fields` of it differ."""
    record = KeyRecord(
        id=key_id,
        digest=key_id.encode().ljust(32, b"\xff"),
        name="ci",
        account="acme",
        plan="free",
        environment="production",
        lineage=key_id,
        created_us=NOW,
    )
    return replace(record, **fields)


FULL = plain_key(
    name="Ünïcode \"quoted\" 'name'\\",
    scopes=("connectors:read", "ticketing:write"),
    permissions=MappingProxyType({"ticketing": ("read", "write"), "edr": ("read",)}),
    networks=(parse_network("10.0.0.0/8"), parse_network("2001:db8::/32")),
    status="suspended",
    expires_us=2**53 - 1,
    successor="bbbbbbbbbbbb",
    limits=MappingProxyType(
        {
            "plan": Limit("plan", "rate", 300, 60_000_000, 500),
            "daily": Limit("daily", "quota", 10_000, 86_400_000_000, per="account", shadow=True),
        }
    ),
)


class KeyStoreSuite:
    """Subclasses give a fixture `store`, empty at the start."""

    async def test_what_is_added_is_there(self, store):
        """A record comes back as it was kept, each field of it; another id is not there."""
        for record in (FULL, plain_key("a" * 12)):
            await store.add(record)
            assert await store.get(record.id) == record
        assert await store.get("nothing") is None

    async def test_an_id_is_taken_once(self, store):
        """A second key under an id is refused, and the first is left as it was."""
        await store.add(FULL)
        with pytest.raises(KeyTaken):
            await store.add(plain_key())
        assert await store.get(FULL.id) == FULL
        assert len(await store.records()) == 1

    async def test_only_one_of_many_gets_an_id(self, store):
        """Of several who add under one id at the same time, one succeeds."""
        records = [plain_key(name=str(i)) for i in range(20)]
        answers = await asyncio.gather(*map(store.add, records), return_exceptions=True)
        assert [type(answer) for answer in answers if answer is not None] == [KeyTaken] * 19
        assert await store.get(FULL.id) == records[answers.index(None)]

    async def test_replacing_compares(self, store):
        """A record is replaced where it still is what the caller has seen, else not."""
        await store.add(FULL)
        revoked = replace(FULL, status="revoked")
        await store.replace(FULL, revoked)
        assert await store.get(FULL.id) == revoked
        with pytest.raises(KeyChanged):
            await store.replace(FULL, replace(FULL, status="valid"))
        assert await store.get(FULL.id) == revoked

    async def test_nothing_cannot_be_replaced(self, store):
        """Where there is no record there is nothing to replace, and none comes to be."""
        with pytest.raises(KeyChanged):
            await store.replace(FULL, replace(FULL, name="x"))
        assert await store.get(FULL.id) is None

    async def test_only_one_of_many_replaces(self, store):
        """Of several who have seen the same record, one changes it."""
        await store.add(FULL)
        wanted = [replace(FULL, name=str(i)) for i in range(20)]
        changes = (store.replace(FULL, record) for record in wanted)
        answers = await asyncio.gather(*changes, return_exceptions=True)
        assert [type(answer) for answer in answers if answer is not None] == [KeyChanged] * 19
        assert await store.get(FULL.id) == wanted[answers.index(None)]

    async def test_saying_it_twice_is_saying_it_once(self, store):
        """A change that was made, but whose answer was lost, may be sent again."""
        for _ in range(2):
            await store.add(FULL)
        changed = replace(FULL, name="x")
        for _ in range(2):
            await store.replace(FULL, changed)
        assert await store.records() == [changed]

    async def test_records_are_listed_by_age(self, store):
        """All records, the oldest first, and by id where two are of one age."""
        ages = {"b" * 12: 2, "a" * 12: 2, "c" * 12: 1, "d" * 12: 3}
        assert await store.records() == []
        for key_id, age in ages.items():
            await store.add(plain_key(key_id, created_us=age))
        assert [record.id[0] for record in await store.records()] == ["c", "a", "b", "d"]

    async def test_many_records_are_listed(self, store):
        """No record is left out, however many there are."""
        records = [plain_key(f"{i:012}", created_us=NOW + i) for i in range(1_101)]
        for record in records:
            await store.add(record)
        assert await store.records() == records

    async def test_accounts(self, store):
        """An account is kept by name, and putting it again replaces it."""
        assert await store.account("acme") is None
        assert await store.accounts() == []
        await store.put_account(Account("zeta"))
        await store.put_account(Account("acme", ("edr",)))
        await store.put_account(Account("acme", ("scm", "ticketing")))
        assert await store.account("acme") == Account("acme", ("scm", "ticketing"))
        names = [account.name for account in await store.accounts()]
        assert names == ["acme", "zeta"]

    @pytest.mark.parametrize("name", ["a:b", "a*", "{a}", "a b\r\n", "ü", "%41", ""])
    async def test_no_name_reaches_another(self, store, name):
        """Whatever an account or key is called, it is itself and nobody else."""
        await store.put_account(Account(name, ("x",)))
        await store.add(plain_key(name, account=name))
        assert await store.account(name) == Account(name, ("x",))
        assert (await store.get(name)).account == name
        assert [account.name for account in await store.accounts()] == [name]
        assert await store.account("A") is None

    async def test_last_use(self, store):
        """The last of several uses counts; a key that was never used has none."""
        await store.touch(["a", "b"], NOW)
        await store.touch(["a"], NOW + 5)
        await store.touch([], NOW)
        assert await store.last_used(["a", "b", "c"]) == {"a": NOW + 5, "b": NOW}
        assert await store.last_used([]) == {}
