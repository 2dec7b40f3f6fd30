"""The examples of policies, and the reference's, can be loaded; other YAML and JSON is valid."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from docs.generate import Setting, settings
from gateway.domain.policy import Policy
from gateway.policies.load import TOP_LEVEL, load
from gateway.policies.schema import schema
from tests.docs.pages import ROOT, Example, guides

#: What completes an example to a whole policy.
REST: dict[str, Any] = {
    "upstreams": {"api": {"servers": ["http://127.0.0.1:9000"]}},
    "plans": {name: {"rate": "60/minute"} for name in ("free", "pro", "enterprise")},
    "routes": {
        "search": {"match": "GET /api/search/*", "upstream": "api"},
        "api": {"match": "* /**", "upstream": "api"},
    },
}
#: Other settings that a setting requires, by its last name.
COMPANIONS: dict[str, dict[str, Any]] = {
    "ca": {"servers": ["https://search.internal:8443"]},
    "proxy_protocol": {"trusted_proxies": ["10.0.0.0/8"]},
}
#: The files that examples name.
FILES = ("tls/tls.crt", "tls/tls.key", "internal-ca.pem")
#: YAML of other programs, by its top-level keys.
OF_OTHERS = {
    "scrape_configs": "Prometheus' configuration",
    "rules": "a rule of prometheus-adapter, in its values",
}

EXAMPLES = [each for page in guides() for each in page.examples("yaml")]
LEAVES = [each for each in settings(schema()) if not each.is_group and each.path[-1] != "[]"]


def load_with(folder: Path, given: Mapping[str, Any]) -> Policy:
    """The policy of this part and the rest."""
    whole = dict(REST)
    for key, value in given.items():
        whole[key] = {**REST[key], **value} if key in REST else value
    for name in FILES:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
    (folder / "policy.yaml").write_text(yaml.safe_dump(whole, sort_keys=False))
    return load(folder)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: each.where)
def test_yaml(example: Example, tmp_path: Path) -> None:
    """A part of a policy loads; values of the chart match its schema."""
    given = yaml.safe_load(example.text.replace("sha256:…", f"sha256:{'0' * 64}"))
    values = json.loads((ROOT / "helm/values.schema.json").read_text("utf-8"))
    if given.keys() <= set(TOP_LEVEL):
        load_with(tmp_path, given)
    elif given.keys() <= values["properties"].keys():
        jsonschema.Draft7Validator(values).validate(given)
    else:
        assert next(iter(given)) in OF_OTHERS


@pytest.mark.parametrize("setting", LEAVES, ids=lambda each: each.name)
def test_the_example_of_a_setting(setting: Setting, tmp_path: Path) -> None:
    """Each setting has one, which loads and is not the default."""
    assert setting.examples
    for at, example in enumerate(setting.examples):
        assert example != setting.default
        folder = tmp_path / str(at)
        folder.mkdir()
        load_with(folder, built(schema(), setting.path, example))


def built(part: Mapping[str, Any], path: tuple[str, ...], value: Any) -> Any:
    """The value at its path, with the settings that it requires."""
    if not path:
        return value
    name, *rest = path
    if name == "NAME":
        return {"search": built(part["additionalProperties"], tuple(rest), value)}
    if name == "[]":
        return [built(part["items"], tuple(rest), value)]
    properties = part["properties"]
    needed = [*part.get("required", ()), *part.get("dependencies", {}).get(name, ())]
    if "oneOf" in part and name not in {each["required"][0] for each in part["oneOf"]}:
        needed.append("rate")
    found = {each: properties[each]["examples"][0] for each in needed}
    return {**found, **COMPANIONS.get(name, {}), name: built(properties[name], tuple(rest), value)}


@pytest.mark.parametrize(
    "example",
    [each for page in guides() for each in page.examples("json")],
    ids=lambda each: each.where,
)
def test_json(example: Example) -> None:
    """It is valid JSON."""
    json.loads(example.text)
