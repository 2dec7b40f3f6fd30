"""All names that the gateway uses in Redis, except those of the counters of limits.

gw:{keys}:key:ID                  a key record
gw:{keys}:account:NAME            an account
gw:{keys}:index                   sorted set of the key ids, by creation
gw:{keys}:accounts                set of the account names
gw:{keys}:deleted                 hash of account -> when it was deleted
gw:{keys}:data                    a random text, by which workers tell other data apart
gw:{keys}:once:DIGEST             the id of the key that was created under an idempotency key
gw:{keys}:used                    hash of key id -> when it was last used
gw:{keys}:reset:COUNTER           exists for a moment after a counter was reset
gw:{keys}:workers                 sorted set of the live workers
gw:{keys}:mcp:WORKER              the keys with MCP connections at a worker
gw:{keys}:audit, audit:head       the audit log, and its last number and hash
gw:{keys}:audit:customers, …:head  the same, of changes by customers
gw:{keys}:audit:foreign:…         an audit log that something else wrote to, renamed
gw:{keys}:warnings                stream of warnings
gw:{keys}:warned:LEVEL:DIGEST     exists after a warning about a counter at this level
gw:{keys}:warned:minute           the number of warnings of this minute
gw:{keys}:hooks:noticed           hash of account -> its integration of the kind `gateway`
gw:{keys}:hooks:notices           sorted set of warnings that no courier has taken yet
gw:{keys}:hooks:replaying:NAME    exists while a replay of an account is in progress
gw:{keys}:hooks:notices:dropped   how many were dropped, as there were too many
gw:{keys}:admin:token             where the generated admin token is
gw:{keys}:admin:ended:SESSION     exists after a session was ended
gw:{keys}:policies                stream of the policies that were loaded
gw:{keys}:policy:HASH             the texts of a policy
gw:{keys}:policies:rollback       exists after a policy was restored, until it is loaded
gw:{keys}:usage:…                 usage: texts of buckets, journals, and their indexes

One hash tag puts all of them into one slot of a cluster: related values are changed in one step,
and one connection is notified of every change. The counters of limits are in other slots; see
`domain/counters.py`.

The modules that read and write a name describe its value.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final
from urllib.parse import quote, unquote

from redis.crc import key_slot

from gateway.domain.usage import Grain

KEYS_TAG: Final = "gw:{keys}:"
#: The slot of a cluster that has all names with this tag.
KEYS_SLOT: Final = key_slot(KEYS_TAG.encode())
#: There is never a value under this name.
NO_NAME: Final = KEYS_TAG + "none"

# -- keys and accounts -----------------------------------------------------------------------------

#: A worker's directory is notified of changes under these two prefixes, and under RESET_PREFIX.
KEY_PREFIX: Final = KEYS_TAG + "key:"
ACCOUNT_PREFIX: Final = KEYS_TAG + "account:"
KEY_INDEX: Final = KEYS_TAG + "index"
ACCOUNT_INDEX: Final = KEYS_TAG + "accounts"
DELETED: Final = KEYS_TAG + "deleted"
DATA_MARK: Final = KEYS_TAG + "data"
ONCE_PREFIX: Final = KEYS_TAG + "once:"
USED: Final = KEYS_TAG + "used"

# -- limits ----------------------------------------------------------------------------------------

RESET_PREFIX: Final = KEYS_TAG + "reset:"
WORKERS: Final = KEYS_TAG + "workers"
MCP_PREFIX: Final = KEYS_TAG + "mcp:"

# -- audit log, warnings, admin listener -----------------------------------------------------------

AUDIT: Final = KEYS_TAG + "audit"
CUSTOMERS_AUDIT: Final = AUDIT + ":customers"
WARNINGS: Final = KEYS_TAG + "warnings"
WARNED_PREFIX: Final = KEYS_TAG + "warned:"
WARNED_MINUTE: Final = WARNED_PREFIX + "minute"
NOTICED: Final = KEYS_TAG + "hooks:noticed"
NOTICES: Final = KEYS_TAG + "hooks:notices"
NOTICES_DROPPED: Final = NOTICES + ":dropped"
AUDITED_PREFIX: Final = NOTICES + ":audited:"
ADMIN_TOKEN: Final = KEYS_TAG + "admin:token"
ENDED_PREFIX: Final = KEYS_TAG + "admin:ended:"

# -- policies --------------------------------------------------------------------------------------

POLICIES: Final = KEYS_TAG + "policies"
POLICY_PREFIX: Final = KEYS_TAG + "policy:"
ROLLBACK: Final = POLICIES + ":rollback"

# -- usage -----------------------------------------------------------------------------------------

USAGE: Final = KEYS_TAG + "usage:"
USAGE_PLANS: Final = USAGE + "plans"
USAGE_ROUTES: Final = USAGE + "mcp"
JOURNAL_PREFIX: Final = USAGE + "journal:"
OPEN_JOURNALS_PREFIX: Final = USAGE + "open:"


def key_name(key_id: str) -> str:
    """The name of a key record. Any text is safe, as it is percent-encoded."""
    # Ids of the gateway need no encoding; this check takes a tenth of the time.
    is_plain = key_id.isascii() and key_id.isalnum()
    return KEY_PREFIX + (key_id if is_plain else quote(key_id, safe=""))


def account_name(name: str) -> str:
    """The name of an account."""
    return ACCOUNT_PREFIX + quote(name, safe="")


def once_name(idempotency_key: str) -> str:
    """The name under which the id of the key is that was created under an idempotency key."""
    return ONCE_PREFIX + quote(idempotency_key, safe="")


def reset_name(counter: str) -> str:
    """The name that notifies workers of the reset of a counter."""
    return RESET_PREFIX + quote(counter, safe="")


def subject_of(name: bytes, prefix: str) -> str | None:
    """The key id, account or counter in a name; None: the name has another prefix."""
    text = name.decode("ascii", "replace")
    return unquote(text[len(prefix) :]) if text.startswith(prefix) else None


def audit_head_name(log: str) -> str:
    """The last number and hash of an audit log."""
    return f"{log}:head"


def foreign_audit_name(at_us: int, token: str, log: str = AUDIT) -> str:
    """The new name of an audit log that something else wrote to."""
    return f"{log}:foreign:{at_us}:{token}"


def warned_name(level: int, digest: str) -> str:
    """The name that marks a warning about a counter, given by its digest, at a level."""
    return f"{WARNED_PREFIX}{level}:{digest}"


def policy_name(policy: str) -> str:
    """The name of the texts of the policy with this hash. Any text is safe."""
    return POLICY_PREFIX + quote(policy, safe="")


@lru_cache(maxsize=8_192)
def usage_name(subject: str) -> str:
    """The text of a subject's open hour. Any name is safe, as it is percent-encoded."""
    kind, _, name = subject.partition(":")
    return f"{USAGE}{kind}:{quote(name, safe='')}"


def busiest_name(grain: Grain, number: int) -> str:
    """The sorted set of the busiest keys of the Nth bucket since 1970."""
    return f"{USAGE}busiest:{grain[0]}:{number}"


def usage_writer_name(writer: str) -> str:
    """The number of the last batch of a worker."""
    return f"{USAGE}writer:{writer}"


def open_journals_name(shard: int) -> str:
    """The set of a shard's journals."""
    return f"{OPEN_JOURNALS_PREFIX}{shard}"


def journal_name(shard: int, label: str) -> str:
    """A journal of a shard."""
    return f"{JOURNAL_PREFIX}{shard}:{label}"
