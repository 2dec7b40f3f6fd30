"""Deletes an account, with the keys and integrations that it still has, if that is wanted.

Keys without their account would have neither its plan nor its suspension, and integrations would be
those of the next account of its name. So an account with any is not deleted, unless its keys may be
revoked and its integrations removed.
"""

from __future__ import annotations

from typing import Final

from gateway.domain.ports import KeyFilter
from gateway.manage.accounts import Accounts
from gateway.manage.audit_log import Actor
from gateway.manage.keys import Keys
from gateway.manage.problems import Changed, Conflict, NotThere

#: Keys per request to the store.
_PAGE: Final = 500


async def remove_account(
    accounts: Accounts,
    keys: Keys,
    actor: Actor,
    name: str,
    *,
    revokes: bool = False,
    version: str | None = None,
) -> int:
    """Delete an account; returns how many keys were revoked. Raises NotThere, Conflict, Changed.

    A key that someone creates for the account meanwhile stays valid. An integration that someone
    creates meanwhile is not one of a later account of this name.

    revokes: revoke its keys and remove its integrations first; else an account with keys that are
             not revoked, or with integrations, is a Conflict
    """
    view = await accounts.view(name)
    if view.is_implicit:
        raise NotThere(
            f"account {name} has no record that could be deleted: it is only named by its keys"
        )
    if version is not None and view.version != version:
        raise Changed(f"account {name} was changed by someone else, load it again")
    if view.keys and not revokes:
        what = "1 key that is" if view.keys == 1 else f"{view.keys} keys that are"
        raise Conflict(
            f"account {name} has {what} not revoked: revoke or move them first, or delete the "
            "account with force, which revokes them"
        )
    hooks = accounts.hooks
    if hooks is not None and not revokes and (its := await hooks.count(name)):
        what = "1 integration" if its == 1 else f"{its} integrations"
        raise Conflict(
            f"account {name} has {what}: remove them first, or delete the account with force, "
            "which removes them with their watches and events"
        )
    revoked = await _revoke_all(keys, actor, name) if revokes else 0
    if hooks is not None and revokes:
        await hooks.remove(name)
    await accounts.remove(actor, view.account)
    return revoked


async def _revoke_all(keys: Keys, actor: Actor, name: str) -> int:
    wanted, revoked, after = KeyFilter(account=name), 0, None
    while True:
        page = await keys.page(wanted, after, _PAGE)
        for view in page.keys:
            if view.record.status != "revoked":
                await keys.revoke(actor, view.record.id)
                revoked += 1
        if (after := page.next) is None:
            return revoked
