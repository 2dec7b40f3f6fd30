"""The tools of `everything.py` that ask the client: its user, its model, or for its roots."""

from __future__ import annotations

import json
from typing import Any, Final

import mcp_types as types
from mcp.server.mcpserver import Context
from mcp.shared.exceptions import MCPError

Answer = str | types.InputRequiredResult


def form(message: str, name: str, kind: str = "string") -> types.ElicitRequest:
    """The question for one value."""
    return ask(message, {name: {"type": kind}}, [name])


def ask(message: str, properties: dict[str, Any], required: list[str]) -> types.ElicitRequest:
    schema = {"type": "object", "properties": properties, "required": required}
    return types.ElicitRequest(
        params=types.ElicitRequestFormParams(message=message, requested_schema=schema)
    )


def sample(prompt: str, max_tokens: int = 100) -> types.CreateMessageRequest:
    message = types.SamplingMessage(
        role="user", content=types.TextContent(type="text", text=prompt)
    )
    return types.CreateMessageRequest(
        params=types.CreateMessageRequestParams(messages=[message], max_tokens=max_tokens)
    )


def required(state: str | None = None, **requests: Any) -> types.InputRequiredResult:
    """The result that asks the client for input."""
    return types.InputRequiredResult(input_requests=requests, request_state=state)


def content(ctx: Context, name: str) -> dict[str, Any] | None:
    """What the client's user filled in, if it is an answer to the question of this name."""
    given = (ctx.input_responses or {}).get(name)
    return given.content if isinstance(given, types.ElicitResult) and given.content else None


# -- requests to the client, up to 2025-11-25 ------------------------------------------------------


async def test_sampling(prompt: str, ctx: Context) -> str:
    """Asks the client's model."""
    params = sample(prompt).params
    result = await ctx.session.create_message(
        params.messages, max_tokens=params.max_tokens, related_request_id=ctx.request_id
    )
    return f"LLM response: {result.content.text}"


async def elicit(ctx: Context, request: types.ElicitRequest) -> str:
    params = request.params
    result = await ctx.session.elicit_form(
        params.message, params.requested_schema, related_request_id=ctx.request_id
    )
    return f"action={result.action}, content={json.dumps(result.content)}"


async def test_elicitation(message: str, ctx: Context) -> str:
    """Asks the client's user."""
    fields = {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    }
    return f"User response: {await elicit(ctx, ask(message, fields, list(fields)))}"


async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    """Asks with defaults of all types."""
    fields = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {
            "type": "string",
            "enum": ["active", "inactive", "pending"],
            "default": "active",
        },
        "verified": {"type": "boolean", "default": True},
    }
    return f"Elicitation completed: {await elicit(ctx, ask('Fill in the form', fields, []))}"


async def test_elicitation_sep1330_enums(ctx: Context) -> str:
    """Asks with all forms of choices."""
    values = ["option1", "option2", "option3"]
    titled = [{"const": f"value{at}", "title": f"Choice {at}"} for at in (1, 2, 3)]
    fields = {
        "untitledSingle": {"type": "string", "enum": values},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": values}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    }
    return f"Elicitation completed: {await elicit(ctx, ask('Choose', fields, []))}"


# -- results that ask the client, from 2026-07-28 on -----------------------------------------------


async def test_input_required_result_elicitation(ctx: Context) -> Answer:
    """Asks for a name."""
    given = content(ctx, "user_name")
    if given is None:
        return required(user_name=form("What is your name?", "name"))
    return f"Hello, {given.get('name')}!"


async def test_input_required_result_sampling(ctx: Context) -> Answer:
    """Asks the model."""
    given = (ctx.input_responses or {}).get("capital_question")
    if given is None:
        return required(capital_question=sample("What is the capital of France?"))
    return f"The model says: {given.content.text}"


async def test_input_required_result_list_roots(ctx: Context) -> Answer:
    """Asks for the roots."""
    given = (ctx.input_responses or {}).get("client_roots")
    if given is None:
        return required(client_roots=types.ListRootsRequest())
    return f"Roots: {[str(root.uri) for root in given.roots]}"


async def test_input_required_result_request_state(ctx: Context) -> Answer:
    """Asks with a state that has to come back."""
    if content(ctx, "confirm") is None:
        return required("asked", confirm=form("Please confirm", "ok", "boolean"))
    if ctx.request_state != "asked":
        raise MCPError(types.INVALID_PARAMS, "the state is not the one that was sent")
    return "state-ok"


async def test_input_required_result_tampered_state(ctx: Context) -> Answer:
    """Asks with a state that must come back unchanged."""
    return await test_input_required_result_request_state(ctx)


async def test_input_required_result_multiple_inputs(ctx: Context) -> Answer:
    """Asks for three things at a time."""
    questions = {
        "user_name": form("What is your name?", "name"),
        "greeting": sample("Generate a greeting", 50),
        "client_roots": types.ListRootsRequest(),
    }
    if questions.keys() - (ctx.input_responses or {}).keys():
        return required("asked", **questions)
    return "All answered."


async def test_input_required_result_multi_round(ctx: Context) -> Answer:
    """Asks twice."""
    if ctx.request_state == "2" and content(ctx, "step2"):
        return f"Color: {content(ctx, 'step2')}"
    if ctx.request_state == "1" and content(ctx, "step1"):
        return required("2", step2=form("Step 2: What is your favorite color?", "color"))
    return required("1", step1=form("Step 1: What is your name?", "name"))


async def test_input_required_result_capabilities(ctx: Context) -> Answer:
    """Asks for what the client can answer."""
    can = ctx.client_capabilities
    questions: dict[str, Any] = {}
    if can is not None and can.sampling is not None:
        questions["question"] = sample("What is the capital of France?")
    if can is not None and can.elicitation is not None:
        questions["user_name"] = form("What is your name?", "name")
    return required(**questions) if questions and not ctx.input_responses else "Done."


async def test_missing_capability(ctx: Context) -> str:
    """Works only for clients with sampling."""
    can = ctx.client_capabilities
    if can is None or can.sampling is None:
        data = {"requiredCapabilities": {"sampling": {}}}
        raise MCPError(types.MISSING_REQUIRED_CLIENT_CAPABILITY, "sampling is required", data)
    return "Done."


async def test_streaming_elicitation(ctx: Context) -> Answer:
    """Reports progress, then asks."""
    await ctx.report_progress(50, 100)
    return await test_input_required_result_elicitation(ctx)


TOOLS: Final = (
    test_sampling,
    test_elicitation,
    test_elicitation_sep1034_defaults,
    test_elicitation_sep1330_enums,
    test_input_required_result_elicitation,
    test_input_required_result_sampling,
    test_input_required_result_list_roots,
    test_input_required_result_request_state,
    test_input_required_result_tampered_state,
    test_input_required_result_multiple_inputs,
    test_input_required_result_multi_round,
    test_input_required_result_capabilities,
    test_missing_capability,
    test_streaming_elicitation,
)
