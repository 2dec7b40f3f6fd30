"""Each module of the packages has its tests in the module of the same path: its twin.

`gateway/proxy/gate.py` is tested in `tests/proxy/test_gate.py`, and the client library's
`client/gateway_client/webhooks/asgi.py` in `tests/client/webhooks/test_asgi.py`. Lists here have
the exceptions, with the reason or the other place. An entry that is no longer needed fails, so the
lists shrink.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

#: Modules without a twin, and the test module that covers each of them.
TESTED_ELSEWHERE = {
    "cli/usage_report.py": "cli/test_usage.py",
    "manage/usage_export.py": "manage/test_usage_reports.py",
    "manage/usage_sums.py": "manage/test_usage_reports.py",
    "__main__.py": "cli/test_main.py",
    "admin/api/account_operations.py": "admin/api/test_calls.py",
    "admin/api/audit_operations.py": "admin/api/test_calls.py",
    "admin/api/key_operations.py": "admin/api/test_calls.py",
    "admin/api/key_schemas.py": "admin/api/test_document.py",
    "admin/api/mcp_operations.py": "admin/api/test_calls.py",
    "admin/api/mcp_schemas.py": "admin/api/test_document.py",
    "admin/api/openapi.py": "admin/api/test_document.py",
    "admin/api/operations.py": "admin/api/test_document.py",
    "admin/api/parameters.py": "admin/api/test_document.py",
    "admin/api/policy_operations.py": "admin/api/test_calls.py",
    "admin/api/routes.py": "admin/api/test_schemathesis.py",
    "admin/api/schema_parts.py": "admin/api/test_document.py",
    "admin/api/schemas.py": "admin/api/test_document.py",
    "admin/api/usage_operations.py": "admin/api/test_calls.py",
    "admin/api/delivery_operations.py": "admin/api/test_webhook_calls.py",
    "admin/api/integration_operations.py": "admin/api/test_webhook_calls.py",
    "admin/api/watch_operations.py": "admin/api/test_webhook_calls.py",
    "admin/api/webhook_parts.py": "admin/api/test_webhook_calls.py",
    "admin/api/webhook_schemas.py": "admin/api/test_document.py",
    "cli/deliveries.py": "cli/test_integrations.py",
    "cli/events.py": "cli/test_integrations.py",
    "cli/watches.py": "cli/test_integrations.py",
    "cli/webhooks.py": "cli/test_integrations.py",
    "manage/integration_fields.py": "manage/test_integrations.py",
    "webhooks/turns.py": "webhooks/test_application.py",
    "manage/webhooks.py": "admin/api/test_webhook_calls.py",
    "stores/webhooks/opening.py": "manage/test_integrations.py",
    "admin/console/account_pages.py": "admin/console/test_changes.py",
    "admin/console/audit_page.py": "admin/console/test_pages.py",
    "admin/console/key_forms.py": "admin/console/test_changes.py",
    "admin/console/key_pages.py": "admin/console/test_pages.py",
    "admin/console/mcp_page.py": "admin/console/test_pages.py",
    "admin/console/overview_page.py": "admin/console/test_pages.py",
    "admin/console/policies_page.py": "admin/console/test_pages.py",
    "admin/console/policy_version_page.py": "admin/console/test_pages.py",
    "admin/console/render.py": "admin/console/test_wording.py",
    "admin/console/routes.py": "admin/console/test_gate.py",
    "admin/console/sign_in.py": "admin/console/test_gate.py",
    "admin/console/warnings_page.py": "admin/console/test_pages.py",
    "admin/headers.py": "admin/test_guard.py",
    "admin/refusals.py": "admin/test_guard.py",
    "admin/request_id.py": "admin/test_guard.py",
    "app.py": "proxy/test_exchange.py",
    "cli/accounts.py": "cli/test_keys.py",
    "cli/case_fields.py": "cli/test_cases.py",
    "cli/case_schema.py": "cli/test_cases.py",
    "cli/keyforms.py": "cli/test_keys.py",
    "cli/replay.py": "cli/test_simulate.py",
    "cli/store.py": "cli/test_keys.py",
    "domain/balancing/rule.py": "domain/balancing/test_rules.py",
    "domain/cookies.py": "domain/test_headers.py",
    "domain/identity.py": "domain/test_admission.py",
    "domain/patterns.py": "stores/keys/test_records.py",
    "domain/policy.py": "policies/test_load.py",
    "domain/policy_history.py": "stores/policies/test_store.py",
    "domain/route.py": "domain/test_routes.py",
    "domain/static_answer.py": "policies/test_respond.py",
    "domain/warnings.py": "observe/test_limit_warnings.py",
    "errors.py": "proxy/test_answers.py",
    "manage/audit_chain.py": "manage/test_audit_log.py",
    "manage/management.py": "manage/test_keys.py",
    "manage/policy_limits.py": "manage/test_policy_changes.py",
    "manage/policy_settings.py": "manage/test_policy_changes.py",
    "manage/problems.py": "manage/test_forms.py",
    "manage/reading.py": "manage/test_forms.py",
    "manage/refusals.py": "admin/test_guard.py",
    "policies/faults.py": "policies/test_load.py",
    "policies/routes.py": "policies/test_load.py",
    "policies/schema_access.py": "policies/test_schema.py",
    "policies/schema_forwarding.py": "policies/test_schema.py",
    "policies/schema_cors.py": "policies/test_schema.py",
    "policies/schema_header_edits.py": "policies/test_schema.py",
    "policies/schema_access_log.py": "policies/test_schema.py",
    "policies/schema_canary.py": "policies/test_schema.py",
    "policies/schema_limits.py": "policies/test_schema.py",
    "policies/schema_mcp.py": "policies/test_schema.py",
    "policies/secrets.py": "policies/test_signatures.py",
    "policies/schema_signatures.py": "policies/test_schema.py",
    "policies/schema_parts.py": "policies/test_schema.py",
    "policies/schema_respond.py": "policies/test_schema.py",
    "policies/schema_routes.py": "policies/test_schema.py",
    "policies/schema_tls.py": "policies/test_schema.py",
    "policies/schema_tracing.py": "policies/test_schema.py",
    "policies/schema_upstreams.py": "policies/test_schema.py",
    "policies/schema_webhooks.py": "policies/test_schema.py",
    "domain/webhooks/settings.py": "policies/test_webhooks.py",
    "domain/webhooks/kinds/own.py": "domain/webhooks/test_notices.py",
    "runtime/slot_group.py": "runtime/test_workers.py",
    "cli/courier.py": "test_courier.py",
    "cli/demo_webhooks.py": "end_to_end/test_demo.py",
    "policies/settings.py": "policies/test_load.py",
    "policies/upstreams.py": "policies/test_load.py",
    "policies/values.py": "policies/test_load.py",
    "stores/keys/scripts.py": "stores/keys/test_store.py",
    "proxy/connection_cache.py": "proxy/test_client_connection.py",
    "proxy/context.py": "proxy/test_reply.py",
    "proxy/mcp_answers.py": "proxy/test_mcp_exchange.py",
    "proxy/mcp_reading.py": "proxy/test_mcp_exchange.py",
    "proxy/request.py": "proxy/test_exchange.py",
    "proxy/server_pool.py": "proxy/test_upstream_pool.py",
    "proxy/traced_exchange.py": "proxy/test_tracing.py",
    "runtime/settings.py": "runtime/test_channel.py",
    "runtime/worker.py": "runtime/test_adoption.py",
    "stores/audit/memory.py": "stores/audit/test_store.py",
    "stores/keys/memory.py": "stores/keys/test_store.py",
    "stores/limits/build.py": "stores/test_managed.py",
    "stores/opening.py": "stores/redis/test_sentinel.py",
    "stores/policies/memory.py": "stores/policies/test_store.py",
    "stores/policies/records.py": "stores/policies/test_store.py",
    "stores/redis/clients.py": "stores/redis/test_sentinel.py",
    "stores/redis/errors.py": "stores/test_managed.py",
    "stores/redis/members.py": "stores/keys/test_store.py",
    "stores/redis/topology.py": "stores/redis/test_sentinel.py",
    "stores/usage/memory.py": "stores/usage/test_store.py",
    "stores/usage/scripts.py": "stores/usage/test_store.py",
    "stores/warnings/memory.py": "stores/warnings/test_store.py",
    "webhooks/answers.py": "webhooks/test_application.py",
    "webhooks/requests.py": "webhooks/test_application.py",
    "webhooks/routes.py": "webhooks/test_application.py",
    "webhooks/signed.py": "webhooks/test_tester.py",
    "webhooks/watch_routes.py": "webhooks/test_application.py",
}

#: Test modules in the package's folders that are not a module's twin, and why.
NO_TWIN = {
    "stores/webhooks/test_disabled.py": "what becomes of the deliveries of disabled watches",
    "stores/webhooks/test_filters.py": "lists by state, type and time",
    "stores/webhooks/test_rates.py": "the rate of a watch",
    "stores/webhooks/test_shares.py": "the share of an account",
    "admin/api/test_calls.py": "operations of all subjects, as one table",
    "admin/api/test_document.py": "the document that all operations make together",
    "admin/api/test_schemathesis.py": "generated calls of all operations",
    "admin/console/test_changes.py": "forms of all subjects, as one table",
    "admin/console/test_pages.py": "pages of all subjects, as one table",
    "test_patterns.py": "what all regular expressions may use",
    "admin/api/test_webhook_calls.py": "operations of several modules, over a Redis",
    "cli/test_webhook_pages.py": "commands of several modules that take pages of the store",
    "domain/webhooks/kinds/test_hostile.py": "what holds for each kind",
    "webhooks/test_sender_ends.py": "connections whose other end never says farewell, over TLS",
    "proxy/test_signatures.py": "routes that receive webhooks, over sockets",
    "proxy/test_access.py": "lists of addresses, over sockets",
    "proxy/test_canary.py": "routes with a canary, over sockets",
    "proxy/test_client_certificates.py": "clients that are known by a certificate, over TLS",
    "proxy/test_costs.py": "requests whose cost depends on them, over sockets",
    "proxy/test_ejection.py": "servers that answer with errors or late, over sockets",
    "proxy/test_header_edits.py": "requests and answers of one route, over sockets",
    "proxy/test_leases.py": "exchange and limiter together",
    "proxy/test_mcp_bodies.py": "long messages and bounds on bodies, in manual time",
    "proxy/test_upstreams.py": "hostile upstreams, as one table over real sockets",
    "runtime/test_adoption.py": "two gateways in one process",
    "stores/test_secured.py": "all stores behind TLS and passwords",
    "stores/test_servers.py": "all stores on each server of this machine",
    "test_layers.py": "imports of the whole package",
    "test_make.py": "the Makefile",
    "test_mirror.py": "the folder of tests",
    "test_requirements.py": "the locked requirements",
    "test_security.py": "SECURITY.md",
    "test_vocabulary.py": "the public names of all faces",
}

#: The same lists for the client library.
CLIENT_TESTED_ELSEWHERE = {
    "webhooks/answers.py": "webhooks/test_asgi.py",
    "webhooks/arguments.py": "webhooks/test_verification.py",
}
CLIENT_NO_TWIN = {
    "test_distribution.py": "its distributions, installed",
    "test_gateway.py": "the library against real gateways",
    "test_readme.py": "the examples of its README",
    "webhooks/test_imports.py": "what its import loads",
    "webhooks/test_readme.py": "the examples of its README on receiving",
    "test_interpreters.py": "every Python that it is for",
    "test_layers.py": "imports of the whole package",
}


@dataclass(frozen=True)
class Package:
    """A package, the folder of its tests, and its lists of exceptions."""

    folder: Path
    tests: Path
    tested_elsewhere: dict[str, str]
    no_twin: dict[str, str]

    def modules(self) -> set[str]:
        """The package's modules: "proxy/gate.py"."""
        found = (path.relative_to(self.folder) for path in self.folder.rglob("*.py"))
        return {str(path) for path in found if path.name != "__init__.py"}

    def specifications(self) -> set[str]:
        """The modules of tests in the package's folders: "proxy/test_gate.py"."""
        found = list(self.tests.glob("test_*.py"))
        for folder in (path.name for path in self.folder.iterdir() if path.is_dir()):
            found += (self.tests / folder).rglob("test_*.py")
        return {str(path.relative_to(self.tests)) for path in found}

    def twins(self) -> set[str]:
        return {twin(module) for module in self.modules()}

    def lacking(self) -> set[str]:
        """The modules without a twin."""
        specifications = self.specifications()
        return {module for module in self.modules() if twin(module) not in specifications}


