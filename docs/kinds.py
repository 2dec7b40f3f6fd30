"""Makes the tables of docs/webhooks-kinds.md: of the kinds, and of the data of their events.

What a kind reads is found by asking it; what becomes of webhooks is what the tests' fixtures say.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, get_args, get_origin, get_type_hints, is_typeddict

from gateway.domain.webhooks.kinds import forms
from gateway.domain.webhooks.kinds.kind import Kind
from gateway.domain.webhooks.kinds.table import KINDS
from gateway.domain.webhooks.payload import text
from gateway.domain.webhooks.signatures import Unverified

FIXTURES: Final = Path(__file__).parents[1] / "tests" / "domain" / "webhooks" / "kinds" / "fixtures"

#: Where a provider names an event of its own: in headers, or at keys of the body. Of a part that is
#: in one place or another, the first that is there counts.
_NAMES: Final[Mapping[str, tuple[str | tuple[str, ...], ...]]] = {
    "github": ("x-github-event", "action"),
    "gitea": (("x-gitea-event", "x-forgejo-event", "x-gitea-event-type"), "action"),
    "gitlab": ("object_kind", "object_attributes.action"),
    "bitbucket": ("x-event-key",),
    "azure-devops": ("eventType",),
    "jira": ("webhookEvent",),
    "linear": ("type", "action"),
    "zendesk": ("type",),
    "pagerduty": ("event.event_type",),
    "harbor": ("type",),
}
_TYPES: Final[Mapping[Any, str]] = {str: "text", int: "whole number"}


class _Asked(dict[str, Any]):
    """A body that has nothing, and notes whether it was asked."""

    was_asked = False

    def get(self, key: str, default: Any = None) -> Any:
        self.was_asked = True
        return super().get(key, default)


def tables() -> str:
    """All of the page that is made."""
    tried = {name: list(_fixtures(name)) for name in KINDS if _folder(name).is_dir()}
    lines = ["### Kinds", "", *_kinds(tried), "", "### Their events", "", *_events(tried), ""]
    lines += ["### Data of events", ""]
    for prefix, form in forms.RESOURCES.items():
        lines += [f"#### {prefix}", "", *_form(form), ""]
    for form in (forms.Person, forms.Repository, forms.Version):
        lines += [f"#### {form.__name__}", "", *_form(form), ""]
    return "\n".join(lines[:-1])


def _folder(kind: str) -> Path:
    return FIXTURES / kind.replace("-", "_")


def _fixtures(kind: str) -> Iterator[dict[str, Any]]:
    for file in sorted(_folder(kind).glob("*.json")):
        yield json.loads(file.read_text("utf-8"))


def _kinds(tried: Mapping[str, list[dict[str, Any]]]) -> Iterator[str]:
    yield "| kind | headers that prove its sender | known again by | types | tried on |"
    yield "| --- | --- | --- | --- | --- |"
    for name, those in tried.items():
        types = sorted({each["event"]["type"].partition(".")[0] for each in those} - {""})
        of = ["any"] if name == "generic" else [_code(f"{each}.*") for each in types]
        proof = _listed(_asked(KINDS[name].verify, b"{}", ["secret"], 0.0))
        known = _delivery_id(KINDS[name])
        passed = sum(bool(each["event"]["type"]) for each in those)
        counts = f"{passed} webhooks, and {len(those) - passed} to ignore"
        yield f"| {_code(name)} | {proof} | {known} | {', '.join(of)} | {counts} |"


def _asked(verify: Callable[..., None], body: bytes, secrets: list[str], now: float) -> list[str]:
    """The headers that it asks for when there is none, and when there are all of them."""
    names: list[str] = []

    def header(name: str, value: str = "") -> str:
        names.append(name)
        return value

    for value in ("", "1970-01-01T00:00:00Z"):
        with suppress(Unverified):
            verify(body, partial(header, value=value), secrets, now)
    return [each for each in dict.fromkeys(names) if each != "content-type"]


def _delivery_id(kind: Kind) -> str:
    headers: list[str] = []
    body = _Asked()

    def header(name: str) -> str:
        headers.append(name)
        return ""

    kind.delivery_id(header, body)
    found = [_code(each) for each in dict.fromkeys(headers)]
    own = ["the integration's `id_header`"] * kind.takes_id_header
    return ", ".join([*own, *["its body"] * body.was_asked, *found])


def _events(tried: Mapping[str, list[dict[str, Any]]]) -> Iterator[str]:
    """Those that become something, by what their providers call them."""
    yield "| kind | theirs | becomes |"
    yield "| --- | --- | --- |"
    for kind, parts in _NAMES.items():
        by_name: dict[str, set[str]] = defaultdict(set)
        for each in tried[kind]:
            if each["event"]["type"]:
                by_name[_name(each, parts)].add(each["event"]["type"])
        for name, types in sorted(by_name.items()):
            become = " or ".join(map(_code, sorted(types, reverse=True)))
            yield f"| {_code(kind)} | {_code(name)} | {become} |"


def _name(fixture: dict[str, Any], parts: tuple[str | tuple[str, ...], ...]) -> str:
    headers = {name.lower(): value for name, value in fixture["headers"].items()}
    places = ((part,) if isinstance(part, str) else part for part in parts)
    found = (
        next(filter(None, (headers.get(each) or text(fixture["body"], each) for each in place)), "")
        for place in places
    )
    return " ".join(filter(None, found))


def _form(form: Any) -> Iterator[str]:
    yield from (form.__doc__, "", "| field | type | |", "| --- | --- | --- |")
    for name, hint in get_type_hints(form, include_extras=True).items():
        plain, meaning = get_args(hint)
        yield f"| {_code(name)} | {_type(plain)} | {meaning} |"


def _type(plain: Any) -> str:
    if get_origin(plain) is list:
        return f"list of {_type(*get_args(plain))}"
    if is_typeddict(plain):
        return f"[{plain.__name__}](#{plain.__name__.lower()})"
    return _TYPES[plain]


def _listed(names: list[str]) -> str:
    return ", ".join(map(_code, names))


def _code(name: str) -> str:
    return f"`{name}`"
