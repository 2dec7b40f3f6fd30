"""The JSON Schema of `signatures`, and of `verify_signature` of a route."""

from __future__ import annotations

from gateway.domain.webhooks.signatures import Verification
from gateway.policies import signatures
from gateway.policies.schema_parts import Schema, duration, list_of, object_of, path, size, text


def signature() -> Schema:
    """An entry of `signatures`."""
    default = Verification("", ())
    return object_of(
        {
            "secrets": path(
                f"A file with one to {signatures.MOST_SECRETS} secrets, each on a line of its own "
                f"with at least {signatures.LEAST_SECRET} characters. Any of them is accepted, so "
                "that a sender can change its own. The file is reloaded when it changes.",
                "webhook-secrets.txt",
            ),
            "forms": {
                **list_of(
                    {"enum": list(signatures.FORMS)},
                    "The forms that are accepted: timed (a timestamp, and a signature of it and "
                    "the body), standard (Standard Webhooks), body-only (a signature of the body, "
                    "which anyone who has seen one can send again). Default: timed and standard.",
                    example=["timed"],
                ),
                "minItems": 1,
            },
            "brand": text(
                signatures.BRAND,
                "The word in the names of the headers: x-BRAND-signature and x-BRAND-timestamp.",
                default="service",
                example="acme",
            ),
            "tolerance": duration(
                "How far a timestamp may be from the store's time, to both sides.",
                default.tolerance_s,
                "60s",
            ),
            "max_body": size(
                "The largest body, up to "
                f"{signatures.MOST_BODY_BYTES // 1024**2}MiB: it is kept until it is verified.",
                default.body_bytes,
                "256KiB",
            ),
        },
        required=("secrets",),
    )


def verify_signature() -> Schema:
    """Of a route."""
    return {
        "type": "string",
        "description": "The entry of signatures by which the webhooks that it receives are "
        "verified, before anything of them is forwarded; without a right signature 401.",
        "examples": ["partner"],
    }
