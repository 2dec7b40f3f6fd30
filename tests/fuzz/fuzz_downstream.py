"""A coverage-guided fuzzer (atheris) of everything that reads bytes from the network.

    make fuzz                                     long: FUZZ_SECONDS=600
    python -m tests.fuzz.fuzz_downstream CRASH    repeats a finding

The first byte of an input selects what reads the rest: a client connection with a gateway behind
it, the parser of upstreams' heads, the reader of chunks, or an upstream's whole connection; the
second selects how it is cut. An exception that is not caught, an error of the event loop, a request
at the upstream that is not exactly HTTP or was not admitted: each is a finding, written to a file
`crash-…`. The first inputs are the cases of `tests/wire_cases`.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
from pathlib import Path

import atheris  # type: ignore[import-untyped,unused-ignore]

with atheris.instrument_imports(include=["gateway.http1", "gateway.proxy"]):
    from gateway.http1.framing import ChunkedReader
    from gateway.http1.response import ResponseHead, parse_response_head
    from tests.wire.bench import KEY_TEXTS, MemoryBench
    from tests.wire.cases import read_all
    from tests.wire.judge import read_answers

KEY = KEY_TEXTS[b"{key}"]
GOOD = b"GET /api/x HTTP/1.1\r\nHost: gateway.test\r\napiKey: %b\r\n\r\n" % KEY
#: Replaced by a valid key in inputs, as no mutation finds one.
MARK = b"{key}"

#: Most findings are short, and short inputs are soon tried.
_MOST_INPUT_BYTES = 4096


def seeds() -> list[bytes]:
    """The first inputs: every short case, for each reader that it fits."""
    cases = read_all()
    found = [b"\0\0" + b"".join(case.sends) for case in cases]
    found += [b"\1\0" + answer for case in cases for answer in case.answers]
    found += [b"\3\0" + answer for case in cases for answer in case.answers]
    chunked = (b"".join(case.sends) for case in cases if b"chunked" in b"".join(case.sends))
    found += [b"\2\0" + one.partition(b"\r\n\r\n")[2] for one in chunked]
    return [one for one in found if len(one) <= _MOST_INPUT_BYTES]


def cut(data: bytes, step: int) -> list[bytes]:
    """The data in pieces of `step` bytes; 0: whole."""
    return [data[at : at + step] for at in range(0, len(data), step)] if step else [data]


class Fuzzer:
    """One gateway in memory for all inputs."""

    def __init__(self, folder: Path) -> None:
        self.bench = MemoryBench(folder)

    def one(self, data: bytes) -> None:
        """Try one input. Raises an exception for a finding."""
        if len(data) < 2:
            return
        readers = (self.client, self.head, self.chunks, self.upstream)
        readers[data[0] % 4](data[2:], data[1] % 16)

    def client(self, data: bytes, step: int) -> None:
        """Data of a client."""
        outcome = self.bench.run([cut(data.replace(MARK, KEY), step)])
        self._check()
        requests = self.bench.upstream.requests
        assert len(requests) <= self.bench.limiter.admitted <= len(requests) + 1
        assert KEY not in outcome.written
        if b"HEAD" not in data:
            read_answers(outcome.written, (), outcome.ended)

    def upstream(self, data: bytes, step: int) -> None:
        """Data of an upstream, which then closes, or waits."""
        outcome = self.bench.run([[GOOD]], [data], hangs_up=bool(step % 2))
        self._check()
        answers, _ = read_answers(outcome.written, (), outcome.ended)
        assert len(answers) <= 1, "an upstream answered more than it was asked"

    def head(self, data: bytes, _: int) -> None:
        """An upstream's head."""
        parsed = parse_response_head(data)
        assert isinstance(parsed, ResponseHead | str)

    def chunks(self, data: bytes, step: int) -> None:
        """A chunked body: its payload and its end are the same for any cut."""
        outcomes = []
        for size in (0, step):
            reader, payload, beyond = ChunkedReader(), b"", b""
            for piece in cut(data, size):
                if reader.done:
                    beyond += piece
                elif reader.fault is None:
                    part, rest = reader.feed(piece)
                    payload, beyond = payload + part, beyond + rest
            outcomes.append((reader.done, reader.done and (payload, beyond)))
        assert outcomes[0] == outcomes[1]

    def _check(self) -> None:
        assert not self.bench.complaints, self.bench.complaints
        assert not self.bench.upstream.faults, self.bench.upstream.faults


def main() -> None:
    """Fuzz until interrupted; arguments are libFuzzer's."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        # libFuzzer ends its process at once, without Python's clean-up, so a second process
        # fuzzes, and this one removes the folder.
        if not (child := os.fork()):
            _fuzz(Path(folder))
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches both; the fuzzer ends
        _, status = os.waitpid(child, 0)
    sys.exit(os.waitstatus_to_exitcode(status))


def _fuzz(folder: Path) -> None:
    """Fuzz; does not return.

    folder: an empty one, for the policies and the first inputs
    """
    logging.disable(logging.CRITICAL)  # invalid answers log warnings, and here all are invalid
    corpus = folder / "corpus"
    corpus.mkdir()
    for number, seed in enumerate(seeds()):
        (corpus / f"case-{number}").write_bytes(seed)
    fuzzer = Fuzzer(folder / "policies")
    arguments = sys.argv[1:]
    replaying = any(Path(one).is_file() for one in arguments)
    if not replaying:
        arguments = [*arguments, str(corpus), f"-max_len={_MOST_INPUT_BYTES}"]
    atheris.Setup([sys.argv[0], *arguments], fuzzer.one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
