"""The chart as helm renders it: objects, or an error, from values."""

from __future__ import annotations

import functools
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tests.helm.tools import helm

CHART: Final = Path(__file__).parents[2] / "helm"
CI: Final = CHART / "ci"
#: The values that the chart is tested with, by name.
VARIANTS: Final = sorted(
    path.name.removesuffix("-values.yaml") for path in CI.glob("*-values.yaml")
)
NAMESPACE: Final = "gateways"
RELEASE: Final = "release"
#: Kinds that a cluster may lack, and that this one has by default.
APIS: Final = ("monitoring.coreos.com/v1", "gateway.networking.k8s.io/v1")

Object = dict[str, Any]

#: libyaml's is ten times as fast, and not everywhere.
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Refused(Exception):
    """helm's message if it did not render."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster for helm: its kinds, and its address (None: there is none)."""

    apis: tuple[str, ...] = APIS
    server: str | None = None


def render(
    major: int,
    values: Mapping[str, object] | Path,
    cluster: Cluster = Cluster(),
) -> list[Object]:
    """All objects, including tests and hooks; not to be modified. Raises Refused.

    Without a server the same values are rendered once, also what the chart makes at random.
    """
    text = values.read_text("utf-8") if isinstance(values, Path) else yaml.safe_dump(dict(values))
    found = (_rendered if cluster.server else _render_once)(major, text, cluster)
    assert found, "a chart without objects tests nothing"
    return found


def _rendered(major: int, values: str, cluster: Cluster) -> list[Object]:
    asked = [part for api in cluster.apis for part in ("--api-versions", api)]
    if cluster.server:
        asked += [
            "--dry-run=server",
            "--disable-openapi-validation",
            "--kube-apiserver",
            cluster.server,
        ]
    words = ("template", RELEASE, str(CHART), "--namespace", NAMESPACE, *asked)
    text = run(major, *words, values=values)
    return [found for found in yaml.load_all(text, _LOADER) if found]


_render_once = functools.cache(_rendered)


def notes(major: int, values: Mapping[str, object] | Path) -> str:
    """The notes after an install. helm 3 needs a cluster for it."""
    words = ("install", RELEASE, str(CHART), "--namespace", NAMESPACE, "--dry-run=client")
    return run(major, *words, values=values).partition("\nNOTES:\n")[2]


def lint(major: int, values: Mapping[str, object] | Path) -> str:
    """The output of `helm lint --strict`. Raises Refused for a fault."""
    return run(major, "lint", "--strict", str(CHART), values=values)


def run(major: int, *words: str, values: Mapping[str, object] | Path | str | None = None) -> str:
    """helm's standard output. values: or their YAML. Raises Refused, and HelmUnavailable."""
    program = helm(major)
    with tempfile.TemporaryDirectory() as home:
        if values is not None and not isinstance(values, Path):
            text = values if isinstance(values, str) else yaml.safe_dump(dict(values))
            values = Path(home, "values.yaml")
            values.write_text(text, encoding="utf-8")
        done = subprocess.run(
            [str(program), *words, *(("--values", str(values)) if values else ())],
            # No clusters or settings of this machine.
            env={"PATH": os.environ["PATH"], "HOME": home, "KUBECONFIG": str(Path(home, "none"))},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    if done.returncode:
        raise Refused(f"{done.stdout}{done.stderr}")
    return done.stdout


def variant(major: int, name: str) -> list[Object]:
    """The objects of one of the variants; not to be modified."""
    return render(major, CI / f"{name}-values.yaml")


def one(objects: list[Object], kind: str, suffix: str = "") -> Object:
    """The object of a kind whose name has this suffix."""
    (found,) = (
        entry
        for entry in objects
        if entry["kind"] == kind and entry["metadata"]["name"].endswith(suffix)
    )
    return found


def pods(objects: list[Object]) -> Iterator[tuple[str, Object, Object]]:
    """Each pod of the objects: its owner, its labels and its spec."""
    for entry in objects:
        where = f"{entry['kind']}/{entry['metadata']['name']}"
        if entry["kind"] == "Pod":
            yield where, entry["metadata"].get("labels", {}), entry["spec"]
        elif "template" in entry.get("spec", {}):
            template = entry["spec"]["template"]
            yield where, template["metadata"]["labels"], template["spec"]


def containers(pod: Object) -> list[Object]:
    """All containers of a pod's spec."""
    return [*pod.get("initContainers", []), *pod["containers"]]


def deployment(objects: list[Object]) -> Object:
    """The gateway's."""
    return one([entry for entry in objects if component(entry) == "gateway"], "Deployment")


def component(entry: Object) -> str:
    """Of the release, to which an object belongs."""
    labels: dict[str, str] = entry["metadata"].get("labels", {})
    return labels.get("app.kubernetes.io/component", "")


def gateway(objects: list[Object]) -> Object:
    """The gateway's container."""
    return next(
        found
        for found in deployment(objects)["spec"]["template"]["spec"]["containers"]
        if found["name"] == "gateway"
    )


def settings(objects: list[Object]) -> dict[str, Any]:
    """The variables of the gateway's container: their values, or else their sources."""
    return {
        entry["name"]: entry.get("value", entry.get("valueFrom"))
        for entry in gateway(objects)["env"]
    }
