"""The gateway's own settings: all except upstreams, plans and routes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gateway.domain.headers import TRUSTED_ONLY
from gateway.domain.key_format import ENVIRONMENT
from gateway.domain.limits import Limit
from gateway.domain.networks import Network
from gateway.domain.policy import (
    AUTH_VERIFY,
    FAILED_AUTH,
    AdminProxy,
    AuditSettings,
    Bounds,
    OnStoreFailure,
    StoreSettings,
    Timeouts,
)
from gateway.policies import fields
from gateway.policies.limits import read_rate_and_burst
from gateway.policies.values import Fields, Value, setting

TIMEOUTS: Final = (
    *("header", "body", "idle", "connect", "response", "write", "tunnel", "stream", "drain"),
)
STORE: Final = ("timeout", "keep_keys")
AUDIT: Final = ("keep", "entries")
#: The fewest and the most entries of the audit log: more do not belong into Redis.
AUDIT_ENTRIES: Final = (1_000, 10_000_000)
#: The bounds that are sizes; and those that are numbers, each with its maximum.
SIZES: Final = ("headers", "url", "body", "memory")
COUNTS: Final = {
    "header_count": 10_000,
    "connections": 10_000_000,
    "connections_per_address": 10_000_000,
}
BOUNDS: Final = (*SIZES, *COUNTS)
HEADERS: Final = ("ietf", "hsts", "fallback", "trusted_only")
ADMIN_PROXY: Final = ("trusted", "tls")
#: From the network of a provider to a single address.
IPV6_PREFIXES: Final = (32, 128)
_MAX_TIMEOUT_S: Final = 86_400.0
#: The timeout is what an outage may add to a request.
_MAX_STORE_TIMEOUT_S: Final = 10.0
#: A key that is revoked during an outage may stay valid for this time.
_MAX_KEEP_KEYS_S: Final = 7 * 86_400.0
#: An entry of the audit log is kept for a day at least, and for a hundred years at most.
_AUDIT_KEEP_S: Final = (86_400.0, 36_500 * 86_400.0)
#: The largest bound in bytes. A body is forwarded, not buffered, so it may have any size.
_MAX_BYTES: Final = 2**53


def read_environment(value: Value) -> str | None:
    return value.matching(
        ENVIRONMENT,
        "up to 32 lower-case letters, digits and '-', beginning with a letter, such as production",
    )


def read_networks(value: Value) -> tuple[Network, ...] | None:
    """Addresses and ranges of them."""
    items = value.items("a list of addresses and CIDR ranges")
    if items is None:
        return None
    read = [item.parsed(fields.read_network) for item in items]
    return tuple(network for network in read if network is not None)


def read_on_store_failure(value: Value) -> OnStoreFailure | None:
    return value.choice("local", "open", "closed")


def read_store(value: Value) -> StoreSettings | None:
    given = value.fields(STORE)
    if given is None:
        return None
    default = StoreSettings()
    return StoreSettings(
        timeout_s=setting(given, "timeout", _read_store_timeout, default.timeout_s),
        keep_keys_s=setting(given, "keep_keys", _read_keep_keys, default.keep_keys_s),
    )


def _read_store_timeout(value: Value) -> float | None:
    return value.duration(_store_timeout)


def _store_timeout(text: str) -> float:
    seconds = fields.read_duration(text)
    if not 0.001 <= seconds <= _MAX_STORE_TIMEOUT_S:
        raise ValueError("a duration from 1ms to 10s")
    return seconds


def _read_keep_keys(value: Value) -> float | None:
    return value.duration(_keep_keys)


def _keep_keys(text: str) -> float:
    seconds = fields.read_duration(text)
    if seconds > _MAX_KEEP_KEYS_S:
        raise ValueError("a duration up to 7d")
    return seconds


def read_audit(value: Value) -> AuditSettings | None:
    given = value.fields(AUDIT)
    if given is None:
        return None
    default = AuditSettings()
    return AuditSettings(
        keep_s=setting(given, "keep", _read_audit_keep, default.keep_s),
        entries=setting(given, "entries", _read_audit_entries, default.entries),
    )


def _read_audit_keep(value: Value) -> float | None:
    return value.duration(_audit_keep)


def _audit_keep(text: str) -> float:
    seconds = fields.read_duration(text)
    least, most = _AUDIT_KEEP_S
    if not least <= seconds <= most:
        raise ValueError("a duration from 1d to 36500d")
    return seconds


def _read_audit_entries(value: Value) -> int | None:
    return value.integer(*AUDIT_ENTRIES)


def read_timeouts(value: Value) -> Timeouts | None:
    given = value.fields(TIMEOUTS)
    if given is None:
        return None
    read = {f"{key}_s": read_timeout(item) for key, item in given.items()}
    return Timeouts(**{key: seconds for key, seconds in read.items() if seconds is not None})


def read_permission(value: Value) -> tuple[str, str] | None:
    """The permission that a key needs: ("ticketing", "write")."""
    text = value.matching(fields.PERMISSION, "a service area and an action such as ticketing:write")
    if text is None:
        return None
    area, _, action = text.partition(":")
    return area, action


def read_timeout(value: Value) -> float | None:
    """A duration in seconds, above 0."""
    return value.duration(_timeout)


def _timeout(text: str) -> float:
    seconds = fields.read_duration(text)
    if not 0 < seconds <= _MAX_TIMEOUT_S:
        raise ValueError("a duration above 0s and up to 1d")
    return seconds


def read_bounds(value: Value) -> Bounds | None:
    given = value.fields(BOUNDS)
    if given is None:
        return None
    read: dict[str, int | None] = {}
    for key, item in given.items():
        if key in COUNTS:
            read[key] = item.integer(1, COUNTS[key])
        else:
            read[f"{key}_bytes"] = read_size(item)
    return Bounds(**{key: number for key, number in read.items() if number is not None})


def read_size(value: Value) -> int | None:
    """A number of bytes, with or without a unit."""
    if not value.is_text:
        return value.integer(1, _MAX_BYTES)
    size = value.parsed(fields.read_size)
    if size is not None and not 1 <= size <= _MAX_BYTES:
        value.add_fault("at least one byte, and at most 8192 TiB")
        return None
    return size


def read_size_up_to(most: int, value: Value) -> int | None:
    """most: in bytes, whole MiB"""
    size = read_size(value)
    if size is not None and size > most:
        value.add_fault(f"a size up to {most // 1024**2}MiB")
        return None
    return size


def read_failed_auth(value: Value) -> Limit | None:
    return _read_rate(value, FAILED_AUTH)


def read_auth_verify(value: Value) -> Limit | None:
    return _read_rate(value, AUTH_VERIFY)


def _read_rate(value: Value, default: Limit) -> Limit | None:
    """The rate of a built-in limit, with the name and the subject of its default."""
    given = value.fields(("rate", "burst"), required=("rate",))
    if given is None or "rate" not in given:
        return None
    return read_rate_and_burst(given, default.name, default.per)


@dataclass(frozen=True, slots=True)
class Headers:
    """The settings in `headers`.

    ietf:         the IETF's RateLimit headers are sent as well
    hsts:         the value of Strict-Transport-Security; None: it is not sent
    fallback:     X-RateLimit-Fallback is sent with responses decided without the store
    trusted_only: the request headers that are forwarded from trusted proxies only
    """

    ietf: bool = False
    hsts: str | None = None
    fallback: bool = False
    trusted_only: tuple[str, ...] = TRUSTED_ONLY


def read_headers(value: Value) -> Headers | None:
    given = value.fields(HEADERS)
    if given is None:
        return None
    return Headers(
        ietf=setting(given, "ietf", Value.flag, False),
        hsts=setting(given, "hsts", _hsts, None),
        fallback=setting(given, "fallback", Value.flag, False),
        trusted_only=setting(given, "trusted_only", _read_trusted_only, TRUSTED_ONLY),
    )


def _read_trusted_only(value: Value) -> tuple[str, ...] | None:
    items = value.items("a list of header names such as [X-Client-IP, X-Envoy-*]")
    if items is None:
        return None
    read = [item.parsed(fields.read_trusted_only, "the name of a header") for item in items]
    return tuple(dict.fromkeys(name for name in read if name is not None))


def _hsts(value: Value) -> str | None:
    return value.matching(fields.HSTS, 'a value such as "max-age=31536000; includeSubDomains"')


def read_admin_proxy(value: Value) -> AdminProxy | None:
    given = value.fields(ADMIN_PROXY, required=("trusted",))
    if given is None or "trusted" not in given:
        return None
    trusted = read_networks(given["trusted"])
    if trusted is not None and not given["trusted"].node.value:
        given["trusted"].add_fault("at least one address or CIDR range", "an empty list")
    return AdminProxy(trusted or (), setting(given, "tls", Value.flag, False))


def read_error_docs(value: Value) -> str | None:
    return value.matching(
        fields.URL, "an http or https URL without '#', such as https://docs.example.com/errors"
    )


def read_proxy_protocol(top: Fields) -> bool:
    """Do trusted proxies send a PROXY protocol header? It is a fault without trusted proxies."""
    if "proxy_protocol" not in top:
        return False
    value, trusted = top["proxy_protocol"], top.get("trusted_proxies")
    is_on = bool(value.flag())
    if is_on and (trusted is None or trusted.node.value == []):
        value.add_fault("trusted_proxies with the proxies that send it")
    return is_on


def read_ipv6_prefix(value: Value) -> int | None:
    return value.integer(*IPV6_PREFIXES)
