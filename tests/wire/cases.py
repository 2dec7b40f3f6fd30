"""The cases of `tests/wire_cases`, read as its README describes them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "wire_cases"

_ESCAPE = re.compile(r"\\(x[0-9a-f]{2}|[rnt0\\])")
_SIMPLE = {"r": "\r", "n": "\n", "t": "\t", "0": "\0", "\\": "\\"}
_REPEAT = re.compile(r"\{([0-9]+)\*((?:[^{}\\]|\\.|\{[a-z]+\})+)\}")
_ENDINGS = frozenset({"closes", "stays", "waits", "broken"})


@dataclass(frozen=True, slots=True)
class Expected:
    """One request that must reach the upstream completely.

    start: "POST /api/x"; fields: name and value; None: it must be absent
    """

    start: str
    fields: tuple[tuple[str, bytes | None], ...]
    body: bytes


@dataclass(frozen=True, slots=True)
class Case:
    """One case.

    sends:    what the client sends, each after the previous one has had its effect
    answers:  what the upstream answers, each to one request; none: a plain 200
    hangs_up: the upstream closes after its answer
    statuses: of the answers, in order, interim ones included
    methods:  of the requests that get a final answer
    ending:   closes, stays, waits (for more of a message) or broken (an answer is truncated)
    reaches:  the requests that reach the upstream; None: not one byte does
    """

    name: str
    title: str
    sends: tuple[bytes, ...]
    answers: tuple[bytes, ...]
    hangs_up: bool
    statuses: tuple[str, ...]
    methods: tuple[str, ...]
    ending: str
    reaches: tuple[Expected, ...] | None

    def filled(self, keys: dict[bytes, bytes]) -> tuple[bytes, ...]:
        """The bytes to send, with real keys in place of `{key}` and similar."""
        sends = self.sends
        for mark, text in keys.items():
            sends = tuple(one.replace(mark, text) for one in sends)
        return sends


def read_all() -> list[Case]:
    """Every case, by name."""
    return [read_case(path.stem, path.read_text("ascii")) for path in sorted(FOLDER.glob("*.case"))]


def read_case(name: str, text: str) -> Case:
    """Read a case. Raises ValueError if it does not follow the README."""
    title, *sections = re.split(r"^--- ", text, flags=re.MULTILINE)
    parts: dict[str, list[list[str]]] = {}
    for section in sections:
        heading, *lines = section.removesuffix("\n").split("\n")
        parts.setdefault(heading, []).append(lines)
    if not title.startswith("# ") or set(parts) - _HEADINGS or not {"send", "expect"} <= set(parts):
        raise ValueError(f"{name}: a title in a comment, then the sections of the README")
    ((words,),) = parts["expect"]
    *statuses, ending = words.split()
    if ending not in _ENDINGS:
        raise ValueError(f"{name}: found {ending!r}, expected one of {sorted(_ENDINGS)}")
    hanging = parts.get("answer and close", [])
    upstream = parts.get("upstream", [["nothing"]])
    return Case(
        name,
        " ".join(line.removeprefix("# ") for line in title.strip().split("\n")),
        tuple(_bytes(lines) for lines in parts["send"]),
        tuple(_bytes(lines) for lines in parts.get("answer", []) + hanging),
        bool(hanging),
        tuple(status.rpartition(":")[2] for status in statuses),
        tuple(
            status.rpartition(":")[0] or "GET"
            for status in statuses
            if status == "101" or status[-3] != "1"
        ),
        ending,
        _reaching(upstream),
    )


_HEADINGS = frozenset({"send", "answer", "answer and close", "expect", "upstream"})


def _bytes(lines: list[str]) -> bytes:
    """Lines as bytes: each ends in CRLF unless it ends in a lone backslash."""
    parts = []
    for line in lines:
        if line != line.rstrip(" \t"):
            raise ValueError(f"{line!r}: white space at a line's end is written \\x20 or \\t")
        whole = not re.search(r"(?<!\\)(?:\\\\)*\\$", line)
        text = line if whole else line[:-1]
        text = _REPEAT.sub(lambda match: match[2] * int(match[1]), text)
        parts.append(_unescape(text) + (b"\r\n" if whole else b""))
    return b"".join(parts)


def _unescape(text: str) -> bytes:
    def one(match: re.Match[str]) -> str:
        word = match[1]
        return chr(int(word[1:], 16)) if word[0] == "x" and len(word) == 3 else _SIMPLE[word]

    return _ESCAPE.sub(one, text).encode("latin-1")


def _reaching(sections: list[list[str]]) -> tuple[Expected, ...] | None:
    if sections == [["nothing"]]:
        return None
    if sections == [["nothing whole"]]:
        return ()
    return tuple(map(_expected, sections))


def _expected(lines: list[str]) -> Expected:
    start, *rest = lines
    fields: list[tuple[str, bytes | None]] = []
    body = b""
    for line in rest:
        if line.startswith("!"):
            fields.append((line[1:], None))
        elif line.startswith("body: "):
            body = _unescape(line.removeprefix("body: "))
        else:
            name, _, value = line.partition(": ")
            fields.append((name, _unescape(value)))
    return Expected(start, tuple(fields), body)
