"""The text of a usage journal."""

from __future__ import annotations

import string

from hypothesis import given
from hypothesis import strategies as st

from gateway.stores.usage import journal
from tests.kit.rows import each_row

NAMES = st.text(string.ascii_letters + string.digits + "-_.:ü", min_size=1, max_size=12)
COUNTED = st.tuples(NAMES.map("key:{}".format), NAMES, NAMES)


@given(st.lists(st.tuples(COUNTED, st.integers(1, 10**9)), max_size=40))
def test_what_was_written_is_read(counts):
    """All counts of a batch are read from the journals of their shards, and added up."""
    wanted: dict[tuple[str, str, str], int] = {}
    for counted, requests in counts:
        wanted[counted] = wanted.get(counted, 0) + requests
    found: dict[tuple[str, str, str], int] = {}
    for shard, text in journal.write_lines(counts).items():
        assert 0 <= shard < journal.SHARDS
        assert text.startswith("\n")
        for counted, requests in journal.read_lines(text.encode()).items():
            assert journal.shard_of(counted[0]) == shard
            assert journal.line_prefix(counted[0]) in text
            found[counted] = requests
    assert found == wanted


def test_shards_are_fixed():
    """Workers of any release use the same journals for a key."""
    keys = ("key:000000000000", "key:7hq2kx81m4zp", "key:")
    assert [journal.shard_of(key) for key in keys] == [19, 10, 24]


def test_labels():
    """A label is a minute and a writer; anything else is foreign."""
    assert journal.read_label(journal.label_of(60, "ab:c").encode()) == (60, "ab:c")
    endless = b"9" * 5_000 + b":w"
    for foreign in (b"", b"x", b"60", b":w", b"-60:w", b"\xff:w", b"6 0:w", b"\xd9\xa6:w", endless):
        assert journal.read_label(foreign) is None


@each_row("requests", ["", "-1", "1.5", "0x1", "\u0666", "9" * 5_000])
def test_a_line_of_others(requests):
    """A line with an invalid number counts nothing, and hides no other."""
    text = f"\na|{requests}|api|admitted\na|2|api|admitted".encode()
    assert journal.read_lines(text) == {("key:a", "api", "admitted"): 2}
