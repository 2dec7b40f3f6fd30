"""The patterns of names and texts of keys, accounts and policies: one for each.

Policy files, forms and records from the store are validated by these patterns: names are written to
header lines, logs and pages.
"""

from __future__ import annotations

import re
from typing import Final

from gateway.domain.key_format import looks_like_key

#: Of plans, routes, accounts, service areas and actions, and of limits in policy files.
NAME: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
#: Of tools, as the MCP specification recommends.
TOOL: Final = r"[A-Za-z0-9_./-]{1,128}"
#: Of limits: the limit of a tool is ROUTE/TOOL.
LIMIT: Final = rf"{NAME}(?:/{TOOL})?"
#: RFC 6749, 3.3: the characters of a scope, so that a list of scopes can be separated by spaces.
SCOPE: Final = r"[!#-\[\]-~]{1,128}"
#: RFC 9110, 5.6.2: the characters of a token, such as a header name or a method.
HEADER_NAME: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
#: The subject that a limit counts.
PER: Final = rf"key|account|ip|header:{HEADER_NAME}"
#: The most entries of a list or object in a key or account.
MOST_ENTRIES: Final = 256
#: The most characters of a key's name, which is free text.
MOST_TITLE: Final = 100
#: The last microsecond of the year 9999: a later time cannot be formatted.
LATEST_US: Final = 253_402_300_799_999_999

_is_name = re.compile(NAME).fullmatch
_is_limit = re.compile(LIMIT).fullmatch
_is_scope = re.compile(SCOPE).fullmatch
_is_per = re.compile(PER).fullmatch


def is_word(text: str) -> bool:
    """Can this be the name of a plan, an account, a service area or an action?"""
    return _is_name(text) is not None and not looks_like_key(text)


def is_limit_name(text: str) -> bool:
    """Can this be the name of a limit?"""
    return _is_limit(text) is not None and not looks_like_key(text)


def is_title(text: str) -> bool:
    """Can this be the name of a key: printable text on one line, without spaces around it?"""
    return (
        0 < len(text) <= MOST_TITLE
        and text.isprintable()
        and text == text.strip()
        and not looks_like_key(text)
    )


def printable(text: str) -> str:
    """A text with "?" for all that is not printable, such as terminal or direction controls."""
    return "".join(char if char.isprintable() else "?" for char in text)


def is_scope(text: str) -> bool:
    """Can this be a scope?"""
    return _is_scope(text) is not None and not looks_like_key(text)


def is_per(text: str) -> bool:
    """Can this be the subject of a limit?"""
    return _is_per(text) is not None
