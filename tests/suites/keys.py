"""Tests of every key store; run with memory and with a real Redis."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import MappingProxyType

import pytest

from gateway.domain.key_format import ID_ALPHABET
from gateway.domain.keys import Account, KeyRecord
from gateway.domain.limits import Limit
from gateway.domain.networks import parse_network
from gateway.domain.ports import KeyChanged, KeyCount, KeyFilter, KeyTaken, MadeBefore
from tests.kit.rows import each_row
from tests.suites import every_rig

NOW = 1_800_000_000_123_456


def nth_id(number: int) -> str:
    """An id of a key for each number, in the order of the numbers: "222222222223" is the second."""
    digits = ""
    for _ in range(12):
        number, digit = divmod(number, len(ID_ALPHABET))
        digits = ID_ALPHABET[digit] + digits
    return digits


def plain_key(key_id: str = "7h3k9m2p4q6r", **fields) -> KeyRecord:
    """A minimal record with these fields."""
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

    @every_rig
    async def test_what_is_added_is_there(self, store):
        """A record is read as it was added, with every field; another id has none."""
        for record in (FULL, plain_key("a" * 12)):
            await store.add(record)
            assert await store.get(record.id) == record
        assert await store.get("nothing") is None

    async def test_an_id_is_taken_once(self, store):
        """A second key with the same id is refused, and the first is unchanged."""
        await store.add(FULL)
        with pytest.raises(KeyTaken):
            await store.add(plain_key())
        assert await store.get(FULL.id) == FULL
        assert len(await store.records()) == 1

    async def test_only_one_of_many_gets_an_id(self, store):
        """Of several concurrent additions under one id, one succeeds."""
        records = [plain_key(name=str(i)) for i in range(20)]
        answers = await asyncio.gather(*map(store.add, records), return_exceptions=True)
        assert [type(answer) for answer in answers if answer is not None] == [KeyTaken] * 19
        assert await store.get(FULL.id) == records[answers.index(None)]

    @every_rig
    async def test_replacing_compares(self, store):
        """A record is replaced only if it is still the expected one."""
        await store.add(FULL)
        revoked = replace(FULL, status="revoked")
        await store.replace(FULL, revoked)
        assert await store.get(FULL.id) == revoked
        with pytest.raises(KeyChanged):
            await store.replace(FULL, replace(FULL, status="valid"))
        assert await store.get(FULL.id) == revoked

    async def test_nothing_cannot_be_replaced(self, store):
        """Replacing a missing record fails, and creates none."""
        with pytest.raises(KeyChanged):
            await store.replace(FULL, replace(FULL, name="x"))
        assert await store.get(FULL.id) is None

    @every_rig
    async def test_only_one_of_many_replaces(self, store):
        """Of several replacements of the same record, one succeeds."""
        await store.add(FULL)
        wanted = [replace(FULL, name=str(i)) for i in range(20)]
        changes = (store.replace(FULL, record) for record in wanted)
        answers = await asyncio.gather(*changes, return_exceptions=True)
        assert [type(answer) for answer in answers if answer is not None] == [KeyChanged] * 19
        assert await store.get(FULL.id) == wanted[answers.index(None)]

    async def test_a_repeated_change(self, store):
        """A change that was made, but whose answer was lost, may be sent again."""
        for _ in range(2):
            await store.add(FULL)
        changed = replace(FULL, name="x")
        for _ in range(2):
            await store.replace(FULL, changed)
        assert await store.records() == [changed]

    async def test_records_are_listed_by_age(self, store):
        """All records are listed from the oldest, and by id if two have the same age."""
        ages = {"b" * 12: 2, "a" * 12: 2, "c" * 12: 1, "d" * 12: 3}
        assert await store.records() == []
        for key_id, age in ages.items():
            await store.add(plain_key(key_id, created_us=age))
        assert [record.id[0] for record in await store.records()] == ["c", "a", "b", "d"]

    async def test_many_records_are_listed(self, store):
        """All records are listed, however many there are."""
        records = [plain_key(nth_id(i), created_us=NOW + i) for i in range(1_101)]
        for record in records:
            await store.add(record)
        assert await store.records() == records

    @every_rig
    async def test_accounts(self, store):
        """An account is stored by name, and storing it again replaces it."""
        assert await store.account("acme") is None
        assert await store.accounts() == []
        await store.put_account(Account("zeta"))
        await store.put_account(Account("acme", ("edr",)))
        await store.put_account(Account("acme", ("scm", "ticketing")))
        assert await store.account("acme") == Account("acme", ("scm", "ticketing"))
        names = [account.name for account in await store.accounts()]
        assert names == ["acme", "zeta"] == await store.account_names()

    @every_rig
    async def test_all_of_an_account_is_kept(self, store):
        """An account is read with its plan, services and values."""
        account = Account("acme", ("edr",), "pro", FULL.limits, 15, "suspended")
        await store.put_account(account)
        assert await store.account("acme") == account
        assert await store.accounts() == [account]

    @every_rig
    async def test_replacing_an_account_compares(self, store):
        """An account is replaced, or created, only if it is still the expected one, or missing."""
        first, second = Account("acme", ("edr",)), Account("acme", ("edr",), "pro")
        with pytest.raises(KeyChanged):
            await store.replace_account(first, second)
        assert await store.accounts() == []
        for _ in range(2):  # twice: as if the first answer had been lost
            await store.replace_account(None, first)
        assert await store.accounts() == [first]
        with pytest.raises(KeyChanged):
            await store.replace_account(None, second)
        for _ in range(2):
            await store.replace_account(first, second)
        with pytest.raises(KeyChanged):
            await store.replace_account(first, Account("acme"))
        assert await store.account("acme") == second

    @every_rig
    async def test_removing_an_account_compares(self, store):
        """An account is deleted only if it is still the expected one; also if it is gone already.

        Its keys stay as they are.
        """
        first, second = Account("acme", ("edr",)), Account("acme", plan="pro")
        await store.add(plain_key())
        await store.put_account(Account("zeta"))
        await store.put_account(second)
        with pytest.raises(KeyChanged):
            await store.remove_account(first)
        assert await store.account("acme") == second
        for _ in range(2):  # twice: as if the first answer had been lost
            await store.remove_account(second)
        assert await store.account("acme") is None
        assert await store.account_names() == ["zeta"]
        assert await store.records() == [plain_key()]
        await store.replace_account(None, first)
        assert await store.account_names() == ["acme", "zeta"]

    async def test_keys_are_counted_by_account(self, store):
        """Every account that a key has is counted, with or without a record."""
        assert await store.key_counts() == {}
        await store.put_account(Account("zeta"))
        for number in range(1_001):
            await store.add(plain_key(nth_id(number), name=FULL.name))
        await store.add(plain_key(nth_id(2_000), account="beta", status="revoked"))
        own = nth_id(3_000)
        await store.add(plain_key(own, account=own, status="suspended"))
        await store.add(plain_key(nth_id(3_001), account=own, lineage=own))
        assert await store.key_counts() == {
            "acme": KeyCount(1_001, is_own=False),
            "beta": KeyCount(revoked=1, is_own=False),
            own: KeyCount(2),
        }

    async def test_only_one_of_many_makes_an_account(self, store):
        """Of several creations of the same account, one succeeds."""
        wanted = [Account("acme", (str(i),)) for i in range(20)]
        changes = (store.replace_account(None, account) for account in wanted)
        answers = await asyncio.gather(*changes, return_exceptions=True)
        assert [type(answer) for answer in answers if answer is not None] == [KeyChanged] * 19
        assert await store.account("acme") == wanted[answers.index(None)]

    @every_rig
    async def test_an_idempotency_key_makes_one_record(self, store):
        """One record is added per idempotency key and day; later calls get its id."""
        for _ in range(2):  # twice: as if the first answer had been lost
            await store.add(FULL, "word")
        await store.add(plain_key("b" * 12), "another")
        await store.add(plain_key("c" * 12))
        with pytest.raises(MadeBefore, match=FULL.id):
            await store.add(plain_key("d" * 12), "word")
        assert {record.id[0] for record in await store.records()} == {"7", "b", "c"}
        with pytest.raises(KeyTaken):
            await store.add(plain_key("c" * 12, name="x"), "third")
        await store.add(plain_key("e" * 12), "third")

    async def test_only_one_of_many_uses_an_idempotency_key(self, store):
        """Of several concurrent additions with one idempotency key, one succeeds."""
        records = [plain_key(nth_id(i)) for i in range(20)]
        adding = (store.add(record, "word") for record in records)
        answers = await asyncio.gather(*adding, return_exceptions=True)
        assert [type(answer) for answer in answers if answer is not None] == [MadeBefore] * 19
        made = records[answers.index(None)]
        assert {str(answer) for answer in answers if answer is not None} == {made.id}
        assert await store.records() == [made]

    @every_rig
    async def test_pages(self, store):
        """Pages go from the newest record to the oldest, each from the end of the previous one."""
        ages = {"b" * 12: 2, "a" * 12: 2, "c" * 12: 1, "d" * 12: 3, "e" * 12: 4}
        assert await store.page(KeyFilter()) == []
        for key_id, age in ages.items():
            await store.add(plain_key(key_id, created_us=age))

        async def page(after=None, **asked):
            found = await store.page(KeyFilter(), after=after and after * 12, **asked)
            return "".join(record.id[0] for record in found)

        assert await page() == "edbac"
        assert [await page(count=2), await page("d", count=2), await page("a", count=2)] == [
            *("ed", "ba", "c"),
        ]
        assert await page("c") == ""
        assert await page("x") == ""
        assert await page("b", count=1) == "a"
        # A new record is on the first page, and does not shift the next.
        await store.add(plain_key("f" * 12, created_us=5))
        assert await page("d", count=2) == "ba"

    @pytest.fixture
    async def filtered(self, store):
        """The store with six keys, "a" the oldest; the account of three of them has a plan."""
        await store.put_account(Account("acme", plan="pro"))
        fields = {
            "a": {"plan": "", "expires_us": NOW},
            "b": {
                **{"plan": "", "account": "zeta", "expires_us": NOW + 1},
                "scopes": ("a:read", "b:read"),
            },
            "c": {"plan": "pro", "status": "revoked", "expires_us": 1},
            "d": {"name": FULL.name, "account": "zeta", "status": "suspended"},
            "e": {"name": "\u212a", "account": "zeta", "expires_us": 1},
            "f": {"environment": "staging", "limits": FULL.limits, "scopes": ("a:read",)},
        }
        for age, (letter, values) in enumerate(fields.items()):
            await store.add(plain_key(letter * 12, created_us=age, **values))
        return store

    @every_rig
    @each_row(
        ("wanted", "expected"),
        [
            (KeyFilter(), "fedcba"),
            (KeyFilter(status="valid", now_us=NOW), "fb"),
            (KeyFilter(status="expired", now_us=NOW), "ea"),
            (KeyFilter(status="valid", now_us=0), "feba"),
            (KeyFilter(status="suspended", now_us=NOW), "d"),
            (KeyFilter(status="revoked", now_us=NOW), "c"),
            (KeyFilter(status="nonsense"), ""),
            (KeyFilter(plans=frozenset({"free"})), "fed"),
            (
                KeyFilter(plans=frozenset({"pro"})),
                "ca",
            ),  # the one of its own, the other its account's
            (KeyFilter(plans=frozenset({""})), "b"),
            (KeyFilter(plans=frozenset({"pro", ""})), "cba"),
            (KeyFilter(plans=frozenset()), ""),
            (KeyFilter(other_plans=frozenset()), "fedcba"),
            (KeyFilter(other_plans=frozenset({"free"})), "cba"),
            (KeyFilter(other_plans=frozenset({"", "pro"})), "fed"),
            (KeyFilter(account="acme"), "fca"),
            (KeyFilter(environment="staging"), "f"),
            (KeyFilter(environment="stag"), ""),
            (KeyFilter(text="FFF"), "f"),  # the id
            (KeyFilter(text="acm"), "fca"),
            (KeyFilter(text="ÜNÏ"), "d"),
            (KeyFilter(text="\"QUOTED\" 'name'\\"), "d"),
            (KeyFilter(text="k"), "e"),  # of the name: lower case of the Kelvin sign
            (KeyFilter(text="status"), ""),
            (KeyFilter(scope="a:read"), "fb"),
            (KeyFilter(scope="a"), ""),
            (KeyFilter(scope="a:read", account="acme"), "f"),
            (KeyFilter(expires_before_us=NOW), "ec"),
            (KeyFilter(expires_before_us=NOW + 1), "eca"),
            (KeyFilter(expires_before_us=NOW + 1, status="expired", now_us=NOW), "ea"),
            (KeyFilter(expires_before_us=0), ""),
            (KeyFilter(text=""), "fedcba"),
            (KeyFilter(text="a", plans=frozenset({"pro"}), account="acme", status="revoked"), "c"),
        ],
    )
    async def test_filters(self, filtered, wanted, expected):
        """A page has exactly the records that match all of the filter."""
        assert "".join(one.id[0] for one in await filtered.page(wanted)) == expected
        assert "".join(one.id[0] for one in await filtered.page(wanted, count=1)) == expected[:1]

    async def test_a_few_among_many_are_found(self, store):
        """A page is filled however far apart its records are, and the next continues there."""
        records = [plain_key(nth_id(i), created_us=NOW + i) for i in range(1_101)]
        for record in records:
            await store.add(record)
        rare = [records[i] for i in (1_000, 600, 1)]
        for record in rare:
            await store.replace(record, replace(record, account="rare"))
        wanted = KeyFilter(account="rare")
        assert [one.id for one in await store.page(wanted)] == [one.id for one in rare]
        page = await store.page(wanted, count=2)
        assert [one.id for one in page] == [one.id for one in rare[:2]]
        (last,) = await store.page(wanted, after=page[-1].id, count=2)
        assert last.id == rare[2].id

    @each_row("name", ["a:b", "a*", "{a}", "a b\r\n", "ü", "%41", ""])
    async def test_no_name_reaches_another(self, store, name):
        """Any name finds only what has exactly that name."""
        await store.put_account(Account("A", ("x",)))
        await store.put_account(Account("a", ("x",)))
        await store.add(plain_key("a" * 12, account="a"))
        assert await store.account(name) is None
        assert await store.get(name) is None

    @every_rig
    async def test_last_use(self, store):
        """The last of several uses is stored; a key that was never used has none."""
        await store.touch(["a", "b"], NOW)
        await store.touch(["a"], NOW + 5)
        await store.touch([], NOW)
        assert await store.last_used(["a", "b", "c"]) == {"a": NOW + 5, "b": NOW}
        assert await store.last_used([]) == {}
