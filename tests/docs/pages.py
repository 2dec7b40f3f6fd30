"""The documents as tests read them: headings, links and examples."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
#: Folders of the checkout whose documents are not the project's.
_OTHERS: Final = {"build", "dist"}
_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"\]\(([^()\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Example:
    """A fenced block. where: "docs/keys.md:12"; language: "yaml", or "" if none is given"""

    where: str
    language: str
    text: str


@dataclass(frozen=True, slots=True)
class Page:
    """One document. name: its path in the checkout, "docs/keys.md" """

    name: str
    text: str

    @property
    def path(self) -> Path:
        return ROOT / self.name

    @property
    def prose(self) -> str:
        """The text without examples and code."""
        return _CODE.sub("", _FENCE.sub("", self.text))

    def links(self) -> list[str]:
        """The targets of links and images, except on other sites."""
        found = _LINK.findall(self.prose)
        return [link for link in found if not re.match(r"[a-z]+:", link)]

    def anchors(self) -> set[str]:
        """The anchors of its headings, as GitHub derives them."""
        seen: Counter[str] = Counter()
        anchors = set()
        for heading in _HEADING.findall(_FENCE.sub("", self.text)):
            text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
            anchor = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            anchors.add(f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
            seen[anchor] += 1
        return anchors

    def examples(self, *languages: str) -> Iterator[Example]:
        """The fenced blocks; languages: only blocks of these"""
        for block in _FENCE.finditer(self.text):
            if not languages or block[2] in languages:
                line = self.text.count("\n", 0, block.start()) + 1
                yield Example(f"{self.name}:{line}", block[2], block[3])

    def section(self, heading: str) -> str:
        """The text below a heading, up to the next one."""
        found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", self.text, re.M | re.S)
        assert found is not None, f"{self.name} has no heading {heading}"
        return found[1]


@cache
def pages() -> tuple[Page, ...]:
    """Every document of the checkout."""
    paths = []
    for folder, folders, files in os.walk(ROOT):
        # The environment's alone has more files than all of the project.
        folders[:] = [each for each in folders if not (each.startswith(".") or each in _OTHERS)]
        found = (Path(folder, each) for each in files)
        paths += [each.relative_to(ROOT) for each in found if each.suffix == ".md"]
    return tuple(Page(str(path), (ROOT / path).read_text("utf-8")) for path in sorted(paths))


def page(name: str) -> Page:
    return next(each for each in pages() if each.name == name)


def guides() -> tuple[Page, ...]:
    """The pages for users, whose examples are tested."""
    return tuple(
        each
        for each in pages()
        if each.name.startswith("docs/")
        or each.name in ("README.md", "SECURITY.md", "helm/README.md", "loadtests/README.md")
    )


def rows(text: str) -> list[list[str]]:
    """The cells of a text's tables, without their heads."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    rules = [at for at, row in enumerate(cells) if set("".join(row)) <= set("-: |")]
    heads = {at - 1 for at in rules} | set(rules)
    return [row for at, row in enumerate(cells) if at not in heads]


def code_in(text: str) -> list[str]:
    """The texts in backticks."""
    return re.findall(r"`([^`]+)`", text)
