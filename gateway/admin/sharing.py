"""One generated token for all gateways on a store, without trusting the store.

If no token is configured, each gateway generates one in its data folder. Several gateways behind
one load balancer need the same one. The store cannot transport it: everyone who can read the store
would be admin. Nor can it hold a digest to check tokens against: everyone who can write to the
store would be admin. Without a secret that the gateways share beforehand, a message from another
gateway cannot be distinguished from one of an attacker.

So the store only holds a mark: the path of the file with the first gateway's token. A gateway that
has generated its own token during this start, which is still unknown to others, looks for that file
and adopts its token. That works on the same machine, where the file's owner and mode show that it
is genuine (`token.adopted`). In all other cases a gateway keeps its token, and logs what to do.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from pathlib import Path
from typing import Final

from gateway.admin.token import VARIABLE, AdminToken, adopted
from gateway.domain.ports import AdminStore, StoreDown, TokenMark

_log = logging.getLogger("gateway")

#: The expiry of a mark, and how often gateways renew it.
MARK_S: Final = 600
RENEW_S: Final = 60.0
#: How long the start waits for the store. Then it continues with the gateway's own token.
_WAIT_S: Final = 2.0
#: How much of a mark is logged: it may have been written by an attacker.
_MOST_SHOWN: Final = 200


async def shared(token: AdminToken, data: Path, store: AdminStore) -> AdminToken:
    """The token to use: this one, or that of another gateway, now in the data folder."""
    if token.origin == "given":
        return token
    mark = await _marked(token, store)
    if mark is None or mark.digest == token.digest:
        return token
    if token.origin == "made":
        found = await asyncio.to_thread(adopted, Path(mark.path), mark.digest, data)
        if found is not None:
            return found
    _warn(token, mark)
    return token


async def keep_marked(token: AdminToken, store: AdminStore) -> None:
    """Renew the mark of a generated token until cancelled. Log if another gateway's differs."""
    if token.origin == "given":
        return
    last: TokenMark | None = None
    while True:
        await asyncio.sleep(RENEW_S)
        mark = await _marked(token, store)
        if mark is not None and mark.digest != token.digest and mark != last:
            _warn(token, last := mark)


async def _marked(token: AdminToken, store: AdminStore) -> TokenMark | None:
    """The mark in the store. None: the store does not answer."""
    try:
        async with asyncio.timeout(_WAIT_S):
            return await store.mark_token(_mark_of(token), MARK_S)
    except (StoreDown, TimeoutError):
        return None


def _mark_of(token: AdminToken) -> TokenMark:
    return TokenMark(token.digest, socket.gethostname(), os.path.abspath(token.source))


def _warn(token: AdminToken, mark: TokenMark) -> None:
    _log.warning(
        "the admin token in %s differs from that of another gateway on this store (%s on %s): a "
        "sign-in at one is not valid at the other. Set the same token for all: %s or %s_FILE",
        token.source,
        _shown(mark.path),
        _shown(mark.host),
        VARIABLE,
        VARIABLE,
    )


def _shown(text: str) -> str:
    return text[:_MOST_SHOWN] if text.isascii() and text.isprintable() else "unreadable"
