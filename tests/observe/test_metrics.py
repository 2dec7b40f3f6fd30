"""The exposition has all counts, under fixed names and with bounded labels."""

from __future__ import annotations

import os
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from gateway.observe.exposition import render
from gateway.observe.metrics import Metrics

NO_ROUTES: list[str] = []


def shown(metrics: Metrics, accept: str = "") -> bytes:
    """The exposition of this process."""
    return render(metrics.snapshot(), accept, [os.getpid()])[0]


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every sample of a scrape, by name and sorted labels; fails on duplicates."""
    found: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for family in parse_text(shown(metrics).decode()):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found, key
            found[key] = sample.value
    return found


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return samples(metrics).get((name, tuple(sorted(labels.items()))))


def a_run() -> Metrics:
    """Metrics with at least one value of each kind."""
    metrics = Metrics("1.2.3")
    metrics.policy_loaded("abc", 1_700_000_000.5, ["api", "search"])
    metrics.ended("api", "GET", 200, "upstream", 0.020, "backend", 0.0198)
    metrics.ended("api", "GET", 200, "upstream", 0.3, "backend", 0.29)
    metrics.ended("search", "GET", 429, "gateway", 0.00004, None, None)
    metrics.refused("rate_limited")
    metrics.retried("search", "503")
    metrics.auth_failed("key_unknown")
    metrics.decided("plan", "free", "admitted")
    metrics.decided("search", "free", "limited")
    metrics.compared("search", "only_candidate_refuses")
    metrics.overadmitted("search", 1)
    metrics.limit_warned("search", "free", 80)
    metrics.checked(3, 0.0004)
    metrics.connections("downstream", "active", 2)
    metrics.upstream_health("backend", "127.0.0.1:9000", True)
    metrics.looked_up("backend:9000", "success")
    metrics.canary_ended("api", "beta", 200)
    metrics.mcp.ended("search", "tools/call", "search", "limited")
    metrics.mcp.refused("search", "rate_limited")
    metrics.mcp.opened("search", 1)
    metrics.certificates_expire({("tls", "tls.crt"): 2_000_000_000})
    return metrics


def test_requests_are_counted_by_route_method_code_and_source() -> None:
    """Equal exchanges share a series; the source of the answer is a label."""
    metrics = a_run()
    name = "gateway_requests_total"
    of_api = value(metrics, name, route="api", method="GET", code="200", source="upstream")
    of_search = value(metrics, name, route="search", method="GET", code="429", source="gateway")
    assert (of_api, of_search) == (2, 1)


def test_durations_fall_into_cumulative_buckets() -> None:
    """A bucket counts all values up to its bound; count and sum are of all values."""
    metrics = a_run()
    name = "gateway_request_duration_seconds"
    assert value(metrics, f"{name}_bucket", route="api", le="0.01") == 0
    assert value(metrics, f"{name}_bucket", route="api", le="0.025") == 1
    assert value(metrics, f"{name}_bucket", route="api", le="0.5") == 2
    assert value(metrics, f"{name}_bucket", route="api", le="+Inf") == 2
    assert value(metrics, f"{name}_count", route="api") == 2
    assert value(metrics, f"{name}_sum", route="api") == pytest.approx(0.32)
    assert value(metrics, "gateway_upstream_duration_seconds_count", upstream="backend") == 2


def test_a_value_on_a_bound_belongs_to_its_bucket() -> None:
    """`le` means less than or equal."""
    metrics = Metrics("0")
    metrics.ended("api", "GET", 200, "gateway", 0.005, None, None)
    name = "gateway_request_duration_seconds_bucket"
    assert value(metrics, name, route="api", le="0.0025") == 0
    assert value(metrics, name, route="api", le="0.005") == 1


def test_a_value_above_all_bounds_is_only_in_the_last_bucket() -> None:
    """A stream of two hours is counted in +Inf only."""
    metrics = Metrics("0")
    metrics.ended("api", "GET", 200, "upstream", 7200.0, "backend", 7199.0)
    name = "gateway_request_duration_seconds_bucket"
    assert value(metrics, name, route="api", le="60.0") == 0
    assert value(metrics, name, route="api", le="+Inf") == 1


OVERHEADS = [
    # whole, upstream, its part, our part
    (0.0100, "backend", 0.0090, 0.0010),
    (0.0100, None, None, 0.0100),  # no upstream: all is the gateway's
    (0.0100, "backend", None, 0.0100),  # chosen, and never reached
    (0.0100, "backend", 0.0101, 0.0),  # measured separately: never negative
]


@pytest.mark.parametrize(("whole", "upstream", "part", "ours"), OVERHEADS)
def test_overhead_is_the_whole_less_the_upstreams_part(
    whole: float, upstream: str | None, part: float | None, ours: float
) -> None:
    """The gateway's time is the exchange's without the upstream's, and never negative."""
    metrics = Metrics("0")
    metrics.ended("api", "GET", 200, "gateway", whole, upstream, part)
    assert value(metrics, "gateway_overhead_seconds_sum") == pytest.approx(ours)
    assert value(metrics, "gateway_overhead_seconds_count") == 1


