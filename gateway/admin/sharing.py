"""One made token for all gateways of a store, as far as a store can be trusted with that.

Where no token is given, each gateway makes one for its data folder, and several behind one address
would then each take a token of their own. The store cannot carry it from one to the other: whoever
reads the store would be admin. Nor can it tell a gateway which token is right, by its digest: so
would be whoever writes to it. Without a secret that gateways share beforehand, there is no way to
tell a message of another gateway from one of anybody else who can write there.

What the store carries is a mark: where the token of this store is kept. A gateway that has made its
own at this very start, and so has shown it to nobody, takes that one instead if it finds it there:
on the same machine, in a file of its own user's alone (`token.adopted`). All others keep what they
have, and their logs say what to do.
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

#: How long a mark outlives its gateways, and how often they renew it.
MARK_S: Final = 600
RENEW_S: Final = 60.0
#: How long a start waits for the store. Without it, it goes on with the token that there is.
_WAIT_S: Final = 2.0
#: As much of the mark as is shown: it may be anybody's words.
_MOST_SHOWN: Final = 200


async def shared(token: AdminToken, data: Path, store: AdminStore) -> AdminToken:
    """The token to use in place of this one; it is kept in the data folder."""
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
    """Renew the mark of a made token until cancelled; say so where another gateway has another."""
    if token.origin == "given":
        return
    last: TokenMark | None = None
    while True:
        await asyncio.sleep(RENEW_S)
        mark = await _marked(token, store)
        if mark is not None and mark.digest != token.digest and mark != last:
            _warn(token, last := mark)


async def _marked(token: AdminToken, store: AdminStore) -> TokenMark | None:
    """The mark that is in the store; None: it cannot be asked."""
    try:
        async with asyncio.timeout(_WAIT_S):
            return await store.mark_token(_mark_of(token), MARK_S)
    except (StoreDown, TimeoutError):
        return None


def _mark_of(token: AdminToken) -> TokenMark:
    return TokenMark(token.digest, socket.gethostname(), os.path.abspath(token.place))


def _warn(token: AdminToken, mark: TokenMark) -> None:
    _log.warning(
        "the admin token in %s is not that of another gateway on this store (%s on %s): a sign-in "
        "at one is not valid at the other. Give all of them one token: %s or %s_FILE",
        token.place,
        _shown(mark.path),
        _shown(mark.host),
        VARIABLE,
        VARIABLE,
    )


def _shown(text: str) -> str:
    return text[:_MOST_SHOWN] if text.isascii() and text.isprintable() else "unreadable"
