"""The classes of errors."""

from __future__ import annotations

import copy
import pickle

import gateway_client
import pytest
from gateway_client import errors


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, errors.InvalidRequest),
        (401, errors.Unauthorized),
        (403, errors.Forbidden),
        (404, errors.NotFound),
        (422, errors.InvalidRequest),
        (500, errors.ServerError),
        (599, errors.ServerError),
    ],
)
def test_classes(status: int, expected: type[errors.ApiError]) -> None:
    """By the status."""
    assert errors.class_of(status) is expected


def test_the_request_id_is_in_the_text() -> None:
    """So that it is in a log where the error is."""
    found = errors.NotFound("No such thing.", status=404, request_id="ca63-1", code="NOT_FOUND")
    assert str(found) == "No such thing. (request ca63-1)"
    assert (found.message, found.status, found.code) == ("No such thing.", 404, "NOT_FOUND")


def test_all_are_exported() -> None:
    """`gateway_client` has each error by its name, and nothing else by any name."""
    for name in gateway_client.__all__:
        assert getattr(gateway_client, name) is not None
    public = {
        name
        for name, each in vars(errors).items()
        if isinstance(each, type) and issubclass(each, errors.GatewayError)
    }
    assert public <= set(gateway_client.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        gateway_client.nothing  # noqa: B018


@pytest.mark.parametrize(
    "error",
    [
        errors.SettingsInvalid("no key"),
        errors.ConnectionFailed("GET /v1/a: ReadError", request_id="r-1"),
        errors.NotFound("No.", status=404, request_id="r-1", code="NOT_FOUND", faults=[{"a": 1}]),
        errors.RateLimited("Wait.", status=429, retry_after=7.0, limit=60, remaining=0, reset=9),
        errors.ServerError("Later.", status=503, retry_after=None),
    ],
)
def test_from_one_process_to_another(error: errors.GatewayError) -> None:
    """Pools of processes send errors back, and some programs copy them."""
    for made in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(made) is type(error)
        assert (str(made), vars(made)) == (str(error), vars(error))
