"""The tables of docs/mcp-clients.md, drawn from runs: `python -m tests.judges.tables` renews them.

It takes a minute. What stands between two marks of the page is replaced.
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.judges.clients import CASES, Case, Shown, clients, everyone
from tests.judges.conformance import REVISIONS, Compared, Verdicts, compare
from tests.judges.environments import missing, versions

PAGE: Final = Path(__file__).parents[2] / "docs" / "mcp-clients.md"
BEGIN: Final = "<!-- {}: begin (made by `python -m tests.judges.tables`) -->"
END: Final = "<!-- {}: end -->"
#: The longest text of a cell.
MOST: Final = 230

Found = Mapping[str, Mapping[str, Shown]]


def clients_table(found: Found) -> str:
    """What each client shows and whether its session goes on, a row for each client."""
    rows = [
        [clients()[name].label, *(_cell(cases[case], CASES[case]) for case in CASES)]
        for name, cases in found.items()
    ]
    return _table(["client", *CASES], rows)


def _cell(shown: Shown, case: Case) -> str:
    if shown.outcomes[case.at] == "ok":
        return "nothing"
    what = "message" if shown.has_message(case) else "status"
    return what if case.at == 0 or shown.goes_on(case) else f"{what}, lost"


def texts(found: Found) -> str:
    """The texts that are shown, a table for each case."""
    parts = []
    for name, case in CASES.items():
        same: dict[str, list[str]] = {}
        for client, cases in found.items():
            step = cases[name].steps[case.at]
            text = plain(step.text) + (" (result)" if step.outcome == "result" else "")
            text = "nothing: it succeeds" if step.outcome == "ok" else text
            same.setdefault(text, []).append(clients()[client].label)
        rows = [["; ".join(who), text] for text, who in same.items()]
        parts.append(f"**`{name}`: {case.title}.**\n\n{_table(['clients', 'shown'], rows)}")
    return "\n".join(parts)


def plain(text: str) -> str:
    """A shown text in one line, without what differs between two runs; of JSON its message."""
    text = re.sub(r'\{.*?("message": "[^"]*").*', r"{… \1 …", " ".join(text.split()))
    text = re.sub(r"\b\d+ seconds?\b", "N seconds", text)
    text = re.sub(r"http://127\.0\.0\.1:\d+", "http://HOST", text)
    return (text if len(text) <= MOST else text[: MOST - 1] + "…").replace("|", "\\|")


def conformance_table(compared: Compared) -> str:
    """How many checks of each scenario pass, of how many: directly and by the gateway."""
    names = sorted({name for pair in compared.values() for each in pair for name in each.scenarios})
    header = ["scenario"]
    for revision in REVISIONS:
        header += [f"{revision} direct", "by the gateway"]
    rows = [
        [name, *(_passed(each, name) for revision in REVISIONS for each in compared[revision])]
        for name in names
    ]
    return _table(header, rows)


def _passed(verdicts: Verdicts, scenario: str) -> str:
    if scenario not in verdicts.scenarios:
        return ""
    count = verdicts.count(scenario)
    judged = count.total() - count["INFO"] - count["SKIPPED"]
    return f"{count['SUCCESS']} of {judged}"


def used() -> str:
    """The versions that were run."""
    rows = [
        [f"`{name.rpartition('/')[2] if name.startswith('sdk-') else name}`", version]
        for name, version in versions().items()
    ]
    return _table(["package", "version"], sorted(rows))


def _table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def replaced(page: str, name: str, text: str) -> str:
    """The page with this text between its marks of this name."""
    begin, end = BEGIN.format(name), END.format(name)
    before, found, rest = page.partition(begin)
    _, ended, after = rest.partition(end)
    assert found, f"{PAGE}: no mark {begin}"
    assert ended, f"{PAGE}: no mark {end}"
    return f"{before}{begin}\n\n{text}\n{end}{after}"


async def runs(folder: Path) -> tuple[Found, Compared]:
    return await everyone(folder / "clients"), await compare(folder / "conformance")


def main() -> None:
    if why := missing():
        sys.exit(why)
    with tempfile.TemporaryDirectory() as folder:
        found, compared = asyncio.run(runs(Path(folder)))
    page = PAGE.read_text(encoding="utf-8")
    for name, text in (
        ("clients", clients_table(found)),
        ("texts", texts(found)),
        ("conformance", conformance_table(compared)),
        ("versions", used()),
    ):
        page = replaced(page, name, text)
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
