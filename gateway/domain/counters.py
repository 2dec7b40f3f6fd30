"""The names of counters in the store.

A name starts with a hash tag of the subject: `gw:limit:{acme}:key:7h3k9m2p4q6r:plan:rate:60000000`.
A cluster places a name by its tag only, so all counters of one account are in one slot, but for
those of keys that came from another account.

Texts that a client chooses are never part of a name unchanged. A text with a colon or a brace could
otherwise form the name of another counter, a long one would be stored in full, and a header may
carry a secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Final

from gateway.domain.limits import Limit

#: The prefix of every counter's name.
PREFIX: Final = "gw:limit:"

_PLAIN = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII).fullmatch


def counter_names(
    limits: Sequence[Limit],
    *,
    account: str,
    home: str,
    lineage: str,
    ip: str,
    header: Callable[[str], str],
) -> tuple[str, ...]:
    """The name of each limit's counter, in order.

    home:   as in `KeyRecord`: what is counted per key stays when it moves to another account
    ip:     the subject of the client's address, as `networks.limit_subject` returns it
    header: the request's value of a header by its lower-case name; "" where it is missing, so all
            requests without it share one counter
    """
    return tuple(
        f"{PREFIX}{_subject(limit.per, account, home, lineage, ip, header)}:{limit.counter}"
        for limit in limits
    )


def subject_tag(text: str) -> str:
    """A text as part of a name: unchanged where it is short and plain, else "~" and its digest."""
    return text if _PLAIN(text) else _digest(text)


def _subject(
    per: str, account: str, home: str, lineage: str, ip: str, header: Callable[[str], str]
) -> str:
    """The subject of a counter: `{acme}:key:7h3k9m2p4q6r`."""
    if per == "key":
        return f"{{{subject_tag(home)}}}:key:{subject_tag(lineage)}"
    if per == "account":
        return f"{{{subject_tag(account)}}}:account"
    if per == "ip":
        return f"{{{subject_tag(ip)}}}:ip"
    name = per.removeprefix("header:")
    return f"{{{_digest(header(name))}}}:header-{subject_tag(name)}"


def _digest(text: str) -> str:
    # A header's text may have surrogates, which represent bytes that were not UTF-8.
    return "~" + blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
