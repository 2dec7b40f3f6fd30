"""The limit on descriptors is raised as far as it goes without rights."""

from __future__ import annotations

import resource
import sys

import pytest

from gateway.runtime.descriptors import raise_limit


@pytest.mark.parametrize(
    ("limits", "takes", "expected"),
    [
        ((1024, 4096), True, 4096),
        ((4096, 4096), True, 4096),
        ((1024, resource.RLIM_INFINITY), True, sys.maxsize),
        ((256, resource.RLIM_INFINITY), False, 256),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), True, sys.maxsize),
    ],
)
def test_the_soft_limit_becomes_the_hard_one(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], takes: bool, expected: int
) -> None:
    """Where the system does not let us, it stays what it was."""
    asked: list[tuple[int, int]] = []

    def set_limit(what: int, to: tuple[int, int]) -> None:
        assert what == resource.RLIMIT_NOFILE
        if not takes:
            raise ValueError("not so many")
        asked.append(to)

    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", set_limit)
    assert raise_limit() == expected
    assert all(to == (limits[1], limits[1]) for to in asked)
