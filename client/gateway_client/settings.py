"""The settings of a client: arguments, and `SERVICE_*` variables for those that are not given.

| variable | setting | default |
| --- | --- | --- |
| `SERVICE_API_KEY` | `api_key` | needed |
| `SERVICE_BASE_URL` | `base_url`: https, or http to this machine | needed |
| `SERVICE_ENVIRONMENT` | `environment`: a key of another one is refused | any |
| `SERVICE_RETRY_ATTEMPTS` | `retries` after the first attempt | 3 |
| `SERVICE_RETRY_DELAY` | `retry_delay_ms`, before the first retry | 1000 |
| `SERVICE_MAX_RETRY_DELAY` | `max_retry_delay_ms` | 10000 |
| `SERVICE_LOG_LEVEL` | `log_level` of the logger `gateway_client` | as it is |
| `SERVICE_LOG_AUTH` | `log_auth`: `true` logs which key is used, by its id | `false` |

`HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY` are read by httpx.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from gateway_client.errors import SettingsInvalid
from gateway_client.retries import Rules

LOG_LEVELS: Final = ("debug", "info", "warning", "error", "critical")
#: How long an attempt may take: to connect, until the answer begins, and until it has ended.
TIMEOUT_S: Final = 30.0
#: The most bytes of the body of an answer, once decoded.
MOST_ANSWER: Final = 64 * 1024 * 1024
#: A week; the system cannot wait for any time.
MOST_SECONDS: Final = 604_800.0
MOST_RETRIES: Final = 100
MOST_DELAY_MS: Final = 3_600_000

_visible = re.compile(r"[!-~]{1,512}").fullmatch
_integer = re.compile(r"[0-9]{1,9}").fullmatch
#: A key of the gateway: its environment and id are no secrets.
_gateway_key = re.compile(r"gwk_([a-z][a-z0-9-]{0,31})_([0-9a-z]{12})_[0-9A-Za-z]{38}").fullmatch


@dataclass(frozen=True)
class Settings:
    """Checked settings.

    key_environment, key_id: of the key, if it is one of the gateway; else ""
    is_local:                the base URL is of this machine, where no proxy is used
    log_level:               "": it stays as it is
    """

    api_key: str = field(repr=False)
    base_url: str
    rules: Rules = field(default_factory=Rules)
    timeout_s: float = TIMEOUT_S
    max_answer_bytes: int = MOST_ANSWER
    log_level: str = ""
    log_auth: bool = False
    key_environment: str = ""
    key_id: str = ""
    is_local: bool = False


def read_settings(
    environ: Mapping[str, str] | None = None,
    *,
    api_key: str | None = None,
    base_url: str | None = None,
    environment: str | None = None,
    retries: int | None = None,
    retry_delay_ms: int | None = None,
    max_retry_delay_ms: int | None = None,
    patient: bool = False,
    patience_s: float = Rules.patience_s,
    timeout_s: float = TIMEOUT_S,
    max_answer_bytes: int = MOST_ANSWER,
    log_level: str | None = None,
    log_auth: bool | None = None,
) -> Settings:
    """The settings by these arguments, and by the environment where they are None.

    environ: by default that of the process. Raises SettingsInvalid.
    """
    read = _Variables(os.environ if environ is None else environ)
    key = _key(read.text("SERVICE_API_KEY", api_key))
    key_environment, key_id = _parts(key)
    expected = read.text("SERVICE_ENVIRONMENT", environment)
    if expected and key_environment and expected != key_environment:
        raise SettingsInvalid(
            f"the key is of the environment {key_environment!r}, "
            f"and SERVICE_ENVIRONMENT (or environment=) is {expected!r}"
        )
    url, is_local = _url(read.text("SERVICE_BASE_URL", base_url))
    rules = Rules(
        attempts=read.integer("SERVICE_RETRY_ATTEMPTS", retries, Rules.attempts, MOST_RETRIES),
        delay_s=read.integer("SERVICE_RETRY_DELAY", retry_delay_ms, 1000, MOST_DELAY_MS) / 1000,
        max_delay_s=read.integer(
            "SERVICE_MAX_RETRY_DELAY", max_retry_delay_ms, 10_000, MOST_DELAY_MS
        )
        / 1000,
        patient=patient,
        patience_s=_positive("patience_s", patience_s),
    )
    return Settings(
        api_key=key,
        base_url=url,
        rules=rules,
        timeout_s=_positive("timeout_s", timeout_s),
        max_answer_bytes=max_answer_bytes,
        log_level=read.one_of("SERVICE_LOG_LEVEL", log_level, LOG_LEVELS),
        log_auth=read.boolean("SERVICE_LOG_AUTH", log_auth),
        key_environment=key_environment,
        key_id=key_id,
        is_local=is_local,
    )


class _Variables:
    """Values of arguments, or of variables where they are None."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ

    def text(self, name: str, argument: str | None) -> str:
        return (self._environ.get(name, "") if argument is None else argument).strip()

    def integer(self, name: str, argument: int | None, default: int, most: int) -> int:
        text = self.text(name, None if argument is None else str(argument))
        if not text:
            return default
        if not _integer(text) or int(text) > most:
            raise SettingsInvalid(f"{name}: found {text!r}, expected a number from 0 to {most}")
        return int(text)

    def boolean(self, name: str, argument: bool | None) -> bool:
        if argument is not None:
            return argument
        return self.one_of(name, None, ("true", "false")) == "true"

    def one_of(self, name: str, argument: str | None, values: tuple[str, ...]) -> str:
        text = self.text(name, argument).lower()
        if text and text not in values:
            raise SettingsInvalid(f"{name}: found {text!r}, expected one of {', '.join(values)}")
        return text


