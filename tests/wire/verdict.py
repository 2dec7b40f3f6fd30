"""Compares the outcome of a case with its file."""

from __future__ import annotations

from tests.wire.bench import KEY_TEXTS
from tests.wire.cases import Case, Expected
from tests.wire.judge import Message, read_answers
from tests.wire.upstream import JudgingUpstream

#: Sent after a case that leaves its connection open: it must be read as a separate request.
PROBE = b"GET /api/probe HTTP/1.1\r\nHost: gateway.test\r\napiKey: %b\r\n\r\n" % KEY_TEXTS[b"{key}"]
_PROBED = Expected("GET /api/probe", (), b"")


def sends_of(case: Case) -> list[bytes]:
    """All that the client sends, with the probe."""
    return [*case.filled(KEY_TEXTS), *([PROBE] if case.ending == "stays" else [])]


def statuses_of(case: Case) -> list[str]:
    """All statuses that the client gets, with the probe's."""
    return [*case.statuses, *(["200"] if case.ending == "stays" else [])]


def judge(case: Case, written: bytes, ended: bool, upstream: JudgingUpstream) -> None:
    """Assert that the outcome is what the case expects."""
    assert not upstream.faults, upstream.faults
    statuses, left = read_statuses(written, case.methods, ended)
    assert statuses == statuses_of(case), written[-2000:]
    assert bool(left) == (case.ending == "broken"), left[:200]
    assert ended == (case.ending in {"closes", "broken"})
    for text in KEY_TEXTS.values():
        assert text not in written, "a key was sent to the client"
        assert text not in upstream.raw, "a key was forwarded to the upstream"
    expected = list(case.reaches or ())
    if case.ending == "stays":
        expected.append(_PROBED)
    elif case.reaches is None:
        assert not upstream.raw
    assert [one.start for one in upstream.requests] == [one.start for one in expected]
    for request, wanted in zip(upstream.requests, expected, strict=True):
        _compare(request, wanted)


def read_statuses(written: bytes, methods: tuple[str, ...], ended: bool) -> tuple[list[str], bytes]:
    """The statuses of all answers in order, with interim ones and that of a truncated answer."""
    answers, left = read_answers(written, methods, ended)
    statuses = [status for one in answers for status in (*one.interim, one.start)]
    if left:
        statuses.append(left[9:12].decode())
    return statuses, left


def _compare(request: Message, wanted: Expected) -> None:
    assert request.body == wanted.body
    for name, value in wanted.fields:
        found = request.all(name)
        assert found == ([] if value is None else [value]), f"{name}: {found}"
