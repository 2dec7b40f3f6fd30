"""Policy folders of one or few files, and their faults."""

from __future__ import annotations

from pathlib import Path

from gateway.policies.faults import Fault, PolicyFaults
from gateway.policies.load import load, read_policy

PLANS = "plans:\n  free: {rate: 60/minute, burst: 100}\n"
UPSTREAMS = 'upstreams:\n  api: {servers: ["http://127.0.0.1:9000"]}\n'
ROUTES = 'routes:\n  all: {match: "* /**", upstream: api}\n'


def write(folder: Path, **files: str) -> Path:
    """A folder with these files; `plans`, `upstreams` and `routes` have valid defaults."""
    for name, text in {"plans": PLANS, "upstreams": UPSTREAMS, "routes": ROUTES, **files}.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    return folder


def faults_of(folder: Path) -> list[Fault]:
    """The faults of a folder, in order; empty if it loads."""
    try:
        load(folder)
    except PolicyFaults as exc:
        return list(exc.faults)
    return []


def complaints(folder: Path) -> list[str]:
    """The same as text, with the folder's own path left out: "routes.yaml:2: routes.all…"."""
    return [str(fault).replace(f"{folder}/", "") for fault in faults_of(folder)]


def warnings_of(
    folder: Path, routes: str, plans: str = "free: {rate: 60/minute}", **files: str
) -> list[str]:
    """The warnings, without the folder. routes, plans: the entries, without the indentation"""
    lines = [f"  {line}" for line in routes.splitlines()]
    policy, found = read_policy(
        write(
            folder,
            routes="routes:\n" + "\n".join(lines) + "\n",
            plans="plans:\n" + "\n".join(f"  {line}" for line in plans.splitlines()) + "\n",
            **files,
        )
    )
    assert policy.warnings == tuple(map(str, found))
    return [str(warning).replace(f"{folder}/", "") for warning in found]
