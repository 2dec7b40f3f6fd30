"""Calls the API behind a rate-limiting gateway, and receives its webhooks.

    from gateway_client import Client

    with Client() as client:  # SERVICE_API_KEY, SERVICE_BASE_URL
        print(client.connectors(), client.limits)

`gateway_client.webhooks` verifies webhooks, and needs the standard library alone: so what needs
httpx is imported here when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from gateway_client.async_client import AsyncClient
    from gateway_client.client import Client
    from gateway_client.errors import (
        ApiError,
        ConnectionFailed,
        Forbidden,
        GatewayError,
        InvalidRequest,
        NotFound,
        RateLimited,
        ServerError,
        SettingsInvalid,
        Unauthorized,
        UnexpectedAnswer,
    )
    from gateway_client.limits import Limits
    from gateway_client.settings import Settings, read_settings
    from gateway_client.webhooks.signatures import SignatureInvalid

__all__ = [
    "ApiError",
    "AsyncClient",
    "Client",
    "ConnectionFailed",
    "Forbidden",
    "GatewayError",
    "InvalidRequest",
    "Limits",
    "NotFound",
    "RateLimited",
    "ServerError",
    "Settings",
    "SettingsInvalid",
    "SignatureInvalid",
    "Unauthorized",
    "UnexpectedAnswer",
    "read_settings",
]

_MODULES: Final = {
    "AsyncClient": "async_client",
    "Client": "client",
    "Limits": "limits",
    "Settings": "settings",
    "SignatureInvalid": "webhooks.signatures",
    "read_settings": "settings",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'errors')}"), name)
