"""What to do about a store that refuses: the cure for each reason that Redis and TLS name.

Reasons are texts, as they come from the server or from OpenSSL; redis-py leaves out the code that a
server's error begins with. So each reason is known by a part of its text. Texts of servers may
change: a reason that is not known is shown as it is.
"""

from __future__ import annotations

from typing import Final

_LOGIN: Final = (
    "check the user in the store's URL and its password, GATEWAY_STORE_PASSWORD or the file that "
    "GATEWAY_STORE_PASSWORD_FILE names; for Sentinels GATEWAY_SENTINEL_PASSWORD or its _FILE"
)
_RIGHTS: Final = "give the user the rights that docs/store.md lists (ACL SETUSER)"
_AUTHORITY: Final = "name the authority that signed the server's certificate in SSL_CERT_FILE"

#: Parts of reasons, and the cure; the first that matches is used.
_CURES: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (
        ("WRONGPASS", "invalid username-password pair", "NOAUTH", "Authentication required"),
        _LOGIN,
    ),
    (
        ("without any password configured",),
        "the server has no password: remove GATEWAY_STORE_PASSWORD, or set one there",
    ),
    (("NOPERM", "has no permissions", "No permissions", "executing the script can't"), _RIGHTS),
    (
        ("LOADING", "loading the dataset"),
        "the server is reading its data, and answers when it has done so",
    ),
    (
        ("MISCONF",),
        "the server cannot save to its disk: see its log, and free space on the disk",
    ),
    (
        ("NOREPLICAS", "Not enough good replicas"),
        "fewer replicas are connected than min-replicas-to-write: see INFO replication there",
    ),
    (
        ("READONLY", "read only replica"),
        "this server is a replica: give the address of the master, or of its Sentinels",
    ),
    (
        ("OOM command", "used memory > 'maxmemory'"),
        "the server is full: raise its maxmemory, and keep maxmemory-policy noeviction",
    ),
    (("max number of clients",), "the server has no connection left: raise its maxclients"),
    (("MASTERDOWN", "MASTER is down"), "the replica has lost its master: see its log"),
    (("CLUSTERDOWN",), "nodes of the cluster are down: see CLUSTER INFO there"),
    (("BUSY ", "busy running a script"), "another script runs there: end it by SCRIPT KILL"),
    (
        ("DENIED", "protected mode"),
        "the server is in protected mode: give it a user and a password",
    ),
    (
        ("not valid for", "doesn't match"),
        "use the name that the server's certificate has in the URL",
    ),
    (("certificate has expired",), "renew the certificate of the server"),
    (("self-signed", "self signed", "unable to get", "CERTIFICATE_VERIFY_FAILED"), _AUTHORITY),
    (
        ("CERTIFICATE_REQUIRED", "certificate required"),
        "the server requires a client certificate: set GATEWAY_STORE_CERTIFICATE and its _KEY",
    ),
    (
        ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"),
        "the server's port has no TLS: use redis:// in place of rediss://, or its port for TLS",
    ),
)


def with_cure(reason: object) -> str:
    """The reason as a text, with what to do about it where that is known."""
    text = str(reason).rstrip(". ")
    for parts, cure in _CURES:
        if cure in text:
            return text
        if any(part in text for part in parts):
            return f"{text}; {cure}"
    return str(reason)
