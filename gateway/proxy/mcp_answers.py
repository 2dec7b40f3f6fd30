"""Answers that refuse MCP messages."""

from __future__ import annotations

from typing import Any

from gateway.domain.mcp.refusals import Answer, limited_words, refusal_body
from gateway.domain.shown import retry_after_s
from gateway.errors import COST_EXCEEDS_LIMIT, METHOD_NOT_ALLOWED, RATE_LIMITED, Refusal
from gateway.proxy.answers import extra_fields, message_of, named, retry_after
from gateway.proxy.mcp_reading import Reading
from gateway.proxy.request import Request

#: The methods of Streamable HTTP.
METHODS = ("POST", "GET", "DELETE")


def refusal_answer(request: Request, refusal: Refusal, read: Reading) -> tuple[Answer, bytes]:
    """The answer, and the field lines that its status requires. read: of the request"""
    policy, route = request.policy, request.route
    retry_s = retry_after(refusal, route, request.decision)
    data: dict[str, Any] = {"request_id": request.request_id.decode("ascii")}
    check, decision = request.check, request.decision
    if refusal in (RATE_LIMITED, COST_EXCEEDS_LIMIT) and check is not None and decision is not None:
        limit = check.limits[decision.governing]
        message = limited_words(limit, retry_after_s(decision), check.each_cost[decision.governing])
        data["limit"] = limit.name
    else:
        name = (request.detail or named(refusal, route, policy.bounds)) if refusal.names else ""
        message = message_of(refusal, name)
    if retry_s is not None:
        data["retry_after"] = retry_s
    if policy.error_docs is not None:
        data["doc"] = f"{policy.error_docs}#{refusal.anchor}"
    as_result = route.mcp is not None and route.mcp.limited_calls == "result"
    answer = refusal_body(
        refusal, message, data, read.body, read.fault, read.refused, as_result=as_result
    )
    allow = METHODS if refusal is METHOD_NOT_ALLOWED else ()
    return answer, extra_fields(refusal, retry_s, allow)
