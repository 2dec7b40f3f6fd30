"""Fixtures of the chart's tests."""

from __future__ import annotations

import pytest

from tests.helm import tools


@pytest.fixture(params=sorted(tools.WHEELS), ids=lambda major: f"helm{major}")
def major(request: pytest.FixtureRequest) -> int:
    """Each helm in turn; skipped if helm is not available."""
    return _need(request.param)


@pytest.fixture
def latest() -> int:
    """The newest helm, for tests that do not depend on the version."""
    return _need(max(tools.WHEELS))


def _need(major: int) -> int:
    try:
        tools.helm(major)
    except tools.HelmUnavailable as reason:
        pytest.skip(str(reason))
    return major
