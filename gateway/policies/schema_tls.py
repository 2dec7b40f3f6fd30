"""The part of the JSON Schema about certificates."""

from __future__ import annotations

from gateway.domain import key_format
from gateway.policies.schema_parts import (
    Schema,
    choice,
    flag,
    list_of,
    object_of,
    path,
    text,
)
from gateway.policies.tls import CIPHERS, CURVE, FILES, PEER, VERSIONS


def client_tls(description: str) -> Schema:
    """`tls`."""
    asked = object_of(
        {
            "ca": path("A PEM file: the authorities that verify clients.", "tls/clients-ca.pem"),
            "required": flag("Clients without a certificate get no connection.", True),
            "keys": {
                "type": "object",
                "description": "Names in certificates, each with the id of a key.",
                "propertyNames": {"pattern": f"^(?:{PEER})$"},
                "additionalProperties": text(
                    key_format.ID,
                    "The id of the key that a client has if it sends none. Its certificate has "
                    "this name, such as `URI:spiffe://example.com/ci` or `CN=ci,O=Example`.",
                    example="7k2m9p4qwxyz",
                ),
            },
        },
        "Certificates that clients are asked for.",
        required=("ca",),
    )
    part = tls(description)
    return {**part, "properties": {**part["properties"], "client_certificates": asked}}


def tls(description: str) -> Schema:
    """`tls` or `admin_tls`: a mapping, or a list of certificates."""
    further = list_of(
        _files(),
        "Further certificates, for clients that ask for one of their names.",
        [{"certificate": "tls/other.crt", "key": "tls/other.key"}],
    )
    files = _files()
    settings = {
        "min_version": choice(VERSIONS, "The lowest version that clients may use.", VERSIONS[0]),
        "ciphers": text(
            CIPHERS,
            "The ciphers of TLS 1.2, as OpenSSL lists them. Those of 1.3 are fixed.",
            example="ECDHE+AESGCM:ECDHE+CHACHA20",
        ),
        "curves": {
            **list_of(
                text(CURVE, "A curve, as OpenSSL names it."),
                "The curves of the key exchange. Several need Python 3.15 or newer, "
                "and X25519 a newer patch release than 3.11.2.",
                ["prime256v1"],
            ),
            "minItems": 1,
        },
    }
    return {
        **object_of(
            {**files["properties"], "certificates": further, **settings},
            f"{description} Paths are relative to the policy folder; changed files are reloaded. A "
            "list of `certificate` and `key` is several certificates; the first is the default.",
            required=FILES,
        ),
        "type": ["object", "array"],
        "items": files,
        "minItems": 1,
    }


def _files() -> Schema:
    return object_of(
        {
            "certificate": path("A PEM file: the certificate and its chain.", "tls/tls.crt"),
            "key": path("A PEM file: its private key, without a password.", "tls/tls.key"),
        },
        required=FILES,
    )
