"""What is different where pytest tries a mutant: the generated examples of properties."""

from __future__ import annotations

import hypothesis
import pytest
from hypothesis import Phase

#: A failing example is not made smaller, as nobody reads it.
PHASES = (Phase.explicit, Phase.generate)


@pytest.hookimpl(trylast=True)
def pytest_configure() -> None:
    """Take the profile that was loaded before, with the same examples in each run."""
    hypothesis.settings.register_profile(
        "mutants", hypothesis.settings(), phases=PHASES, derandomize=True, database=None
    )
    hypothesis.settings.load_profile("mutants")
