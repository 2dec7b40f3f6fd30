"""The texts of a first policy folder, for one's own API: routes from an OpenAPI document, or one.

Settings and plans are those of the shipped policies, with their comments. Every pattern is read as
the loader reads it; of a path that cannot be a route a comment says why. Overlapping paths, such as
/a/{x}/c and /a/b/{y}, get a third route for the requests of both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Final

from gateway.domain.conflicts import conflicts
from gateway.domain.patterns import is_word, printable
from gateway.domain.policy import AUTH_VERIFY, FAILED_AUTH
from gateway.domain.route import Auth, Route
from gateway.domain.routes import OWN_ROUTES, RouteTable, fold
from gateway.policies.checks import MOST_STEPS
from gateway.policies.fields import read_match
from gateway.policies.limits import PLAN_LIMIT
from gateway.policies.openapi import Document, Operation, Unusable
from gateway.policies.schema import schema

#: The address in the shipped upstreams, which is a placeholder.
PLACEHOLDER: Final = "http://127.0.0.1:9000"
#: The shipped upstream that only the shipped route `mcp` has, with its comment.
_MCP_UPSTREAM = re.compile(r"^  # The MCP server\..*\n  mcp: .*\n", re.MULTILINE)
#: The files, in the order in which they are to be read.
FILES: Final = (
    *("upstreams.yaml", "routes.yaml", "plans.yaml", "gateway.yaml"),
    "policy.schema.json",
)
SCHEMA_LINE: Final = "# yaml-language-server: $schema=policy.schema.json\n"
#: Routes that are added for requests of two routes; and how often that is repeated.
_MOST_SHARED: Final = 500
_ROUNDS: Final = 8
_MOST_COMMENT: Final = 80
_ELSE: Final = 'api: {match: "* /**", upstream: api}'
_HEAD: Final = """\
# Which requests are forwarded, what they need, and how many of them a key may send.
#
# match: METHOD /path. {name} is one segment, /** at the end all that follows. The method * is any;
#        GET includes HEAD. The most specific route is used, whatever the order.
# A route needs a key, and counts in the plan of the key, unless it says something else:
#   rate: 30/minute              the route's own limit, in addition to the plan's
#   scopes: ["orders:read"]      scopes that the key needs
#   auth: none                   no key is needed; limit such a route per address:
#                                limits: [{name: sign-in, rate: 10/minute, per: ip}]
"""

_odd = re.compile(r"[^A-Za-z0-9._-]+")
_plain_key = re.compile(r"[A-Za-z][A-Za-z0-9._-]*").fullmatch
_parameter = re.compile(r"\{([^{}]*)\}").search
_partial = re.compile(r"[^/]\{|\}[^/]").search
#: Words that YAML may read as other values than texts.
_YAML_WORDS: Final = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}


@dataclass(frozen=True, slots=True)
class Starter:
    """The files by name; the number of routes, and of paths that are none."""

    files: Mapping[str, str]
    routes: int
    skipped: int


@dataclass(slots=True)
class _Routes:
    """Routes so far. skipped: paths, each with the reason

    groups: by tag, in order; None: those for requests of two others
    """

    groups: dict[str | None, list[Route]] = field(default_factory=dict)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    #: Where the route of a pattern is: its group and its number there.
    known: dict[tuple[str, tuple[str, ...], bool], tuple[str | None, int]] = field(
        default_factory=dict
    )
    names: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys((PLAN_LIMIT, FAILED_AUTH.name, AUTH_VERIFY.name), 1)
    )

    def all(self) -> list[Route]:
        return [route for group in self.groups.values() for route in group]

    def add(self, tag: str | None, name: str, match: str, auth: Auth) -> str | None:
        """Add a route. Returns why it cannot be one; None: it was added."""
        try:
            found = read_match(match)
        except ValueError as error:
            return f"expected {error}"
        segments = tuple(map(fold, found.segments))
        if not found.rest and segments in OWN_ROUTES:
            return "the gateway answers this path itself"
        if found.method == "TRACE":
            return "TRACE is never forwarded"
        same = found.method, segments, found.rest
        if same in self.known:
            other, at = self.known[same]
            if auth == "key":  # what either of the two requires
                self.groups[other][at] = replace(self.groups[other][at], auth=auth)
            return f"the same requests as {self.groups[other][at].name}"
        route = Route(
            self._unused(name),
            found.method,
            found.segments,
            found.rest,
            "api",
            auth=auth,
            names=found.names,
        )
        group = self.groups.setdefault(tag, [])
        self.known[same] = tag, len(group)
        group.append(route)
        return None

    def _unused(self, text: str) -> str:
        """A name of a route like this text that no other has."""
        base = _odd.sub("-", text).strip("-._")[:50].rstrip("-._")
        if not is_word(base):
            base = "route"
        name = base
        while name in self.names:
            self.names[base] = self.names.get(base, 1) + 1
            name = f"{base}-{self.names[base]}"
        self.names[name] = 1
        return name


def build_starter(shipped: Path, upstream: str, document: Document | None) -> Starter:
    """The files. upstream: a server's address, valid. Raises Unusable, OSError.

    shipped: the folder of the shipped policies
    """
    files = {
        name: (shipped / name).read_text("utf-8")
        for name in ("upstreams.yaml", "plans.yaml", "gateway.yaml")
    }
    own = files["upstreams.yaml"].replace(PLACEHOLDER, upstream)
    files["upstreams.yaml"] = _MCP_UPSTREAM.sub("", own)
    files["policy.schema.json"] = json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"
    routes = _Routes()
    if document is None:
        lines = ["routes:", "  # All requests, within the plan of their key.", f"  {_ELSE}"]
        count = 1
    else:
        _read(routes, document)
        lines = list(_lines(routes, document))
        count = len(routes.all())
    files["routes.yaml"] = SCHEMA_LINE + _HEAD + "\n".join(lines) + "\n"
    return Starter({name: files[name] for name in FILES}, count, len(routes.skipped))


def to_pattern(path: str) -> str:
    """An OpenAPI path as a pattern: a segment with a parameter is {name}. Raises ValueError."""
    words: list[str] = []
    for segment in path.split("/"):
        if "*" in segment:
            raise ValueError("a path without *")
        found = _parameter(segment)
        if found is None:
            words.append(segment)
            continue
        name = base = re.sub(r"[^A-Za-z0-9_-]", "_", found[1])[:48] or "any"
        number = 1
        while f"{{{name}}}" in words:
            number += 1
            name = f"{base}_{number}"
        words.append(f"{{{name}}}")
    return "/".join(words)


def _read(routes: _Routes, document: Document) -> None:
    routes.skipped += document.skipped
    for operation in document.operations:
        try:
            match = f"{operation.method} {to_pattern(operation.path)}"
        except ValueError as error:
            why: str | None = f"expected {error}"
        else:
            # A segment such as {id}.png becomes {id}, which is more than the document has.
            is_exact = not _partial(operation.path)
            auth: Auth = "none" if operation.is_public and is_exact else "key"
            why = routes.add(operation.tag, _name(operation), match, auth)
        if why is not None:
            routes.skipped.append((f"{operation.method} {operation.path}", why))
    # Where this is large, finding overlaps takes minutes, and the loader would refuse the routes.
    steps = RouteTable(routes.all()).most_steps()
    if steps > MOST_STEPS:
        raise Unusable(
            f"found paths of which a request would need {steps} steps to match, expected at most "
            f"{MOST_STEPS}: fewer places where one path has a parameter and another a name"
        )
    for _ in range(_ROUNDS):
        if not _add_shared(routes):
            return
    raise Unusable("found paths that overlap in too many ways, expected fewer parameters")


def _add_shared(routes: _Routes) -> bool:
    """Add a route for each two that conflict; are there any?"""
    found = list(islice(conflicts(routes.all()), _MOST_SHARED + 1))
    if len(found) > _MOST_SHARED:
        example = found[0]
        raise Unusable(
            f"found more than {_MOST_SHARED} overlaps such as {example.first.pattern} and "
            f"{example.second.pattern}, expected fewer"
        )
    for first, second, _, third, _ in found:
        is_public = first.auth == second.auth == "none"
        name = f"{first.name[:24]}-or-{second.name[:24]}"
        # Not added if another overlap has added it.
        routes.add(None, name, third, "none" if is_public else "key")
    return bool(found)


def _name(operation: Operation) -> str:
    return operation.name or f"{operation.method.lower()}-{operation.path.strip('/')}"


def _lines(routes: _Routes, document: Document) -> Iterator[str]:
    title = _comment(document.title) or "the API"
    yield f"# From the OpenAPI document of {title}."
    if document.server:
        yield f"# It names the server {_comment(document.server)}."
    yield "routes:"
    groups = routes.groups
    named = [tag for tag in document.tags if tag in groups and tag]
    others = [tag for tag in groups if tag and tag not in document.tags]
    for tag in (*named, *others, *(tag for tag in ("", None) if tag in groups)):
        about = document.tags.get(tag, "") if tag else ""
        yield from _group_lines(tag, about, groups[tag], bare=len(groups) == 1)
    yield ""
    yield "  # Requests of other paths get 404. To forward them, too:"
    yield f"  # {_ELSE}"
    if routes.skipped:
        yield ""
        yield "  # Without a route, as they cannot be one:"
        for path, why in routes.skipped:
            yield f"  # {_comment(path)}: {_comment(why)}"


def _group_lines(tag: str | None, about: str, routes: list[Route], *, bare: bool) -> Iterator[str]:
    if tag is None:
        yield ""
        yield "  # Requests that two routes above match: neither is more specific."
    elif tag or not bare:
        yield ""
        yield f"  # {': '.join(filter(None, (_comment(tag) or 'Without a tag', _comment(about))))}"
    for route in routes:
        is_plain = _plain_key(route.name) and route.name.lower() not in _YAML_WORDS
        name = route.name if is_plain else json.dumps(route.name)
        match = json.dumps(route.pattern, ensure_ascii=False)
        access = ", auth: none" if route.auth == "none" else ""
        yield f"  {name}: {{match: {match}, upstream: api{access}}}"


def _comment(text: str) -> str:
    """A text for a comment: on one line, printable, of bounded length."""
    words = printable(" ".join(text[:1_000].split()))
    return words if len(words) <= _MOST_COMMENT else words[: _MOST_COMMENT - 1] + "…"
