"""`error_pages`: files of the policy folder that are the bodies of refusals."""

from __future__ import annotations

from typing import Final

from gateway.domain.error_pages import VARIABLES, ErrorPages, Kind, pieces, unknown_variable
from gateway.domain.json_text import read_json
from gateway.policies.faults import quoted, suggestion
from gateway.policies.pages import read_page
from gateway.policies.values import Value

ERROR_PAGES: Final = ("html", "json")


def read_error_pages(value: Value) -> ErrorPages | None:
    given = value.fields(ERROR_PAGES)
    if given is None:
        return None
    if not value.node.value:
        value.add_fault("html, json or both", "none of them")
    html = _read(given["html"], "html") if "html" in given else None
    return ErrorPages(html, _read(given["json"], "json") if "json" in given else None)


def _read(value: Value, kind: Kind) -> bytes | None:
    page = read_page(value)
    if page is None:
        return None
    try:
        text = page.decode()
    except UnicodeDecodeError as exc:
        found = f"{value.found} with the byte 0x{page[exc.start]:02x} at {exc.start}"
        value.add_fault("a text in UTF-8", found)
        return None
    name = unknown_variable(text)
    if name is not None:
        known = ", ".join(f"{{{each}}}" for each in VARIABLES)
        expected = f"the variables {known}{suggestion(name, VARIABLES)}"
        value.add_fault(
            f"{expected}; other braces with a space", f"{value.found} with {{{quoted(name)[1:-1]}}}"
        )
        return None
    if kind == "json" and (why := _json_fault(page)) is not None:
        value.add_fault("JSON once variables have values", f"{value.found} ({why})")
        return None
    return page


def _json_fault(page: bytes) -> str | None:
    """Why the page is not JSON, with and without Retry-After; None: it is."""
    for retry_s in (None, 1):
        try:
            read_json(b"x".join(pieces("json", page, 404, "NOT_FOUND", 'a "b"', retry_s)))
        except ValueError as exc:
            return str(exc)
    return None