@given(method=st.text())
def test_a_method_is_one_of_a_few_labels(method: str) -> None:
    """Unknown methods share a label, so that clients cannot create series."""
    metrics = Metrics("0")
    metrics.ended("api", method, 200, "gateway", 0.1, None, None)
    known = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"}
    label = method if method in known else "other"
    name = "gateway_requests_total"
    assert value(metrics, name, route="api", method=label, code="200", source="gateway") == 1


def test_no_route_is_a_series_of_its_own() -> None:
    """Requests that matched nothing are counted under "none", with a route of that name."""
    metrics = Metrics("0")
    metrics.ended("", "GET", 404, "gateway", 0.1, None, None)
    metrics.ended("none", "GET", 404, "gateway", 0.1, None, None)
    name = "gateway_requests_total"
    assert value(metrics, name, route="none", method="GET", code="404", source="gateway") == 2
    assert value(metrics, "gateway_request_duration_seconds_count", route="none") == 2


def test_limits_refusals_and_failures_are_counted() -> None:
    """Each counter of the limiter and the gate has its labels."""
    metrics = a_run()
    name = "gateway_ratelimit_decisions_total"
    assert value(metrics, name, limit="plan", plan="free", decision="admitted") == 1
    assert value(metrics, name, limit="search", plan="free", decision="limited") == 1
    assert value(metrics, "gateway_refusals_total", reason="rate_limited") == 1
    assert value(metrics, "gateway_auth_failures_total", reason="key_unknown") == 1


def test_checks_are_measured_in_time_and_size() -> None:
    """A batch of three is in the bucket up to 4, its duration in the one up to 0.5 ms."""
    metrics = a_run()
    assert value(metrics, "gateway_ratelimit_batch_size_bucket", le="2.0") == 0
    assert value(metrics, "gateway_ratelimit_batch_size_bucket", le="4.0") == 1
    assert value(metrics, "gateway_ratelimit_batch_size_sum") == 3
    assert value(metrics, "gateway_ratelimit_check_duration_seconds_bucket", le="0.00025") == 0
    assert value(metrics, "gateway_ratelimit_check_duration_seconds_bucket", le="0.0005") == 1


def test_gauges_go_up_and_down() -> None:
    """Connections, requests in flight and the store's state have their last values."""
    metrics = a_run()
    metrics.connections("downstream", "active", -1)
    metrics.inflight += 3
    metrics.store_up = True
    assert value(metrics, "gateway_connections", side="downstream", state="active") == 1
    assert value(metrics, "gateway_inflight_requests") == 3
    assert value(metrics, "gateway_store_up") == 1
    assert value(metrics, "gateway_store_fallback_active") == 0
    metrics.store_up, metrics.fallback_active = False, True
    assert value(metrics, "gateway_store_up") == 0
    assert value(metrics, "gateway_store_fallback_active") == 1


