"""Settings: what variables and arguments mean, and what is refused."""

from __future__ import annotations

import logging
import secrets
from typing import Any

import pytest
from gateway_client.errors import SettingsInvalid
from gateway_client.retries import Rules
from gateway_client.settings import Settings, configure_logging, read_settings
from hypothesis import given
from hypothesis import strategies as st

from gateway.domain.key_format import mint
from tests.kit.reach import mostly, reached, reaches

KEY, KEY_ID = mint("production", secrets.randbelow)
DEVELOPMENT, _ = mint("development", secrets.randbelow)
NEEDED = {"SERVICE_API_KEY": KEY, "SERVICE_BASE_URL": "https://api.example.com"}


def read(environ: dict[str, str] | None = None, **arguments: Any) -> Settings:
    return read_settings({**NEEDED, **(environ or {})}, **arguments)


def test_defaults() -> None:
    """As the service's description has them."""
    found = read()
    assert found.rules == Rules(attempts=3, delay_s=1.0, max_delay_s=10.0)
    assert (found.base_url, found.api_key) == ("https://api.example.com", KEY)
    assert (found.key_environment, found.key_id) == ("production", KEY_ID)
    assert (found.log_level, found.log_auth, found.is_local) == ("", False, False)


def test_variables() -> None:
    """All of them."""
    found = read(
        {
            "SERVICE_ENVIRONMENT": "production",
            "SERVICE_RETRY_ATTEMPTS": "5",
            "SERVICE_RETRY_DELAY": "250",
            "SERVICE_MAX_RETRY_DELAY": "2000",
            "SERVICE_LOG_LEVEL": "DEBUG",
            "SERVICE_LOG_AUTH": "true",
        }
    )
    assert found.rules == Rules(attempts=5, delay_s=0.25, max_delay_s=2.0)
    assert (found.log_level, found.log_auth) == ("debug", True)


def test_arguments_come_first() -> None:
    """Before variables, also zero and false."""
    found = read(
        {"SERVICE_RETRY_ATTEMPTS": "5", "SERVICE_LOG_AUTH": "true"},
        api_key=DEVELOPMENT,
        base_url="http://127.0.0.1:8080/base/",
        retries=0,
        log_auth=False,
        patient=True,
    )
    assert (found.rules.attempts, found.rules.patient, found.log_auth) == (0, True, False)
    assert (found.api_key, found.base_url) == (DEVELOPMENT, "http://127.0.0.1:8080/base")
    assert found.is_local


@pytest.mark.parametrize(
    "url",
    [
        "https://api.example.com",
        "https://api.example.com:8443/base",
        "https://localhost:8443",
        "http://localhost:8080",
        "http://127.0.0.1:8080",
        "http://127.8.9.1",
        "http://[::1]:8080",
    ],
)
def test_urls(url: str) -> None:
    """https, and http to this machine."""
    assert read(base_url=url).base_url == url


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "is not set"),
        ("http://api.example.com", "expected https://"),
        ("http://127.0.0.1.example.com", "expected https://"),
        ("http://localhost.example.com", "expected https://"),
        ("http://gateway.localhost", "expected https://"),
        ("http://10.0.0.1", "expected https://"),
        ("http://[::ffff:10.0.0.1]", "expected https://"),
        ("ftp://api.example.com", "expected https://HOST"),
        ("api.example.com", "expected https://HOST"),
        ("https://", "expected https://HOST"),
        ("https://user:hunter2@api.example.com", "user or password"),
        ("https://api.example.com?x=1", "query or a fragment"),
        ("https://api.example.com#x", "query or a fragment"),
        ("https://api.example.com/a b", "expected https://HOST"),
        ("https://api.example.com:port", "not a URL"),
        ("https://[::1", "not a URL"),
    ],
)
def test_refused_urls(url: str, message: str) -> None:
    """A key is not sent in clear text over a network; passwords are not shown."""
    with pytest.raises(SettingsInvalid, match=message) as found:
        read({"SERVICE_BASE_URL": url})
    assert "hunter2" not in str(found.value)


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"SERVICE_API_KEY": ""}, "no API key"),
        ({"SERVICE_API_KEY": "gwk_production_a b"}, "has 18 characters, with spaces"),
        ({"SERVICE_API_KEY": "schlüssel-geheim"}, "has 16 characters"),
        ({"SERVICE_API_KEY": "k" * 600}, "has 600 characters"),
        ({"SERVICE_RETRY_ATTEMPTS": "many"}, "found 'many', expected a number from 0 to 100"),
        ({"SERVICE_RETRY_ATTEMPTS": "101"}, "expected a number from 0 to 100"),
        ({"SERVICE_RETRY_DELAY": "-1"}, "found '-1'"),
        ({"SERVICE_MAX_RETRY_DELAY": "1e3"}, "found '1e3'"),
        ({"SERVICE_LOG_LEVEL": "loud"}, "expected one of debug"),
        ({"SERVICE_LOG_AUTH": "yes"}, "expected one of true, false"),
        ({"SERVICE_ENVIRONMENT": "development"}, "the key is of the environment 'production'"),
    ],
)
def test_refused_variables(environ: dict[str, str], message: str) -> None:
    """What was found and what was expected, and nothing of the key."""
    with pytest.raises(SettingsInvalid, match=message) as found:
        read(environ)
    key = environ.get("SERVICE_API_KEY") or KEY
    assert key not in str(found.value)


@pytest.mark.parametrize("name", ["timeout_s", "patience_s"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf")])
def test_refused_times(name: str, value: float) -> None:
    """Seconds above zero."""
    with pytest.raises(SettingsInvalid, match=name):
        read(**{name: value})


def test_a_key_of_another_service() -> None:
    """Of what is not a key of the gateway, the environment is not known, so it is not compared."""
    found = read({"SERVICE_API_KEY": "another-key", "SERVICE_ENVIRONMENT": "development"})
    assert (found.key_environment, found.key_id) == ("", "")


def test_the_key_is_not_shown() -> None:
    """Where settings are printed."""
    assert KEY not in repr(read())


VISIBLE = st.text(st.characters(codec="ascii", exclude_categories=["C"]), max_size=60)


@reaches(0.05)
@given(
    mostly(
        st.dictionaries(st.just("SERVICE_API_KEY"), VISIBLE),
        st.dictionaries(st.sampled_from([*NEEDED, "SERVICE_ENVIRONMENT"]), st.text(max_size=60)),
    )
)
def test_any_text(environ: dict[str, str]) -> None:
    """Settings with what was given, or SettingsInvalid."""
    try:
        found = read(environ)
    except SettingsInvalid:
        return
    reached()
    assert found.api_key == environ.get("SERVICE_API_KEY", KEY).strip()


def test_logging() -> None:
    """A level is set where one is asked for, and else left as it is."""
    logger = logging.getLogger("gateway_client")
    before = logger.level, list(logger.handlers)
    try:
        logger.setLevel(logging.ERROR)
        configure_logging(read())
        assert logger.level == logging.ERROR
        configure_logging(read(log_level="debug"))
        assert logger.level == logging.DEBUG
        configure_logging(read(log_level="debug"))
        assert len(logger.handlers) <= 1
    finally:
        logger.setLevel(before[0])
        logger.handlers[:] = before[1]
