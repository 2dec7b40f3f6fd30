"""Suites: what every implementation of a port must do, whatever it stores where.

A suite runs whole on the store in this process and on one real Redis, which differ in everything
that it asserts. Each other rig runs a sample of it, the tests that are marked with `every_rig`:

- A worker's shares change which values a limit has, and what is reported of it.
- A cluster changes which node has a name, and decides in two steps where names are in several
  slots. Sentinels change only which server it is.
- Another server changes the release: the commands, their options and replies, and how Lua computes.

So a sample has, for each script and command of its port, the test that reaches most of it, and for
the limiter the properties in which all kinds of limits meet. The tests that it lacks are about
arithmetic and order, which are decided by the same code on each rig.
"""

from __future__ import annotations

from typing import TypeVar

_Test = TypeVar("_Test")


def every_rig(test: _Test) -> _Test:
    """A decorator: this test of a suite is in its sample."""
    test.on_every_rig = True  # type: ignore[attr-defined]
    return test


def sample(suite: type) -> type:
    """A suite's tests for every rig, with all of its fixtures: a class to inherit from."""
    own = {name: each for name, each in vars(suite).items() if not name.startswith("__")}
    chosen = {
        name: each
        for name, each in own.items()
        if not name.startswith("test_") or hasattr(each, "on_every_rig")
    }
    assert any(name.startswith("test_") for name in chosen), f"{suite.__name__} has no sample"
    return type(f"{suite.__name__}Sample", (), {"__doc__": suite.__doc__, **chosen})