def test_reloads_are_counted_by_result() -> None:
    """A failed reload changes neither the hash nor the time of the current policy."""
    metrics = a_run()
    metrics.policy_reload_failed()
    assert value(metrics, "gateway_policy_reload_total", result="success") == 1
    assert value(metrics, "gateway_policy_reload_total", result="refused") == 1
    assert value(metrics, "gateway_policy_info", hash="abc") == 1
    loaded = value(metrics, "gateway_policy_last_reload_success_timestamp_seconds")
    assert loaded == 1_700_000_000.5


def test_faulty_files_are_reported_until_they_are_mended() -> None:
    """The gauge is 1 from a failed reload to the next policy that is loaded, even an equal one."""
    metrics = a_run()
    found = [value(metrics, "gateway_policy_faulty")]
    for change in (
        metrics.policy_reload_failed,
        metrics.policy_reload_failed,
        lambda: metrics.policy_loaded("abc", 1_700_000_060.0, ["api"]),
    ):
        change()
        found.append(value(metrics, "gateway_policy_faulty"))
    assert found == [0, 1, 1, 0]


def test_before_any_policy_there_is_no_time_of_one() -> None:
    """The time is absent, as 0 would mean 1970; the counters are present from the start."""
    metrics = Metrics("0")
    names = {name for name, _ in samples(metrics)}
    assert "gateway_policy_last_reload_success_timestamp_seconds" not in names
    assert "gateway_policy_info" not in names
    assert value(metrics, "gateway_policy_reload_total", result="refused") == 0


def test_one_policy_is_in_force() -> None:
    """The hash of an earlier policy is removed."""
    metrics = a_run()
    metrics.policy_loaded("def", 1_700_000_060.0, ["api"])
    assert value(metrics, "gateway_policy_info", hash="def") == 1
    assert value(metrics, "gateway_policy_info", hash="abc") is None


def routes_seen(metrics: Metrics) -> set[str]:
    return {dict(labels)["route"] for _, labels in samples(metrics) if "route" in dict(labels)}


def test_a_route_that_left_the_policy_loses_its_series() -> None:
    """A removed route loses its series; the others, and "none", keep theirs."""
    metrics = a_run()
    metrics.ended("", "GET", 404, "gateway", 0.1, None, None)
    metrics.policy_loaded("def", 1_700_000_060.0, ["api"])
    assert routes_seen(metrics) == {"api", "none"}


def test_a_request_that_outlives_its_route_brings_no_series_back() -> None:
    """A request that ends after its route was removed creates no series."""
    metrics = a_run()
    metrics.policy_loaded("def", 1_700_000_060.0, ["api"])
    metrics.ended("search", "GET", 200, "upstream", 0.1, "backend", 0.1)
    assert routes_seen(metrics) == {"api"}


def test_a_restored_route_is_counted_from_zero() -> None:
    """Its counter restarts at 0, which Prometheus treats as a restart."""
    metrics = a_run()
    metrics.policy_loaded("def", 1_700_000_060.0, ["api"])
    metrics.policy_loaded("ghi", 1_700_000_120.0, NO_ROUTES)
    metrics.policy_loaded("abc", 1_700_000_180.0, ["api", "search"])
    metrics.ended("search", "GET", 200, "upstream", 0.1, "backend", 0.1)
    assert routes_seen(metrics) == {"search"}
    assert value(metrics, "gateway_request_duration_seconds_count", route="search") == 1


def test_names_that_are_no_routes_of_the_policy_are_kept() -> None:
    """The gateway's own answers may be counted under their own name."""
    metrics = a_run()
    metrics.ended("health", "GET", 200, "gateway", 0.1, None, None)
    metrics.policy_loaded("def", 1_700_000_060.0, ["api"])
    assert routes_seen(metrics) == {"api", "health"}


