"""Generates parts of the chart: values.schema.json, the README's table, the shipped policies.

`python -m helm.scripts.generate` from the top of the checkout writes them; with `--check` it only
prints the stale ones, and fails if there are any.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Final

from helm.scripts.readme import with_table
from helm.scripts.schema import build_schema
from helm.scripts.values import read_values

CHART: Final = Path(__file__).resolve().parents[1]
POLICIES: Final = CHART.parent / "policies"


def made() -> dict[Path, str]:
    """Return each generated file and its text."""
    values = read_values((CHART / "values.yaml").read_text(encoding="utf-8"))
    readme = CHART / "README.md"
    schema = json.dumps(build_schema(values), indent=2, ensure_ascii=False)
    shipped = {
        CHART / "files" / "policies" / path.name: path.read_text(encoding="utf-8")
        for path in sorted(POLICIES.glob("*.yaml"))
    }
    return {
        CHART / "values.schema.json": schema + "\n",
        readme: with_table(readme.read_text(encoding="utf-8"), values),
        **shipped,
    }


def stale() -> list[Path]:
    """Return the files that are not up to date, and policies that are no longer shipped."""
    wanted = made()
    extra = [path for path in (CHART / "files" / "policies").iterdir() if path not in wanted]
    return [path for path, text in wanted.items() if _text(path) != text] + extra


def main(arguments: list[str]) -> int:
    """Return the exit status: 1 if `--check` finds a stale file."""
    parser = argparse.ArgumentParser(description="Make the generated parts of the chart.")
    parser.add_argument("--check", action="store_true", help="only print stale files")
    check = parser.parse_args(arguments).check
    wanted, found = made(), stale()
    for path in found:
        print("stale" if check else "made", path.relative_to(CHART.parent))
        if not check:
            if path in wanted:
                path.write_text(wanted[path], encoding="utf-8")
            else:
                path.unlink()
    return int(check and bool(found))


def _text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
