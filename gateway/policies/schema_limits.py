"""The JSON Schema of plans and of limits, wherever they are written."""

from __future__ import annotations

from gateway.domain import patterns
from gateway.domain.costs import BODY_BYTES
from gateway.domain.limits import MAX_AMOUNT
from gateway.policies import fields, limits
from gateway.policies.schema_parts import (
    Schema,
    choice,
    integer,
    list_of,
    named,
    object_of,
    size,
    text,
)

#: Of entries with a rate in the short form: what a rate is needed for.
RATE_FIRST = {"dependencies": {"burst": ["rate"], "candidate": ["rate"]}}


def plan() -> Schema:
    override: Schema = {
        "description": "A rate, or a mapping with rate (and burst), quota or concurrency. Replaces "
        "the values of the limit of this name; a route's `rate` is named like the route.",
        "examples": ["300/minute", {"concurrency": 20}],
        "anyOf": [rate(), {**object_of(_values()), **_one_of_values()}],
    }
    return object_of(
        {
            "was": was("plan", "Keys that have them have this plan."),
            "rate": rate(),
            "burst": burst(),
            "candidate": rate_candidate(),
            "limits": list_of(
                _entry(),
                "Further limits of the plan, beside its rate: quotas and concurrency limits, too.",
                example=[{"name": "monthly", "quota": "100000/month"}],
            ),
            "routes": named(
                override, "The plan's own values for limits of routes, by name.", patterns.LIMIT
            ),
        },
        required=["rate"],
    )


def cost() -> Schema:
    most = integer("The most units of a request; one with more gets 413.", MAX_AMOUNT)
    path = text(
        fields.JSON_PATH,
        "The array's key in the JSON body: ids, or data.ids. A dot alone: the body is the array.",
    )
    counted = {
        "json": path,
        "max": most,
        "bytes": size("The largest body that is counted, up to 256KiB.", BODY_BYTES, "16KiB"),
    }
    read = {
        "header": text(patterns.HEADER_NAME, "A request header with the number of units."),
        "max": most,
        "default": integer("The units of a request without the header.", MAX_AMOUNT, default=1),
    }
    return {
        "description": "How many units one request counts in its limits: a number; the elements of "
        "an array in its JSON body (json, max, bytes); or the number in a header (header, max, "
        "default).",
        "default": 1,
        "examples": [5, {"json": "ids", "max": 50}, {"header": "X-Items", "max": 50}],
        "anyOf": [
            integer("The same for all requests.", MAX_AMOUNT),
            object_of(counted, "A unit for each element of an array.", required=["json", "max"]),
            object_of(read, "The number in a request header.", required=["header", "max"]),
        ],
    }


def further_limits(meaning: str) -> Schema:
    """The limits of a route beside its rate."""
    example = [{"name": "daily", "quota": "10000/day"}]
    return list_of(_entry(), f"Further limits. {meaning}", example)


def _entry() -> Schema:
    entry = object_of(
        {
            "name": text(
                patterns.NAME,
                "The limit's name, in responses, metrics and the names of its counters.",
                example="daily",
            ),
            "was": was("limit", "It continues with the counters of the first."),
            **_values(),
            "in": text(
                fields.ZONE,
                "The time zone in which a quota's hour, day, week or month begins, by its name in "
                "the IANA database.",
                default="UTC",
                example="Europe/Berlin",
            ),
            "from": {
                "enum": ["account"],
                "description": "account: months begin on the billing day of the key's account, "
                "else on the first.",
            },
            "per": text(
                patterns.PER,
                "The subject that is counted: key, account, ip or header:NAME.",
                default="key",
                example="header:X-Tenant",
            ),
            # Most routes have no mcp: requests is all that an example can be.
            "of": {
                "enum": ["requests", "messages", "connections"],
                "description": "Only in a route with mcp: messages counts every message in a rate "
                "or quota, not only requests to a server; connections, of a concurrency, counts "
                f"sessions with anything open, each once, and {limits.MOST_CONNECTIONS:,} at most. "
                "By default requests.",
                "examples": ["requests"],
            },
            "mode": choice(
                ["enforce", "shadow"],
                "shadow: count and report, but never refuse.",
                default="enforce",
            ),
            "candidate": _candidate(),
        },
        required=["name"],
    )
    return {**entry, **_one_of_values()}


def was(what: str, meaning: str) -> Schema:
    name = {"type": "string", "pattern": f"^(?:{patterns.NAME})$"}
    return {
        "description": f"Earlier names of the {what}, the oldest first. {meaning}",
        "examples": ["old-name", ["oldest-name", "old-name"]],
        "anyOf": [name, {"type": "array", "items": name, "maxItems": limits.MOST_RENAMES}],
    }


#: Of a limit's candidate.
_COMPARED = (
    "values that are decided as well and never refuse; gateway_limit_candidate_total compares them "
    "with those in effect."
)


def _candidate() -> Schema:
    candidate = object_of(_of_candidate(_values()), f"Other {_COMPARED} Of the same kind.")
    return {**candidate, **_one_of_values()}


def rate_candidate() -> Schema:
    values = _of_candidate({"rate": rate(), "burst": burst()})
    return object_of(values, f"Other {_COMPARED}", ["rate"])


def _of_candidate(values: Schema) -> Schema:
    """The same, for the reference."""
    return {
        name: {**part, "description": f"Of the candidate, which never refuses. {words}"}
        for name, part in values.items()
        for words in [part["description"]]
    }


def _values() -> Schema:
    leases = integer(
        "The most concurrent requests, event streams and WebSockets.",
        limits.MOST_LEASES,
        example=5,
    )
    return {"rate": rate(), "burst": burst(), "quota": _quota(), "concurrency": leases}


def _one_of_values() -> Schema:
    return {
        "oneOf": [{"required": [key]} for key in limits.KEYS],
        "dependencies": {"burst": ["rate"]},
    }


def rate(description: str = "A sliding window.") -> Schema:
    words = f"{description} Units: second, minute, hour, day."
    return text(fields.RATE, words, example="30/minute")


def _quota() -> Schema:
    return text(
        fields.QUOTA,
        "A calendar period. Units: second, minute, hour, day, week (from Monday), month.",
        example="10000/day",
    )


def burst() -> Schema:
    return integer(
        "The most that is admitted in one window of the rate; at least the rate's amount.",
        MAX_AMOUNT,
        example=100,
    )
