"""Policy folders for tests: the service's rules in front of the test's upstream."""

from __future__ import annotations

import shutil
from pathlib import Path

from gateway.cli.shipped import find_policies

PLANS = """
plans:
  free:       {rate: 60/minute,   burst: 100}
  pro:        {rate: 600/minute,  burst: 1000}
  enterprise: {rate: 6000/minute, burst: 10000}
  brisk:      {rate: 2/second}
"""

ROUTES = """
routes:
  search:       {match: GET /api/search/*,       upstream: api, rate: 30/minute}
  batch:        {match: POST /api/**/batch,      upstream: api, rate: 10/minute}
  webhook-test: {match: POST /api/webhooks/test, upstream: api, rate: 5/minute}
  connectors:   {match: GET /v1/connectors,      upstream: api, scopes: ["connectors:read"]}
  tickets:      {match: "* /v1/tickets/**",      upstream: api, permission: "ticketing:write"}
  scm:          {match: "* /v1/scm/**",          upstream: api, service: scm}
  public:       {match: GET /public/**,          upstream: api, auth: none}
  api:          {match: "* /api/**",             upstream: api}
  v1:           {match: "* /v1/**",              upstream: api}
"""

GATEWAY = """
environment: production
timeouts: {header: 10s, idle: 75s, connect: 2s, response: 30s, drain: 10s}
# Of the tests that are refused on purpose, none is to meet the limit of the address they share.
failed_auth: {rate: 6000/minute}
"""

#: A test may poll this path.
HIGH_VERIFY_LIMIT = "auth_verify: {rate: 6000/minute}\n"
#: A busy machine may be slow, and these tests count every request.
STORE_TIMEOUT = "store: {timeout: 5s}\n"


def mcp_routes(*limits: str) -> str:
    """A route `mcp` with these limits, whose tool `search` has a rate, and `api` for the rest."""
    lines = "".join(f"      - {limit}\n" for limit in limits)
    return f"""
routes:
  mcp:
    match: "* /mcp/**"
    upstream: api
    plan_limits: false
    mcp: {{tools: {{search: {{rate: 3/minute}}, "*": allow}}}}
    limits:
{lines}  api: {{match: "* /**", upstream: api}}
"""


def write_policies(folder: Path, upstream: str, **files: str) -> Path:
    """Write a whole policy folder and return it.

    upstream: the base address of the upstream `api`; files: text in place of `gateway`, `plans`
    or `routes`, or more files, by their name without ".yaml". If none of them has a `store`, its
    timeout is long, and if none has an `auth_verify`, its limit is high.
    """
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "gateway": GATEWAY,
        "plans": PLANS,
        "routes": ROUTES,
        "upstreams": f'upstreams:\n  api: {{servers: ["{upstream}"]}}\n',
        **files,
    }
    lines = [line for text in texts.values() for line in text.splitlines()]
    for key, ours in (("store", STORE_TIMEOUT), ("auth_verify", HIGH_VERIFY_LIMIT)):
        if not any(line.startswith(f"{key}:") for line in lines):
            texts[key] = ours
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    return folder


def copy_shipped(folder: Path) -> Path:
    """Copy the shipped policies, but with a long timeout of the store; return the folder."""
    shutil.copytree(find_policies(), folder)
    file = folder / "gateway.yaml"
    text = file.read_text(encoding="utf-8")
    assert text.count("timeout: 50ms") == 1, "the store's timeout is where it was"
    file.write_text(text.replace("timeout: 50ms", "timeout: 5s"), encoding="utf-8")
    return folder
