"""What has been seen: the store for one process, against a model."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from gateway_client.webhooks import MemorySeen
from hypothesis import given
from hypothesis import strategies as st

from tests.kit.reach import reached, reaches

#: (operation, key, seconds), or the seconds that pass.
STEPS = st.one_of(
    st.tuples(
        st.sampled_from(["add", "put", "remove"]), st.sampled_from("abcde"), st.integers(1, 9)
    ),
    st.integers(1, 5),
)


@reaches(0.05)
@given(st.integers(1, 6), st.lists(STEPS, max_size=60))
def test_it_keeps_what_it_is_given(most: int, steps: list[Any]) -> None:
    """A value stays for its time, unless it is removed, or there are too many after it."""
    time = 0.0
    seen = MemorySeen(most, clock=lambda: time)
    model: dict[str, tuple[str, float]] = {}
    for number, step in enumerate(steps):
        if isinstance(step, int):
            time += step
            continue
        name, key, seconds = step
        value, ends = str(number), time + seconds
        if name == "remove":
            seen.remove(key)
            model.pop(key, None)
            continue
        if name == "put":
            seen.put(key, value, seconds)
        else:
            found = model.get(key, ("", 0.0))
            expected = found[0] if found[1] > time else None
            assert seen.add(key, value, seconds) == expected
            if expected is not None:
                continue
        model.pop(key, None)
        model[key] = (value, ends)
        if len(model) > most:
            del model[next(iter(model))]
        reached()
        assert len(seen) == len(model) <= most


def test_the_end_of_a_value() -> None:
    """At its end it is no longer there."""
    time = 100.0
    seen = MemorySeen(clock=lambda: time)
    assert seen.add("evt_1", "busy", 60) is None
    time = 159.9
    assert seen.add("evt_1", "busy", 60) == "busy"
    time = 160.0
    assert seen.add("evt_1", "busy", 60) is None


def test_one_of_many_threads_claims() -> None:
    """However many ask at once."""
    seen = MemorySeen()
    start = threading.Barrier(8)
    found: list[str | None] = []

    def claim() -> None:
        start.wait()
        for number in range(50):
            found.append(seen.add(str(number), "busy", 60))

    threads = [threading.Thread(target=claim) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found.count(None) == 50


def test_no_more_than_its_room() -> None:
    """The key is dropped that was kept first; a claim that became a note counts from the note."""
    seen = MemorySeen(2, clock=lambda: 0.0)
    for key in ("evt_1", "evt_2"):
        assert seen.add(key, "busy", 60) is None
    seen.put("evt_1", "done", 60)
    assert seen.add("evt_3", "busy", 60) is None
    assert seen.add("evt_1", "busy", 60) == "done"
    assert seen.add("evt_2", "busy", 60) is None
    assert len(seen) == 2


@pytest.mark.parametrize("most", [0, -1])
def test_room_for_nothing(most: int) -> None:
    """Is a mistake."""
    with pytest.raises(ValueError, match=f"most: found {most}, expected at least 1"):
        MemorySeen(most)
