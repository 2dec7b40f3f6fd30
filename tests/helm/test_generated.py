"""The generated parts of the chart are up to date, and its documentation is right."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from helm.scripts import generate
from helm.scripts.readme import BEGIN, END, with_table
from helm.scripts.schema import build_schema
from helm.scripts.values import all_values, read_values
from tests.helm.chart import CHART
from tests.kit.rows import each_row

TEXT = """\
# A heading of no value.

# How many.
# Two lines.
# @schema: {minimum: 1}
replicas: 1
image:
  # One of | two.
  tag: ""
# @schema: strings
labels: {a: b}
"""


def test_nothing_is_stale() -> None:
    """Schema, README and shipped policies are the output of `python -m helm.scripts.generate`."""
    assert generate.stale() == []


def test_values_are_read_with_their_comments() -> None:
    """Each value has its path, the comment above it, and its default."""
    found = {value.name: value for value in all_values(read_values(TEXT))}
    assert list(found) == ["replicas", "image", "image.tag", "labels"]
    assert found["replicas"].description == "How many. Two lines."
    assert found["replicas"].kind == {"minimum": 1}
    assert found["image.tag"].default == ""
    assert found["labels"].kind == "strings"


def test_the_schema_is_inferred() -> None:
    """The type is that of the default; the text after @schema adds to it, or replaces it."""
    properties = build_schema(read_values(TEXT))["properties"]
    assert properties["replicas"] == {
        "type": "integer",
        "minimum": 1,
        "description": "How many. Two lines.",
    }
    assert properties["image"]["properties"]["tag"]["type"] == "string"
    assert properties["image"]["additionalProperties"] is False
    assert properties["labels"]["$ref"] == "#/definitions/strings"


@each_row("text", ["a: []\n", "a: null\n", "# @schema: unheard\na: 1\n"])
def test_what_cannot_be_inferred(text: str) -> None:
    """A value whose type is neither in its default nor in its comment is an error."""
    with pytest.raises(KeyError):
        build_schema(read_values(text))


def test_the_table_goes_between_its_marks() -> None:
    """The text around it stays; a bar in a description is escaped."""
    found = with_table(f"before\n{BEGIN}\nold\n{END}\nafter\n", read_values(TEXT))
    assert found.startswith(f"before\n{BEGIN}\n\n| value |")
    assert found.endswith(f"{END}\nafter\n")
    assert '| `image.tag` | `""` | One of \\| two. |' in found
    with pytest.raises(ValueError, match="lacks the marks"):
        with_table("no marks", ())


def test_stale_files_are_reported_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """--check names them and fails; otherwise they are written, and obsolete ones removed."""
    chart, policies = tmp_path / "helm", tmp_path / "policies"
    (chart / "files" / "policies").mkdir(parents=True)
    policies.mkdir()
    (chart / "values.yaml").write_text(TEXT)
    (chart / "README.md").write_text(f"{BEGIN}\n{END}\n")
    (chart / "files" / "policies" / "old.yaml").write_text("gone: true\n")
    (policies / "plans.yaml").write_text("plans: {}\n")
    monkeypatch.setattr(generate, "CHART", chart)
    monkeypatch.setattr(generate, "POLICIES", policies)
    assert generate.main(["--check"]) == 1
    assert "stale helm/values.schema.json" in capsys.readouterr().out
    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0
    assert [path.name for path in (chart / "files" / "policies").iterdir()] == ["plans.yaml"]


def test_every_value_is_described() -> None:
    """Every leaf has a description, except those whose names say it all."""
    values = read_values((CHART / "values.yaml").read_text("utf-8"))
    undescribed = [value.name for value in values if not value.children and not value.description]
    assert undescribed == SELF_EXPLAINING


#: The fields of pods and workloads, by their Kubernetes names.
SELF_EXPLAINING = [
    "podSecurityContext",
    "securityContext",
    "updateStrategy",
    "minReadySeconds",
    "revisionHistoryLimit",
    "progressDeadlineSeconds",
    "affinity",
    "nodeSelector",
    "tolerations",
    "priorityClassName",
    "runtimeClassName",
    "schedulerName",
    "hostAliases",
    "dnsPolicy",
    "dnsConfig",
    "deploymentAnnotations",
    "podAnnotations",
    "podLabels",
    "extraEnvFrom",
    "extraVolumes",
    "extraVolumeMounts",
    "initContainers",
]


def test_the_app_version_is_the_gateways() -> None:
    """The chart installs the version that it is released with."""
    project = tomllib.loads((CHART.parent / "pyproject.toml").read_text("utf-8"))["project"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    assert chart["appVersion"] == project["version"]


def test_values_that_the_readme_names_exist() -> None:
    """Each value in the README's text and its table of features is in values.yaml."""
    values = read_values((CHART / "values.yaml").read_text("utf-8"))
    known = {value.name for value in all_values(values)}
    tops = {name.partition(".")[0] for name in known}
    readme = (CHART / "README.md").read_text("utf-8").partition(BEGIN)[0]
    named = set(re.findall(r"`([a-z]\w*(?:\.\w+)*)`", readme))
    named |= set(re.findall(r"--set ([a-z]\w*(?:\.\w+)*)=", readme))
    assert {name for name in named if name.partition(".")[0] in tops} - known == set()