PACKAGES = {
    "gateway": Package(ROOT / "gateway", ROOT / "tests", TESTED_ELSEWHERE, NO_TWIN),
    "client": Package(
        ROOT / "client/gateway_client",
        ROOT / "tests/client",
        CLIENT_TESTED_ELSEWHERE,
        CLIENT_NO_TWIN,
    ),
}


@pytest.fixture(params=PACKAGES)
def package(request: pytest.FixtureRequest) -> Package:
    return PACKAGES[request.param]


def twin(module: str) -> str:
    """The module with a module's tests: "proxy/gate.py" has "proxy/test_gate.py"."""
    path = Path(module)
    name = "main.py" if path.name == "__main__.py" else path.name
    return str(path.with_name(f"test_{name}"))


def test_each_module_has_its_twin(package: Package) -> None:
    """Each module has its twin, or is on the list that says where it is tested."""
    assert sorted(package.lacking() - package.tested_elsewhere.keys()) == []


def test_each_test_module_is_a_twin(package: Package) -> None:
    """Each test module is a twin, or is on the list that says what it is about."""
    others = package.specifications() - package.twins()
    assert sorted(others - package.no_twin.keys()) == []


def test_no_entry_is_obsolete(package: Package) -> None:
    """A module that was removed or has its twin is on no list, nor is a test that has one."""
    assert sorted(package.tested_elsewhere.keys() - package.lacking()) == []
    others = package.specifications() - package.twins()
    assert sorted(package.no_twin.keys() - others) == []


def test_the_lists_name_what_there_is(package: Package) -> None:
    """The listed test modules exist."""
    tests = {str(path.relative_to(package.tests)) for path in package.tests.rglob("test_*.py")}
    assert sorted(set(package.tested_elsewhere.values()) - tests) == []
