"""The examples of policies, and the reference's, can be loaded; other YAML and JSON is valid."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from docs.generate import Setting, settings
from gateway.cli.case_run import run_case
from gateway.cli.cases import FILE, read_cases
from gateway.domain.policy import Policy
from gateway.policies.load import TOP_LEVEL, load
from gateway.policies.schema import schema
from tests.docs.pages import ROOT, Example, guides
from tests.kit.certificates import make_certificate, write_pair
from tests.kit.rows import each_row

#: What completes an example to a whole policy.
REST: dict[str, Any] = {
    "signatures": {"partner": {"secrets": "partner-secrets.txt"}},
    "upstreams": {name: {"servers": ["http://127.0.0.1:9000"]} for name in ("api", "beta")},
    "plans": {name: {"rate": "60/minute"} for name in ("free", "pro", "enterprise")},
    "routes": {
        "search": {"match": "GET /api/search/*", "upstream": "api"},
        "api": {"match": "* /**", "upstream": "api"},
    },
}
#: Other settings that a setting requires, by its last name.
COMPANIONS: dict[str, dict[str, Any]] = {
    "ca": {"servers": ["https://search.internal:8443"]},
    "client_certificate": {"servers": ["https://search.internal:8443"]},
    "client_key": {"servers": ["https://search.internal:8443"]},
    "window": {"errors": "50%"},
    "least": {"errors": "50%"},
    "proxy_protocol": {"trusted_proxies": ["10.0.0.0/8"]},
    "in": {"quota": "10000/month"},
    "from": {"quota": "10000/month"},
    "mcp": {"match": "* /mcp/**"},
}
#: The files that examples name.
FILES = (
    "internal-ca.pem",
    *("office.txt", "offices.txt", "blocked.txt", "pages/gone.html", "pages/robots.txt"),
)
#: And those that are read.
PAGES = {
    "pages/error.html": "{message}",
    "pages/error.json": '{"code": "{code}"}',
    "mcp-secrets.txt": "x" * 32,
    "webhook-secrets.txt": "x" * 32,
    "partner-secrets.txt": "x" * 32,
}
#: Certificates that examples name, with their keys.
PAIRS = ("tls", "other")
#: YAML of other programs, by its top-level keys.
OF_OTHERS = {
    "scrape_configs": "Prometheus' configuration",
    "rules": "a rule of prometheus-adapter, in its values",
}

EXAMPLES = [each for page in guides() for each in page.examples("yaml")]
LEAVES = [each for each in settings(schema()) if not each.is_group and each.path[-1] != "[]"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for policies, with the files that examples name."""
    made = tmp_path_factory.mktemp("policies")
    for name, text in {**dict.fromkeys(FILES, ""), **PAGES}.items():
        (made / name).parent.mkdir(exist_ok=True)
        (made / name).write_text(text)
    make_certificate(made, ["gateway"], "client")
    for name in PAIRS:
        write_pair(made / f"tls/{name}.crt", made / f"tls/{name}.key")
    write_pair(made / "tls/clients-ca.pem", made / "tls/clients.key")
    return made


def load_with(folder: Path, given: Mapping[str, Any]) -> Policy:
    """The policy of this part and the rest."""
    whole = dict(REST)
    for key, value in given.items():
        whole[key] = {**REST[key], **value} if key in REST else value
    (folder / "policy.yaml").write_text(yaml.safe_dump(whole, sort_keys=False))
    return load(folder)


@each_row("example", EXAMPLES)
def test_yaml(example: Example, folder: Path, tmp_path: Path) -> None:
    """A part of a policy loads; tests pass; values of the chart match its schema."""
    given = yaml.safe_load(example.text.replace("sha256:…", f"sha256:{'0' * 64}"))
    values = json.loads((ROOT / "helm/values.schema.json").read_text("utf-8"))
    if given.keys() <= set(TOP_LEVEL):
        assert load_with(folder, given).routes
    elif given.keys() <= values["properties"].keys():
        jsonschema.Draft7Validator(values).validate(given)
    elif given.keys() <= set(FILE):
        file = tmp_path / "tests.yaml"
        file.write_text(example.text)
        policy = load(ROOT / "policies")
        results = [run_case(policy, case) for case in read_cases([file], policy)]
        assert [result.differences for result in results] == [()] * len(results)
    else:
        assert next(iter(given)) in OF_OTHERS


@each_row("setting", LEAVES)
def test_the_example_of_a_setting(setting: Setting, folder: Path) -> None:
    """Each setting has one, which loads and is not the default."""
    assert setting.examples
    for example in setting.examples:
        assert example != setting.default
        load_with(folder, built(schema(), setting.path, example))


def built(part: Mapping[str, Any], path: tuple[str, ...], value: Any) -> Any:
    """The value at its path, with the settings that it requires."""
    if not path:
        return value
    name, *rest = path
    if name == "NAME":
        names = part["propertyNames"]["pattern"]
        its = next(each for each in ("search", "DNS:search.test") if re.search(names, each))
        return {its: built(part["additionalProperties"], tuple(rest), value)}
    if name == "[]":
        return [built(part["items"], tuple(rest), value)]
    properties = part["properties"]
    needed = [*part.get("required", ()), *part.get("dependencies", {}).get(name, ())]
    if "oneOf" in part and name not in {each["required"][0] for each in part["oneOf"]}:
        needed += [] if name in COMPANIONS else ["rate"]
    ways = [each["required"][0] for each in part.get("anyOf", ()) if "required" in each]
    if ways and name not in ways and not {*needed} & {*ways}:
        needed.append(ways[0])
    if name == "candidate":
        # Of the same kind as its limit.
        needed = [each for each in needed if each != "rate"]
        needed.append("rate" if rest[0] == "burst" else rest[0])
    found = {each: properties[each]["examples"][0] for each in needed}
    beside = {each: it for each, it in COMPANIONS.get(name, {}).items() if each in properties}
    return {**found, **beside, name: built(properties[name], tuple(rest), value)}


@each_row("example", [each for page in guides() for each in page.examples("json")])
def test_json(example: Example) -> None:
    """It is valid JSON."""
    assert json.loads(example.text)
