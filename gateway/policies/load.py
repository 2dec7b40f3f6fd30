"""Loads a folder of policy files into one Policy, or reports all faults.

All *.yaml files of the folder are read, in the order of their names; their top-level keys together
are the policy. Each part is read separately first (`settings`, `upstreams`, `limits`, `routes`),
then `checks` validates them together. A policy is never loaded partially: a single fault prevents
it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeVar

from gateway.domain.patterns import NAME
from gateway.domain.policy import (
    AUTH_VERIFY,
    FAILED_AUTH,
    AdminProxy,
    AuditSettings,
    Bounds,
    Policy,
    StoreSettings,
    Timeouts,
)
from gateway.domain.routes import RouteTable
from gateway.policies import checks, settings
from gateway.policies.documents import Documents, line_of, read_documents
from gateway.policies.faults import MAX_FAULTS, Fault, PolicyFaults, TooManyFaults
from gateway.policies.limits import read_plan
from gateway.policies.routes import PathRules, read_paths, read_route
from gateway.policies.upstreams import read_upstream
from gateway.policies.values import Fields, Value, setting

T = TypeVar("T")

TOP_LEVEL: Final = (
    *("environment", "trusted_proxies", "proxy_protocol", "ipv6_prefix", "on_store_failure"),
    *("store", "audit", "timeouts", "bounds", "tls", "failed_auth", "auth_verify", "headers"),
    *("paths", "admin_tls", "admin_proxy", "error_docs"),
    *("upstreams", "plans", "routes"),
)
REQUIRED: Final = ("upstreams", "plans", "routes")


def load(folder: Path) -> Policy:
    """Read a policy folder. Raises PolicyFaults with all faults, up to MAX_FAULTS."""
    documents = read_documents(folder)
    faults = list(documents.faults)
    try:
        top = _merge(documents, faults)
        if documents.complete:
            faults += [
                Fault(str(folder), 0, "", f"no {key!r} in any file", f"the key {key!r} in one")
                for key in REQUIRED
                if key not in top
            ]
        policy = _build(top, documents)
    except TooManyFaults as exc:
        more = Fault(str(folder), 0, "", f"{MAX_FAULTS} faults or more", "these to be fixed first")
        raise PolicyFaults([*_sorted(faults), more]) from exc
    if faults:
        raise PolicyFaults(_sorted(faults))
    return policy


def _sorted(faults: list[Fault]) -> list[Fault]:
    return sorted(faults, key=lambda fault: (fault.file, fault.line))


def _merge(documents: Documents, faults: list[Fault]) -> Fields:
    """The top-level keys of all files."""
    merged: Fields = {}
    for document in documents.documents:
        if document.root is None:
            continue
        root = Value(document.root, document.file, "", line_of(document.root), faults)
        given = root.fields(TOP_LEVEL) or {}
        for key, value in given.items():
            if key in merged:
                first = merged[key]
                value.add_fault(
                    f"it once (first in {first.file}:{first.line})", f"the key {key!r} again"
                )
            merged.setdefault(key, value)
    return merged


def _build(top: Fields, documents: Documents) -> Policy:
    """The policy as far as it could be read; valid only if no fault was added."""
    upstreams = _entries(top, "upstreams", "an upstream", read_upstream)
    plans = _entries(top, "plans", "a plan", read_plan)
    paths = setting(top, "paths", read_paths, PathRules())
    routes = _entries(top, "routes", "a route", partial(read_route, paths))
    if upstreams:
        checks.check_upstreams(list(routes.values()), upstreams)
    if routes:
        checks.check_overrides(list(plans.values()), list(routes.values()))
    checks.check_routes(list(routes.values()))
    checks.check_limits(list(routes.values()), list(plans.values()))
    headers = setting(top, "headers", settings.read_headers, settings.Headers())
    readable = {name: entry.route for name, entry in routes.items() if entry.route is not None}
    table = RouteTable(readable.values())
    if "routes" in top:
        checks.check_steps(top["routes"], table)
    return Policy(
        environment=setting(top, "environment", settings.read_environment, "production"),
        plans=_frozen({name: entry.plan for name, entry in plans.items()}),
        routes=_frozen(readable),
        table=table,
        upstreams=_frozen(upstreams),
        trusted_proxies=setting(top, "trusted_proxies", settings.read_trusted_proxies, ()),
        on_store_failure=setting(top, "on_store_failure", settings.read_on_store_failure, "local"),
        store=setting(top, "store", settings.read_store, StoreSettings()),
        audit=setting(top, "audit", settings.read_audit, AuditSettings()),
        timeouts=setting(top, "timeouts", settings.read_timeouts, Timeouts()),
        bounds=setting(top, "bounds", settings.read_bounds, Bounds()),
        failed_auth=setting(top, "failed_auth", settings.read_failed_auth, FAILED_AUTH),
        auth_verify=setting(top, "auth_verify", settings.read_auth_verify, AUTH_VERIFY),
        ietf_headers=headers.ietf,
        hsts=headers.hsts,
        error_docs=setting(top, "error_docs", settings.read_error_docs, None),
        fallback_header=headers.fallback,
        trusted_only=headers.trusted_only,
        tls=setting(top, "tls", settings.read_tls, None),
        admin_tls=setting(top, "admin_tls", settings.read_tls, None),
        admin_proxy=setting(top, "admin_proxy", settings.read_admin_proxy, AdminProxy()),
        proxy_protocol=settings.read_proxy_protocol(top),
        ipv6_prefix=setting(top, "ipv6_prefix", settings.read_ipv6_prefix, 64),
        hash=documents.hash,
        files=documents.names,
    )


def _entries(
    top: Fields, key: str, what: str, read: Callable[[str, Value], T | None]
) -> dict[str, T]:
    """The named entries under one top-level key, without faulty ones.

    what: for messages: "a route"
    """
    if key not in top:
        return {}
    named = top[key].named(NAME, what)
    if named is not None and not named:
        top[key].add_fault(f"at least {what}", "an empty mapping")
    read_all = {name: read(name, value) for name, value in (named or {}).items()}
    return {name: entry for name, entry in read_all.items() if entry is not None}


def _frozen(entries: Mapping[str, T | None]) -> Mapping[str, T]:
    return MappingProxyType({name: value for name, value in entries.items() if value is not None})
