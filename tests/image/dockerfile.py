"""A Dockerfile as values: its stages, and the text of each instruction.

It refuses instructions that the project's Dockerfile does not use, so that no test misses one.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

_KNOWN = frozenset(
    ("ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "RUN")
    + ("STOPSIGNAL", "USER", "VOLUME", "WORKDIR")
)


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction. text: all after its name, lines joined: "10001:10001" """

    word: str
    text: str

    @property
    def arguments(self) -> list[str]:
        """A JSON list, or else words as in a shell."""
        if self.text.startswith("["):
            return [str(each) for each in json.loads(self.text)]
        return shlex.split(self.text)

    @property
    def pairs(self) -> dict[str, str]:
        """NAME=VALUE words, of ENV and LABEL."""
        return dict(word.split("=", 1) for word in self.arguments)


@dataclass(frozen=True, slots=True)
class Stage:
    """What follows a FROM. base: as written, name: after AS, or ""."""

    base: str
    name: str
    instructions: tuple[Instruction, ...]

    def all(self, word: str) -> list[Instruction]:
        return [each for each in self.instructions if each.word == word]

    def the(self, word: str) -> Instruction:
        (found,) = self.all(word)
        return found

    @property
    def environment(self) -> dict[str, str]:
        return {name: value for env in self.all("ENV") for name, value in env.pairs.items()}


@dataclass(frozen=True, slots=True)
class Dockerfile:
    """arguments: the ARG lines before the first stage, by name"""

    arguments: dict[str, str]
    stages: tuple[Stage, ...]

    @property
    def build(self) -> Stage:
        (found,) = (stage for stage in self.stages if stage.name == "build")
        return found

    @property
    def final(self) -> Stage:
        return self.stages[-1]


def read_dockerfile(text: str) -> Dockerfile:
    """Parse a Dockerfile. Raises ValueError for an unknown instruction."""
    arguments: dict[str, str] = {}
    stages: list[tuple[str, str, list[Instruction]]] = []
    for instruction in map(_read_instruction, _logical_lines(text)):
        if instruction.word == "FROM":
            base, _, name = instruction.text.partition(" AS ")
            stages.append((base, name, []))
        elif stages:
            stages[-1][2].append(instruction)
        else:
            assert instruction.word == "ARG", instruction
            arguments |= instruction.pairs
    return Dockerfile(
        arguments, tuple(Stage(base, name, tuple(all_)) for base, name, all_ in stages)
    )


def _logical_lines(text: str) -> list[str]:
    """The lines without comments; a line that ends in a backslash is joined with the next one."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [line.strip() for line in joined.splitlines() if line.strip()]


def _read_instruction(line: str) -> Instruction:
    word, _, text = line.partition(" ")
    if word not in _KNOWN:
        raise ValueError(f"found '{word}', expected one of {', '.join(sorted(_KNOWN))}")
    return Instruction(word, text.strip())


def sources(copy: Instruction) -> tuple[str | None, list[str], str]:
    """A COPY's source stage, or None for the context; its sources; its target."""
    words = shlex.split(copy.text)
    options = [word for word in words if word.startswith("--")]
    *what, where = (word for word in words if not word.startswith("--"))
    stage = next((word.removeprefix("--from=") for word in options), None)
    return stage, what, where


def is_in_context(path: Path, ignore: str) -> bool:
    """Whether .dockerignore lets a path, relative to the context, into the build."""
    inside = True
    for rule in filter(None, (line.partition("#")[0].strip() for line in ignore.splitlines())):
        pattern = rule.removeprefix("!")
        # A pattern that matches a folder also matches everything in it.
        if any(_matches(each, pattern) for each in (path, *path.parents)):
            inside = rule.startswith("!")
    return inside


def _matches(path: Path, pattern: str) -> bool:
    if path == Path("."):
        return False
    if pattern.startswith("**/"):
        return path.match(pattern.removeprefix("**/"))
    return len(path.parts) == len(Path(pattern).parts) and path.match(pattern)
