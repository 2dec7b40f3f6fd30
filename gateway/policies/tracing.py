"""`tracing`: which requests are sampled, and whether their spans name the key."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from gateway.domain.tracing import Tracing
from gateway.policies import fields
from gateway.policies.values import Value, setting

TRACING: Final = ("sample", "identity")
#: What the extra installs, as far as it is imported.
_PACKAGES: Final = ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http")


def read_tracing(value: Value) -> Tracing | None:
    """The setting; a fault if OpenTelemetry is not installed."""
    given = value.fields(TRACING)
    if given is None:
        return None
    if not _is_installed():
        value.add_fault(
            "the extra otel: pip install 'rate-limiting-gateway[otel]'",
            "no OpenTelemetry in this Python",
        )
    default = Tracing()
    return Tracing(
        sample=setting(given, "sample", _read_sample, default.sample),
        identity=setting(given, "identity", Value.flag, default.identity),
    )


def _is_installed() -> bool:
    try:
        return all(find_spec(name) is not None for name in _PACKAGES)
    except ModuleNotFoundError:  # a package that contains it is missing
        return False


def _read_sample(value: Value) -> float | None:
    percent = value.parsed(fields.read_percent, "a percentage such as 1%")
    return None if percent is None else percent / 100
