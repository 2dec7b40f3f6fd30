"""The bound on a reply's length, checked exactly, before the parser gets it."""

from __future__ import annotations

import random
from typing import Any

import hiredis
import pytest
from redis.exceptions import InvalidResponse

from gateway.stores.redis.address import parse_url
from gateway.stores.redis.clients import redis_client, sentinel_client
from gateway.stores.redis.reply_bounds import MOST_LINE_BYTES, ReplyBounds
from gateway.stores.redis.topology import _client
from tests.kit.listening import answering
from tests.kit.rows import each_row

MOST = 1_000
#: Parts of values that look like headers.
DISGUISED = b"\r\n*99999999\r\n$99999999\r\n>-1\r\n\r\n"


def string(content: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(content), content)


REPLIES = [
    string(b""),
    string(DISGUISED),
    string(b"x" * 900),
    b"$-1\r\n",
    b"*-1\r\n",
    b"*0\r\n",
    b"+OK\r\n",
    b"-ERR " + b"no " * 100 + b"\r\n",
    b":-9223372036854775808\r\n",
    b"_\r\n",
    b"#t\r\n",
    b",1.5\r\n",
    b"*3\r\n*2\r\n:1\r\n" + string(DISGUISED) + b"*0\r\n" + string(b"z"),
    b"%2\r\n+a\r\n*1\r\n:1\r\n+b\r\n~1\r\n:2\r\n",
    b">2\r\n+invalidate\r\n*1\r\n" + string(DISGUISED),
]


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def follow(*data: bytes) -> ReplyBounds:
    bounds = ReplyBounds(MOST)
    for piece in data:
        bounds.check(piece)
    return bounds


@each_row("size", [1, 2, 3, 7, 64, 1_000, 100_000])
def test_whatever_is_whole(size: int) -> None:
    """Replies within bounds pass, in whatever pieces and order; the next one is still bounded."""
    order = random.Random(size)
    replies = [order.choice(REPLIES) for _ in range(300)]
    bounds = follow(*pieces(b"".join(replies), size))
    reader = hiredis.Reader()
    reader.feed(b"".join(replies))
    assert [type(reader.gets()) for _ in replies]  # the parser finds the same number
    assert not reader.has_data()
    with pytest.raises(InvalidResponse, match="more than 1000 bytes"):
        bounds.check(b"*999999\r\n")


@each_row("reply", REPLIES)
def test_each_cut(reply: bytes) -> None:
    """For any split of a reply, the next one is found."""
    for at in range(len(reply) + 1):
        bounds = follow(reply[:at], reply[at:])
        with pytest.raises(InvalidResponse, match="more than 1000 bytes"):
            bounds.check(b"$1000\r\n")


@each_row(
    "reply",
    [
        b"*2147483647\r\n",
        b"*334\r\n",  # an element has three bytes or more
        b"%167\r\n",
        b"~999\r\n",
        b">999\r\n",
        b"$999999999999\r\n",
        b"*2\r\n$500\r\n" + b"x" * 500 + b"\r\n$600\r\n",
        b"*40\r\n*300\r\n",
        b"*2\r\n*300\r\n" + b":1\r\n" * 290,
    ],
)
def test_too_long(reply: bytes) -> None:
    """A reply that is announced or received beyond the bound is refused, for any split."""
    for size in (1, 3, len(reply)):
        with pytest.raises(InvalidResponse, match="more than 1000 bytes"):
            follow(*pieces(string(b"before") + reply, size))


@each_row("kind", [b"+", b"-", b":", b"$", b"*"])
def test_a_line_without_end(kind: bytes) -> None:
    """A line is refused once it exceeds the bound, before its end."""
    with pytest.raises(InvalidResponse, match=f"a line of more than {MOST_LINE_BYTES} bytes"):
        follow(kind, *[b"9" * 100] * 100)


@each_row("reply", [b"$x\r\n", b"$\r\n", b"*1.5\r\n", b"$" + b"9" * 5_000 + b"\r\n", b"*?\r\n"])
def test_no_length(reply: bytes) -> None:
    """A header without a length is refused."""
    with pytest.raises((InvalidResponse, ValueError)):
        follow(reply)


@pytest.mark.parametrize("reply", [b"|1\r\n+a\r\n+b\r\n+OK\r\n", b"!3\r\nERR\r\n", b"HTTP/1.1\r\n"])
def test_other_types(reply: bytes) -> None:
    """Other types of replies are refused, attributes included, which the parser would return."""
    with pytest.raises(InvalidResponse, match="of the type"):
        follow(reply)


def test_many_elements() -> None:
    """The arrays of one reply are bounded together, as the parser allocates them at once."""
    bounds = ReplyBounds()
    bounds.check(b"*1000000\r\n" + b":1\r\n" * 999_999 + b"*1000000\r\n")
    with pytest.raises(InvalidResponse, match="more than 16777216 bytes"):
        bounds.check(b"*100000\r\n")


# -- redis-py --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reply",
    [b"*2147483647\r\n", b"$99999999\r\n", b"-ERR " + b"A" * 2_000_000 + b"\r\n", b"$x\r\n"],
    ids=["array", "string", "line", "no length"],
)
async def test_of_redis_py(reply: bytes) -> None:
    """A client of redis-py refuses a reply above the bound, without repeating the command."""
    async with answering(reply) as server:
        client = redis_client(parse_url(f"redis://127.0.0.1:{server.port}/0"))
        with pytest.raises(InvalidResponse):
            await client.get("a")
        await client.aclose()


async def test_a_value_in_disguise(redis_server: Any) -> None:
    """A client of redis-py reads a value that looks like headers."""
    client: Any = redis_client(parse_url(redis_server.url))
    await client.set("disguised", DISGUISED)
    assert await client.mget("disguised", "none") == [DISGUISED, None]
    await client.aclose()


async def test_of_each_kind() -> None:
    """The clients of Sentinels, of their master, of one server and of a cluster are bounded."""
    async with answering(b"*2147483647\r\n") as server:
        sentinels = sentinel_client(parse_url(f"redis+sentinel://127.0.0.1:{server.port}/main"))
        with pytest.raises(InvalidResponse):
            await sentinels.sentinels[0].sentinel_masters()
        await sentinels.aclose()
        async with _client(parse_url(f"redis://127.0.0.1:{server.port}/0")) as one:
            with pytest.raises(InvalidResponse):
                await one.execute_command("ROLE")
        cluster: Any = redis_client(parse_url(f"redis+cluster://127.0.0.1:{server.port}"))
        with pytest.raises(Exception, match="more than 16777216 bytes"):
            await cluster.get("a")
        await cluster.aclose()
