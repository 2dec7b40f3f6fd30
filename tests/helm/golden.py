"""The golden files: kept renders, so that a review shows what a change of the chart changes.

`python -m tests.helm.golden --update` writes them, `python -m tests.helm.golden` names those
that differ from the chart's render.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

import yaml

from tests.helm.chart import CHART, VARIANTS, Object, variant
from tests.helm.tools import WHEELS

FOLDER: Final = Path(__file__).with_name("golden")
_SHIPPED: Final = {
    path.read_text(encoding="utf-8").strip(): f"(helm/files/{path.relative_to(CHART / 'files')})"
    for path in (CHART / "files").rglob("*")
    if path.is_file() and path.suffix != ".pyc"
}
#: Replaces a secret's random entry in a golden file.
MADE: Final = "(made at random)"


def settled(objects: list[Object]) -> list[Object]:
    """The objects in a fixed order, without what differs between renders."""
    hidden = [
        {**entry, "data": dict.fromkeys(entry["data"], MADE)}
        if entry["kind"] == "Secret"
        else entry
        for entry in objects
    ]
    return sorted(hidden, key=lambda entry: (entry["kind"], entry["metadata"]["name"]))


def text_of(objects: list[Object]) -> str:
    """The objects as in a golden file: files of the chart are only named."""
    shown = [_named(entry) for entry in settled(objects)]
    return yaml.safe_dump_all(shown, sort_keys=False, width=100, allow_unicode=True)


def _named(entry: Object) -> Object:
    if entry["kind"] == "ConfigMap":
        data = {key: _SHIPPED.get(text.strip(), text) for key, text in entry["data"].items()}
        return {**entry, "data": data}
    if entry["kind"] == "PrometheusRule":
        groups = [group["name"] for group in entry["spec"]["groups"]]
        return {**entry, "spec": {"groups": groups}}
    return entry


def path_of(name: str) -> Path:
    return FOLDER / f"{name}.yaml"


def main(arguments: list[str]) -> int:
    """Return the exit status: 1 if a golden file is stale and not updated."""
    parser = argparse.ArgumentParser(description="Compare the kept renders of the chart.")
    parser.add_argument("--update", action="store_true", help="write them anew")
    update = parser.parse_args(arguments).update
    stale = False
    for name in VARIANTS:
        text, path = text_of(variant(max(WHEELS), name)), path_of(name)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            print("written" if update else "stale", path.name)
            stale = True
            if update:
                path.write_text(text, encoding="utf-8")
    return int(stale and not update)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
