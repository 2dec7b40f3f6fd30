"""What to do about a store that refuses."""

from __future__ import annotations

from gateway.stores.redis.reasons import with_cure
from tests.kit.rows import each_row

# A reason as servers, redis-py and OpenSSL word it, and a word of its cure.
REASONS = (
    ("WRONGPASS invalid username-password pair or user is disabled.", "GATEWAY_STORE_PASSWORD"),
    ("invalid username-password pair or user is disabled.", "GATEWAY_STORE_PASSWORD"),
    ("NOAUTH HELLO must be called with the client already authenticated", "_PASSWORD_FILE"),
    ("Authentication required.", "GATEWAY_SENTINEL_PASSWORD"),
    ("ERR AUTH <password> called without any password configured for the default user.", "remove"),
    ("NOPERM User app has no permissions to run the 'evalsha' command", "docs/store.md"),
    ("NOPERM this user has no permissions to access one of the keys used as arguments", "ACL"),
    ("User app has no permissions to run the 'set' command", "ACL SETUSER"),
    ("ERR The user executing the script can't run this command or subcommand", "ACL SETUSER"),
    ("LOADING Redis is loading the dataset in memory", "has done so"),
    ("MISCONF Redis is configured to save RDB snapshots, but", "its disk"),
    ("NOREPLICAS Not enough good replicas to write.", "min-replicas-to-write"),
    ("READONLY You can't write against a read only replica.", "address of the master"),
    ("OOM command not allowed when used memory > 'maxmemory'.", "raise its maxmemory"),
    ("ERR max number of clients reached", "maxclients"),
    ("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", "lost"),
    ("CLUSTERDOWN The cluster is down", "CLUSTER INFO"),
    ("BUSY Redis is busy running a script.", "SCRIPT KILL"),
    ("DENIED Redis is running in protected mode because protected mode is enabled", "a user"),
    (
        "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: Hostname mismatch, "
        "certificate is not valid for 'cache'. (_ssl.c:1006)",
        "the name that the server's certificate has",
    ),
    (
        "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: unable to get local issuer "
        "certificate (_ssl.c:1006)",
        "SSL_CERT_FILE",
    ),
    (
        "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate has expired",
        "renew",
    ),
    ("[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert certificate required", "_KEY"),
    ("[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1006)", "redis:// in place of"),
)


@each_row(("reason", "word"), REASONS)
def test_cures(reason: str, word: str) -> None:
    """What servers, redis-py and OpenSSL refuse with is shown with what to do, once."""
    shown = with_cure(f"cache: {reason}")
    assert shown.startswith(f"cache: {reason.rstrip('.')}; ")
    assert word in shown.removeprefix(f"cache: {reason}")
    assert with_cure(shown) == shown


def test_other_reasons() -> None:
    """A reason that is not known is shown as it is."""
    assert with_cure(OSError("Connect call failed.")) == "Connect call failed."