def _key(text: str) -> str:
    if not text:
        raise SettingsInvalid("no API key: set SERVICE_API_KEY, or give api_key=")
    if not _visible(text):
        raise SettingsInvalid(
            f"the API key has {len(text)} characters, with spaces or others that no key has; "
            "expected up to 512 visible ASCII characters"
        )
    return text


def _parts(key: str) -> tuple[str, str]:
    """The environment and the id of a key of the gateway; "" of another one."""
    found = _gateway_key(key)
    return (found[1], found[2]) if found else ("", "")


def _url(text: str) -> tuple[str, bool]:
    """The base URL without a final slash, and whether it is of this machine."""
    name = "SERVICE_BASE_URL (or base_url=)"
    if not text:
        raise SettingsInvalid(f"{name} is not set; expected a URL such as https://api.example.com")
    try:
        parts = urlsplit(text)
        host, _port = parts.hostname or "", parts.port
    except ValueError:
        raise SettingsInvalid(f"{name} is not a URL") from None
    if "@" in parts.netloc:
        raise SettingsInvalid(f"{name} has a user or password, which are not used; remove them")
    if "?" in text or "#" in text:
        raise SettingsInvalid(f"{name} has a query or a fragment; expected none")
    if parts.scheme not in ("https", "http") or not host or not _visible(text):
        raise SettingsInvalid(f"{name}: found {text!r}, expected https://HOST")
    is_local = _is_loopback(host)
    if parts.scheme == "http" and not is_local:
        raise SettingsInvalid(
            f"{name}: found {text!r}, expected https://. Over http the key could be read on its "
            "way; http is only for this machine, such as http://127.0.0.1:8080"
        )
    return text.rstrip("/"), is_local


def _is_loopback(host: str) -> bool:
    # Not NAME.localhost: some systems ask DNS for it.
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _positive(name: str, value: float) -> float:
    if not 0 < value <= MOST_SECONDS:
        raise SettingsInvalid(f"{name}: found {value!r}, expected seconds above 0, up to a week")
    return float(value)


def configure_logging(settings: Settings) -> logging.Logger:
    """The logger `gateway_client`. A level is set if the settings have one.

    Without any handler of the program, lines of that level would be dropped: they go to stderr.
    """
    logger = logging.getLogger("gateway_client")
    if settings.log_level:
        logger.setLevel(settings.log_level.upper())
        if not logger.hasHandlers():
            logger.addHandler(logging.StreamHandler())
    return logger
