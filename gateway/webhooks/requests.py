"""Reads a request to the courier: who sent it, the query, and a body that is a JSON object.

Only workers of the gateway send requests here. A worker has a token, and names the account and the
key, which it has checked; a client cannot send these headers.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import hdrs, web

from gateway import errors
from gateway.domain.networks import (
    Network,
    client_address,
    limit_subject,
    parse_address,
    parse_forwarded_for,
)
from gateway.domain.patterns import is_word
from gateway.domain.webhooks.deliveries import Filter, is_id
from gateway.domain.webhooks.settings import COURIER_HEADER
from gateway.http1.head import safe_request_id
from gateway.manage.audit_log import Actor
from gateway.manage.deliveries import FILTER_FIELDS, filter_of
from gateway.manage.json_object import check_media_type, read_object
from gateway.manage.problems import Fault, Invalid, NotThere
from gateway.manage.reading import found, read_moment_us
from gateway.manage.refusals import BODIES_FULL, BODY_BROKEN, MEDIA_TYPE, Refused
from gateway.policies.faults import one_of
from gateway.webhooks.bodies import BodiesFull, HeldBody

#: The headers that workers add, beside COURIER_HEADER, which has the token.
ACCOUNT: Final = "X-Gateway-Account"
KEY_ID: Final = "X-Gateway-Key-Id"
#: The largest body, and how long it may take.
MOST_BODY: Final = 64 * 1024
BODY_S: Final = 10.0
#: Entries of one page of a list.
MOST_LIMIT: Final = 100
DEFAULT_LIMIT: Final = 50

#: What is kept for a time only.
_ENDING: Final = ("event", "delivery")
_is_number = re.compile(r"[1-9][0-9]{0,5}").fullmatch
_is_delivery = re.compile(r"[A-Za-z0-9_-]{1,64}:[A-Za-z0-9_-]{1,64}:[0-9]{1,9}").fullmatch

QueryReader = Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class Call:
    """A parsed request.

    path:  ids by their names in the route
    query: values by name; what was not sent is not there
    body:  the JSON object
    """

    actor: Actor
    account: str
    path: Mapping[str, str]
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, object] = field(default_factory=dict)

    @property
    def limit(self) -> int:
        """How many entries a list has."""
        return int(self.query.get("limit", DEFAULT_LIMIT))

    @property
    def before_us(self) -> int:
        """Entries of a list are before then; 0: any."""
        return int(self.query.get("before", 0))

    @property
    def wanted(self) -> Filter:
        """Which entries of a list are wanted. Raises Invalid."""
        return filter_of(self.query)


def is_of_worker(request: web.Request, token: str) -> bool:
    """Did a worker send it?"""
    given = request.headers.getall(COURIER_HEADER, [])
    return len(given) == 1 and hmac.compare_digest(
        given[0].encode("utf-8", "surrogateescape"), token.encode()
    )


def request_id_of(request: web.BaseRequest) -> str:
    """The id that the gateway gave it."""
    values = [value for name, value in request.raw_headers if name.lower() == b"x-request-id"]
    return safe_request_id(values).decode("ascii") or secrets.token_hex(8)


def client_of(request: web.Request, trusted: Sequence[Network] = (), ipv6_prefix: int = 64) -> str:
    """The address of the client, as limits count it; "": the worker does not tell it.

    trusted: the proxies whose word is taken, as workers do
    """
    hops = parse_forwarded_for(",".join(request.headers.getall("X-Forwarded-For", [])))
    try:
        peer = parse_address(hops[-1])
    except ValueError:
        return ""
    return limit_subject(client_address(peer, hops[:-1], trusted), ipv6_prefix)


def caller_of(request: web.Request) -> tuple[Actor, str]:
    """Who sent it, and the account. Raises Refused if the gateway asked for no key."""
    account, key = _only(request, ACCOUNT), _only(request, KEY_ID)
    if not is_word(account) or is_id(key) is None:
        raise Refused(errors.KEY_MISSING)
    return Actor(f"key {key}", "api"), account


def read_path(request: web.Request) -> dict[str, str]:
    """The ids of the path. Raises NotThere for one that nothing can have.

    Its words are those for an id that nothing has.
    """
    for name, value in request.match_info.items():
        if not (_is_delivery if name == "delivery" else is_id)(value):
            ended = ", or it is not kept any more" if name in _ENDING else ""
            raise NotThere(f"there is no {name} with this id{ended}")
    return dict(request.match_info)


def read_query(request: web.Request, readers: Mapping[str, QueryReader]) -> dict[str, Any]:
    """The values of the query. Raises Invalid with the faults of all."""
    values: dict[str, Any] = {}
    faults: list[Fault] = []
    for name in dict.fromkeys(request.query):
        if name not in readers:
            expected = one_of(sorted(readers)) if readers else "no query"
            faults.append(Fault("query", "an unknown parameter", expected))
            continue
        texts = request.query.getall(name)
        try:
            if len(texts) > 1:
                raise Invalid(Fault(name, f"{len(texts)} of them", "one"))
            values[name] = readers[name](texts[0])
        except Invalid as invalid:
            faults += invalid.faults
    if faults:
        raise Invalid(*dict.fromkeys(faults))
    return values


async def read_json(request: web.Request, held: HeldBody) -> Mapping[str, object]:
    """The body as a JSON object. Raises Refused."""
    content = await read_body(request, MOST_BODY, held)
    if content and hdrs.CONTENT_ENCODING in request.headers:
        raise Refused(MEDIA_TYPE, "a Content-Encoding")
    if content:
        check_media_type(*request.headers.getall(hdrs.CONTENT_TYPE, ()))
    return read_object(content)


async def read_body(request: web.Request, most: int, held: HeldBody) -> bytes:
    """A body of so many bytes at most, within BODY_S. Raises Refused."""
    if (request.content_length or 0) > most:
        raise Refused(errors.BODY_TOO_LARGE, f"{most} bytes")
    content = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for part in request.content.iter_any():
                content += part
                if len(content) > most:
                    raise Refused(errors.BODY_TOO_LARGE, f"{most} bytes")
                held.grow_to(len(content))
    except BodiesFull:
        raise Refused(BODIES_FULL) from None
    except TimeoutError:
        raise Refused(errors.REQUEST_TIMEOUT) from None
    except (ConnectionError, web.RequestPayloadError) as error:
        raise Refused(BODY_BROKEN) from error
    return bytes(content)


def _only(request: web.Request, name: str) -> str:
    values = request.headers.getall(name, [])
    return values[0] if len(values) == 1 else ""


# -- values of the query ---------------------------------------------------------------------------


def _read_limit(text: str) -> int:
    if not _is_number(text) or int(text) > MOST_LIMIT:
        raise Invalid(Fault("limit", found(text), f"a number from 1 to {MOST_LIMIT}"))
    return int(text)


def _read_before(text: str) -> int:
    # 0 would be "any".
    return max(1, read_moment_us("before", text))


def _read_states(text: str) -> tuple[str, ...]:
    # Which ones there are is known to the management.
    return tuple(dict.fromkeys(text.split(",")))


#: The query of a list; of events and dead letters; of deliveries.
PAGE: Final[Mapping[str, QueryReader]] = {"limit": _read_limit, "before": _read_before}
FILTERED: Final[Mapping[str, QueryReader]] = {**PAGE, **FILTER_FIELDS}
DELIVERIES: Final[Mapping[str, QueryReader]] = {**FILTERED, "state": _read_states}
