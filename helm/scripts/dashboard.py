"""Makes the dashboard: Grafana's JSON, from the short description in dashboard.yaml.

    python helm/scripts/dashboard.py           # write helm/files/dashboard.json
    python helm/scripts/dashboard.py --check   # check that the file is up to date

To add a panel, add it to a row of dashboard.yaml, which says what a panel may have.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

DESCRIPTION: Final = Path(__file__).with_suffix(".yaml")
FILE: Final = Path(__file__).parents[1] / "files" / "dashboard.json"
#: Links to the dashboard contain it; it must not change.
UID: Final = "rate-limiting-gateway"
#: The selection at the top. Outside Kubernetes there is no namespace, which ".*" matches, too.
OWN: Final = 'namespace=~"$namespace",job=~"$job"'
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH: Final = 24
_STAT_HEIGHT: Final = 4
_HEIGHT: Final = 8

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel, as dashboard.yaml describes it.

    queries: the name of each series -> its query, with "$own"
    steps:   colour -> from which value on; None: the lowest
    """

    title: str
    queries: dict[str, str]
    unit: str = "short"
    about: str = ""
    kind: str = "timeseries"
    stacked: bool = False
    steps: dict[str, float | None] = field(default_factory=lambda: {"green": None})
    width: int = 8


def read_rows(description: Path = DESCRIPTION) -> list[tuple[str, list[Panel]]]:
    """Return each row's title and panels. Raises TypeError if a panel has an unknown setting."""
    rows = yaml.safe_load(description.read_text(encoding="utf-8"))
    return [(row["row"], [Panel(**panel) for panel in row["panels"]]) for row in rows]


def build_dashboard(rows: list[tuple[str, list[Panel]]]) -> Json:
    """Return the dashboard as Grafana imports it."""
    return {
        "uid": UID,
        "title": "Rate-limiting gateway",
        "description": "Traffic, limits, keys, store and upstreams of the gateway.",
        "tags": ["gateway", "rate-limiting"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "links": [],
        "annotations": {"list": [_policy_changes()]},
        "templating": {"list": _variables()},
        "panels": list(_laid_out(rows)),
    }


def as_text(dashboard: Json) -> str:
    return json.dumps(dashboard, indent=1, ensure_ascii=False) + "\n"


def _variables() -> list[Json]:
    source = {"name": "datasource", "label": "Data source", "type": "datasource"}
    return [
        {**source, "query": "prometheus", "current": {}, "hide": 0, "refresh": 1},
        _choice("namespace", "Namespace", "label_values(gateway_build_info, namespace)"),
        _choice("job", "Job", 'label_values(gateway_build_info{namespace=~"$namespace"}, job)'),
    ]


def _choice(name: str, label: str, query: str) -> Json:
    """Return a variable with the values of a label; any can be selected, by default all."""
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": f"values of {name}"},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
        "hide": 0,
    }


def _policy_changes() -> Json:
    """Return a mark in every panel where the policy changed: many changes have this cause."""
    changed = "changes(gateway_policy_last_reload_success_timestamp_seconds{$own}[1m]) > 0"
    return {
        "name": "Policy changes",
        "datasource": _SOURCE,
        "enable": True,
        "iconColor": "purple",
        "expr": changed.replace("$own", OWN),
        "titleFormat": "The policy changed",
        "textFormat": "{{instance}}",
    }


def _laid_out(rows: list[tuple[str, list[Panel]]]) -> Iterator[Json]:
    """Yield rows from top to bottom, their panels from left to right, each with its position."""
    number, y = 0, 0
    for title, panels in rows:
        number += 1
        heading = {"id": number, "type": "row", "title": title, "collapsed": False, "panels": []}
        yield {**heading, "gridPos": {"x": 0, "y": y, "w": _WIDTH, "h": 1}}
        x, y, height = 0, y + 1, 0
        for panel in panels:
            if x + panel.width > _WIDTH:
                x, y = 0, y + height
            number += 1
            height = _STAT_HEIGHT if panel.kind == "stat" else _HEIGHT
            place = {"x": x, "y": y, "w": panel.width, "h": height}
            yield {"id": number, **_shown(panel), "gridPos": place}
            x += panel.width
        y += height


def _shown(panel: Panel) -> Json:
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "targets": [
            _target(chr(ord("A") + index), legend, text, panel.kind)
            for index, (legend, text) in enumerate(panel.queries.items())
        ],
        "fieldConfig": {"defaults": _field(panel), "overrides": []},
        "options": _options(panel.kind),
    }


def _target(letter: str, legend: str, text: str, kind: str) -> Json:
    is_table = kind == "table"
    return {
        "refId": letter,
        "datasource": _SOURCE,
        "expr": text.replace("$own", OWN),
        "legendFormat": legend,
        "instant": is_table,
        "range": not is_table,
        "format": "table" if is_table else "time_series",
    }


def _field(panel: Panel) -> Json:
    steps = [{"value": value, "color": colour} for colour, value in panel.steps.items()]
    defaults: Json = {"unit": panel.unit, "thresholds": {"mode": "absolute", "steps": steps}}
    if panel.kind == "timeseries":
        stacking = {"mode": "normal" if panel.stacked else "none", "group": "A"}
        fill = 25 if panel.stacked else 8
        custom = {"drawStyle": "line", "lineWidth": 1, "fillOpacity": fill, "showPoints": "never"}
        defaults |= {"min": 0, "custom": {**custom, "stacking": stacking, "spanNulls": False}}
    return defaults


def _options(kind: str) -> Json:
    if kind == "stat":
        reduce = {"calcs": ["lastNotNull"], "fields": "", "values": False}
        return {"reduceOptions": reduce, "colorMode": "value", "graphMode": "area"}
    if kind == "table":
        return {"showHeader": True}
    return {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }


def main(arguments: list[str] | None = None) -> int:
    """Return 0 if the file was written, or is up to date."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only compare")
    parser.add_argument("--file", type=Path, default=FILE, help="in place of %(default)s")
    chosen = parser.parse_args(arguments)
    text = as_text(build_dashboard(read_rows()))
    if not chosen.check:
        chosen.file.write_text(text, encoding="utf-8")
        return 0
    if chosen.file.exists() and chosen.file.read_text(encoding="utf-8") == text:
        return 0
    print(f"{chosen.file} is not up to date: run {Path(__file__).name}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
