"""The profile: timers charge each step with its own time, and each sample belongs to a step."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.bench import profile, steps
from tests.bench.profile import Row

SAMPLES = """
\tffffffff8211 tcp_sendmsg ([kernel.kallsyms])
\tffffffff8212 __x64_sys_sendto ([kernel.kallsyms])
\tffffffff8215 do_syscall_64 ([kernel.kallsyms])
\t        1234 send (/usr/lib/libc.so.6)

\tffffffff8211 skb_copy ([kernel.kallsyms])
\tffffffff8212 ksys_read ([kernel.kallsyms])

\tffffffff8213 ep_poll ([kernel.kallsyms])
\tffffffff8212 do_epoll_wait ([kernel.kallsyms])

\tffffffff8214 asm_sysvec_apic_timer ([kernel.kallsyms])

\t        5678 [unknown] (/venv/uvloop/loop.cpython-311-x86_64-linux-gnu.so)

\t        5678 redisReaderFeed (/venv/hiredis/hiredis.cpython-311-x86_64-linux-gnu.so)

\t        9abc _PyEval_EvalFrameDefault (/usr/bin/python3.11)

\tffffffff8216 do_fault ([kernel.kallsyms])
\t        9abc _PyEval_EvalFrameDefault (/usr/bin/python3.11)

"""


def test_samples_are_sorted() -> None:
    """A sample within a system call belongs to that call; another to its innermost function."""
    assert profile.kinds_in(SAMPLES) == Counter(
        {
            profile.SEND: 1,
            profile.RECEIVE: 1,
            profile.WAIT: 1,
            profile.KERNEL: 2,
            profile.LOOP: 1,
            profile.REPLIES: 1,
            profile.OURS: 1,
        }
    )


def test_our_code_is_split() -> None:
    """Our code's row becomes its steps, in proportion; the sum stays."""
    rows = [Row(profile.SEND, 6.0), Row(profile.OURS, 12.0), Row(profile.REDIS, 2.0)]
    assert profile.combined(rows, {"judge": 1.0, "account": 3.0}) == [
        Row(profile.SEND, 6.0),
        Row("judge", 3.0),
        Row("account", 9.0),
        Row(profile.REDIS, 2.0),
    ]


def test_table_has_shares() -> None:
    """Each row has its microseconds and its share, and the last line has the sum."""
    text = profile.table([Row("judge", 3.0), Row(profile.REDIS, 1.0)], markdown=True)
    assert text.splitlines()[2:] == [
        "| judge | 3.0 | 75% |",
        "| Redis | 1.0 | 25% |",
        "| all | 4.0 |  |",
    ]


def test_a_step_is_charged_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of a timed function that is called belongs to its own step, not to the caller's."""
    # The caller begins at 0, the called function at 3; that ends at 5, the caller at 6.
    ticks = iter([0.0, 3.0, 5.0, 6.0])
    monkeypatch.setattr(steps, "_clock", lambda: next(ticks))
    watch = steps.Stopwatch()
    inside = watch.timed("inside", lambda: None)
    watch.timed("outside", inside)()
    assert watch.own_s == {"inside": 2.0, "outside": 4.0}
    assert watch.net_s(within_s=0.5, around_s=1.0) == {"inside": 1.5, "outside": 2.5}


def test_steps_add_up() -> None:
    """The steps of a request are all there, and together they are the whole."""
    whole_us, split = steps.split(runs=3)
    assert list(split) == list(dict.fromkeys(step for step, *_ in steps.STEPS))
    assert sum(split.values()) == pytest.approx(whole_us)
    # After the stopwatch the functions are unwrapped.
    assert all(getattr(owner, name).__name__ == name for _, owner, name in steps.STEPS)