def test_the_health_of_servers() -> None:
    """A server's value is 1 or 0, and absent once its upstream no longer has the server."""
    metrics = a_run()
    labels = {"upstream": "backend", "server": "127.0.0.1:9000"}
    assert value(metrics, "gateway_upstream_healthy", **labels) == 1
    metrics.upstream_health("backend", "127.0.0.1:9000", False)
    assert value(metrics, "gateway_upstream_healthy", **labels) == 0
    for _ in range(2):
        metrics.upstream_health("backend", "127.0.0.1:9000", None)
        assert value(metrics, "gateway_upstream_healthy", **labels) is None


def test_look_ups_of_servers() -> None:
    """They are counted by result, until the policy no longer has the server."""
    metrics = a_run()
    metrics.looked_up("api.test:80", "success")
    metrics.looked_up("api.test:80", "failure")
    metrics.looked_up("other.test:80", "failure")
    labels = {"server": "api.test:80", "result": "failure"}
    assert value(metrics, "gateway_upstream_lookups_total", **labels) == 1
    metrics.lookups_ended("api.test:80")
    assert value(metrics, "gateway_upstream_lookups_total", **labels) is None
    labels["server"] = "other.test:80"
    assert value(metrics, "gateway_upstream_lookups_total", **labels) == 1


def test_when_certificates_expire() -> None:
    """By setting and file; what is no longer there has no value."""
    metrics = a_run()
    name = "gateway_certificate_expiry_timestamp_seconds"
    labels = {"setting": "tls", "file": "a.pem"}
    metrics.certificates_expire({("tls", "a.pem"): 2_000_000_000, ("tls", "b.pem"): 1})
    assert value(metrics, name, **labels) == 2_000_000_000
    metrics.certificates_expire({("tls", "a.pem"): 2_000_000_001})
    assert value(metrics, name, **labels) == 2_000_000_001
    assert value(metrics, name, setting="tls", file="b.pem") is None


def test_the_build_and_the_process_are_described() -> None:
    """The version is a label, and the process's own values are included."""
    metrics = a_run()
    names = {name for name, _ in samples(metrics)}
    assert value(metrics, "gateway_build_info", version="1.2.3") == 1
    assert {"process_cpu_seconds_total", "process_resident_memory_bytes"} <= names


FORMATS = [
    ("", "text/plain; version=0.0.4"),
    ("*/*", "text/plain; version=0.0.4"),
    ("application/openmetrics-text; version=1.0.0", "application/openmetrics-text; version=1.0.0"),
    ("application/openmetrics-text; version=x.y.z", "text/plain; version=0.0.4"),
    ("application/openmetrics-text; version=abc", "text/plain; version=0.0.4"),
]


@pytest.mark.parametrize(("accept", "content_type"), FORMATS)
def test_the_format_follows_the_accept_header(accept: str, content_type: str) -> None:
    """OpenMetrics if the client requests it, otherwise the text format."""
    body, actual = render(a_run().snapshot(), accept, [])
    assert actual.startswith(content_type)
    parse = parse_openmetrics if "openmetrics" in content_type else parse_text
    assert "gateway_requests" in {family.name for family in parse(body.decode())}


def test_names_follow_prometheus_rules() -> None:
    """Names pass promtool's rules: prefix, base units, _total on counters only, help for all."""
    text = shown(a_run(), "application/openmetrics-text; version=1.0.0").decode()
    families = list(parse_openmetrics(text))
    assert families
    for family in families:
        assert re.fullmatch(r"(gateway|process)_[a-z0-9_]*[a-z0-9]", family.name)
        assert family.documentation.endswith((".", "local.")) or family.name.startswith("process_")
        assert not re.search(r"_(ms|us|milliseconds|minutes|count|sum|bucket|total)$", family.name)
        suffixes = {sample.name.removeprefix(family.name) for sample in family.samples}
        assert ("_total" in suffixes) == (family.type == "counter")
        assert family.samples, family.name
        for sample in family.samples:
            assert not set(sample.labels) & {"key", "key_id", "path", "client_ip", "job"}
