"""Reads the members of a set in steps, up to a number: others may have added any number of them.

SMEMBERS of a million members blocks Redis for a second, and this process while it parses the reply.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

#: About this many are read in one step, which takes the store some 0.1 ms.
_STEP: Final = 500

# KEYS: the set; ARGV: the cursor, how many to read, the most bytes of a member. Returns the next
# cursor, how many were read, and those that are not too long; nothing where the value is not a set.
_SCAN: Final = """
local page = redis.pcall('SSCAN', KEYS[1], ARGV[1], 'COUNT', ARGV[2])
if page.err then return not string.find(page.err, 'WRONGTYPE') and page end
local found = {}
for _, member in ipairs(page[2]) do
  if #member <= tonumber(ARGV[3]) then found[#found + 1] = member end
end
return {page[1], #page[2], found}
"""

#: Sends a command and returns its reply; it may raise.
Ask = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Members:
    """The members that were read of a set.

    found:  each once, in no order
    is_set: False where the value has another type
    more:   there are more, which were not read
    """

    found: tuple[bytes, ...]
    is_set: bool
    more: bool


async def read_members(ask: Ask, name: str, *, most: int, longest: int) -> Members:
    """The members of up to `longest` bytes, among the first `most` or some more of any length."""
    found: dict[bytes, None] = {}
    cursor, looked_at = b"0", 0
    while True:
        page = await ask("EVAL", _SCAN, 1, name, cursor, min(_STEP, most), longest)
        if page is None:
            return Members((), is_set=False, more=False)
        cursor, count, members = page
        found.update(dict.fromkeys(members))
        looked_at += count
        if cursor == b"0" or looked_at >= most:
            return Members(tuple(found), is_set=True, more=cursor != b"0")
