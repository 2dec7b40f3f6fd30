"""Loads a folder of policy files into one Policy, or reports all faults.

All *.yaml files of the folder are read, in the order of their names; their top-level keys together
are the policy. Each part is read separately first (`settings`, `upstreams`, `limits`, `routes`),
then `checks` validates them together. A policy is never loaded partially: a single fault prevents
it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeVar

from gateway.domain.access_log import AccessLogFormat
from gateway.domain.hosts import HostTables
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
from gateway.domain.policy_files import Source, Texts
from gateway.domain.routes import RouteTable
from gateway.domain.webhooks.settings import WebhookSettings
from gateway.policies import checks, settings
from gateway.policies.access import read_access
from gateway.policies.access_log import read_access_log
from gateway.policies.cors import read_cors
from gateway.policies.documents import Documents, documents_of, line_of, read_documents
from gateway.policies.error_pages import read_error_pages
from gateway.policies.faults import MAX_FAULTS, Fault, PolicyFaults, TooManyFaults
from gateway.policies.limits import PlanEntry, read_plan
from gateway.policies.maintenance import read_maintenance
from gateway.policies.mcp import read_secrets
from gateway.policies.routes import PathRules, RouteEntry, read_paths, read_route, with_defaults
from gateway.policies.signatures import read_signature, with_signature
from gateway.policies.tls import expiry_warnings, read_client_tls, read_tls
from gateway.policies.tracing import read_tracing
from gateway.policies.upstreams import read_upstream
from gateway.policies.values import Fields, Value, setting
from gateway.policies.warnings import find_warnings
from gateway.policies.webhooks import check_names, read_webhooks, with_built_in

T = TypeVar("T")

TOP_LEVEL: Final = (
    *("upstreams", "plans", "routes"),
    *("environment", "trusted_proxies", "proxy_protocol", "ipv6_prefix", "on_store_failure"),
    *("store", "audit", "timeouts", "bounds", "tls", "failed_auth", "auth_verify", "headers"),
    *("paths", "admin_tls", "admin_proxy", "error_docs", "access", "cors", "access_log"),
    *("maintenance", "error_pages", "tracing", "mcp_sessions", "signatures"),
    "webhooks",
)
REQUIRED: Final = ("upstreams", "plans", "routes")


def load(folder: Path) -> Policy:
    """Read a policy folder. Raises PolicyFaults with all faults, up to MAX_FAULTS."""
    return read_policy(folder)[0]


def read_policy(folder: Path) -> tuple[Policy, tuple[Fault, ...]]:
    """The policy and its warnings: see `warnings`. Raises PolicyFaults."""
    return _load(folder, read_documents(folder))


def load_texts(folder: Path, texts: Texts) -> Policy:
    """The policy of these texts, as if they were the files of this folder. Raises PolicyFaults."""
    return _load(folder, documents_of(folder, texts))[0]


def _load(folder: Path, documents: Documents) -> tuple[Policy, tuple[Fault, ...]]:
    faults, used = list(documents.faults), list[str]()
    try:
        top = _merge(documents, faults, used)
        if documents.complete:
            faults += [
                Fault(str(folder), 0, "", f"no {key!r} in any file", f"the key {key!r} in one")
                for key in REQUIRED
                if key not in top
            ]
        source = Source(str(folder), documents.texts)
        policy, routes, plans = _build(top, documents, source)
    except TooManyFaults as exc:
        more = Fault(str(folder), 0, "", f"{MAX_FAULTS} faults or more", "these to be fixed first")
        raise PolicyFaults([*_sorted(faults), more], used) from exc
    if faults:
        raise PolicyFaults(_sorted(faults), used)
    found = (*find_warnings(routes, plans, policy), *expiry_warnings(top, policy, time.time()))
    return replace(policy, warnings=tuple(map(str, found)), used=tuple(used)), found


def _sorted(faults: list[Fault]) -> list[Fault]:
    return sorted(faults, key=lambda fault: (fault.file, fault.line))


def _merge(documents: Documents, faults: list[Fault], used: list[str]) -> Fields:
    """The top-level keys of all files. used: gets the other files that they refer to"""
    merged: Fields = {}
    for document in documents.documents:
        if document.root is None:
            continue
        root = Value(document.root, document.file, "", line_of(document.root), faults, used)
        given = root.fields(TOP_LEVEL) or {}
        for key, value in given.items():
            if key in merged:
                first = merged[key]
                value.add_fault(
                    f"it once (first in {first.file}:{first.line})", f"the key {key!r} again"
                )
            merged.setdefault(key, value)
    return merged


def _build(
    top: Fields, documents: Documents, source: Source
) -> tuple[Policy, Sequence[RouteEntry], Sequence[PlanEntry]]:
    """The policy as far as it could be read; valid only if no fault was added.

    With its routes and plans as they were written.
    """
    upstreams = _entries(top, "upstreams", "an upstream", read_upstream)
    check_names(top, upstreams)
    plans = list(_entries(top, "plans", "a plan", read_plan).values())
    paths = setting(top, "paths", read_paths, PathRules())
    cors = setting(top, "cors", read_cors, None)
    maintenance = setting(top, "maintenance", read_maintenance, None)
    entries = _entries(top, "routes", "a route", partial(read_route, paths))
    signatures = _entries(top, "signatures", "a signature", read_signature)
    routes = [
        with_signature(with_defaults(entry, cors, maintenance), signatures)
        for entry in entries.values()
    ]
    if upstreams:
        checks.check_upstreams(routes, upstreams)
    if routes:
        checks.check_overrides(plans, routes)
    checks.check_plans(plans, routes)
    checks.check_renames(plans, routes)
    checks.check_routes(routes)
    checks.check_limits(routes, plans)
    headers = setting(top, "headers", settings.read_headers, settings.Headers())
    readable = {entry.name: entry.route for entry in routes if entry.route is not None}
    hosts = HostTables(readable.values()) if any(one.hosts for one in readable.values()) else None
    tables = [RouteTable(readable.values())] if hosts is None else list(hosts.tables())
    if "routes" in top:
        checks.check_steps(top["routes"], tables)
    policy = Policy(
        environment=setting(top, "environment", settings.read_environment, "production"),
        plans=_frozen({entry.name: entry.plan for entry in plans}),
        routes=_frozen(readable),
        table=tables[0],
        hosts=hosts,
        upstreams=_frozen(with_built_in(upstreams, routes)),
        trusted_proxies=setting(top, "trusted_proxies", settings.read_networks, ()),
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
        tls=setting(top, "tls", read_client_tls, None),
        admin_tls=setting(top, "admin_tls", read_tls, None),
        admin_proxy=setting(top, "admin_proxy", settings.read_admin_proxy, AdminProxy()),
        proxy_protocol=settings.read_proxy_protocol(top),
        ipv6_prefix=setting(top, "ipv6_prefix", settings.read_ipv6_prefix, 64),
        access=setting(top, "access", read_access, None),
        error_pages=setting(top, "error_pages", read_error_pages, None),
        cors=cors,
        access_log=setting(top, "access_log", read_access_log, AccessLogFormat()),
        maintenance=maintenance,
        tracing=setting(top, "tracing", read_tracing, None),
        mcp_secrets=setting(top, "mcp_sessions", read_secrets, ()),
        webhooks=setting(top, "webhooks", read_webhooks, WebhookSettings()),
        hash=documents.hash,
        files=documents.names,
        source=source,
    )
    return policy, routes, plans


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
