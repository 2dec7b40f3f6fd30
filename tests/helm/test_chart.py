"""The chart renders with either helm, into objects that a cluster accepts, as in golden files."""

from __future__ import annotations

import functools
import itertools
import tarfile
from pathlib import Path

import kubernetes_validate
import kubernetes_validate.utils
import pytest

from tests.helm import golden
from tests.helm.chart import CHART, CI, VARIANTS, Object, lint, run, variant
from tests.kit.rows import each_row

every_variant = each_row("name", VARIANTS)
#: The oldest Kubernetes that Chart.yaml allows, and the newest that is known here.
KUBERNETES = ("1.27", kubernetes_validate.latest_version())
#: Kinds that are not built into Kubernetes, and the fields that their specs may have.
CUSTOM = {
    "ServiceMonitor": {"jobLabel", "namespaceSelector", "selector", "endpoints"},
    "PodMonitor": {"jobLabel", "namespaceSelector", "selector", "podMetricsEndpoints"},
    "PrometheusRule": {"groups"},
    "HTTPRoute": {"parentRefs", "hostnames", "rules"},
}


@every_variant
def test_lint(major: int, name: str) -> None:
    """helm reports no errors or warnings."""
    assert "0 chart(s) failed" in lint(major, CI / f"{name}-values.yaml")


@every_variant
def test_both_helms_make_the_same(major: int, latest: int, name: str) -> None:
    """Both helms render the same objects, except for random values."""
    assert golden.settled(variant(major, name)) == golden.settled(variant(latest, name))


@every_variant
def test_renders_match_the_golden_files(latest: int, name: str) -> None:
    """The render is the golden file; after a change, run `python -m tests.helm.golden --update`."""
    assert golden.text_of(variant(latest, name)) == golden.path_of(name).read_text("utf-8")


def test_no_golden_file_is_left_over() -> None:
    """Each golden file belongs to a variant."""
    assert sorted(path.stem for path in golden.FOLDER.iterdir()) == VARIANTS


@pytest.fixture
def _quick_schemas(monkeypatch: pytest.MonkeyPatch) -> None:
    """kubernetes_validate reads a file of some MB for each object."""
    utils = kubernetes_validate.utils
    monkeypatch.setattr(utils, "schema_contents", functools.cache(utils.schema_contents))


@each_row(("name", "version"), itertools.product(VARIANTS, KUBERNETES))
@pytest.mark.usefixtures("_quick_schemas")
def test_kubernetes_takes_it(latest: int, name: str, version: str) -> None:
    """Every object is of a known kind, without unknown fields."""
    for entry in variant(latest, name):
        if entry["kind"] in CUSTOM:
            assert set(entry["spec"]) <= CUSTOM[entry["kind"]]
        else:
            kubernetes_validate.validate(entry, version, strict=True)


@every_variant
def test_each_object_is_there_once(latest: int, name: str) -> None:
    """No two objects have the same kind, name and namespace."""
    found = [identity(entry) for entry in variant(latest, name)]
    assert len(found) == len(set(found))


@every_variant
def test_each_object_has_namespace_and_labels(latest: int, name: str) -> None:
    """Every object of the chart has a namespace, and the labels by which tools find a release."""
    for entry in variant(latest, name):
        if entry["metadata"]["name"] in ("release-more", "release-text"):
            continue  # extraObjects are the user's own
        assert entry["metadata"]["namespace"]
        labels = entry["metadata"]["labels"]
        assert labels["app.kubernetes.io/instance"] == "release"
        assert labels["app.kubernetes.io/managed-by"] == "Helm"


def identity(entry: Object) -> tuple[str, str, str]:
    metadata = entry["metadata"]
    return entry["kind"], metadata.get("namespace", ""), metadata["name"]


def test_what_is_packaged(latest: int, tmp_path: Path) -> None:
    """A package has all files for rendering, no development files, and fits into a release."""
    run(latest, "package", str(CHART), "--destination", str(tmp_path))
    (package,) = tmp_path.iterdir()
    with tarfile.open(package) as archive:
        found = {name.partition("/")[2] for name in archive.getnames()}
    assert {"Chart.yaml", "values.schema.json", "README.md", ".helmignore"} <= found
    assert {"files/rules.yaml", "files/dashboard.json", "files/policies/plans.yaml"} <= found
    assert not [name for name in found if name.startswith(("ci/", "scripts/"))]
    # A release is stored in a secret, which holds a MiB.
    assert package.stat().st_size < 300_000
