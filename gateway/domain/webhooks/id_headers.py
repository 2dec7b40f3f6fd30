"""The header in which a sender names its webhooks, where an integration says which one it is.

No signature is over it: whoever has seen a webhook can send it once more, with another value.
"""

from __future__ import annotations

import re
from typing import Final

from gateway.domain.headers import is_forwarded
from gateway.domain.patterns import HEADER_NAME
from gateway.domain.webhooks.signatures import DEFAULT_NAMES, STANDARD_HEADERS

#: The most characters of its name, and of a value.
MOST_NAME: Final = 64
MOST_VALUE: Final = 200

_is_token: Final = re.compile(HEADER_NAME).fullmatch
_is_visible: Final = re.compile(rf"[!-~]{{1,{MOST_VALUE}}}").fullmatch
#: Some are the same in all webhooks of a sender, which would then be one event. Those of signatures
#: are read as such.
_REFUSED: Final = frozenset(
    (
        *("cookie", "user-agent", "accept"),
        *(*STANDARD_HEADERS, DEFAULT_NAMES.timestamp, DEFAULT_NAMES.signature),
    )
)
_PREFIXES: Final = ("content-", "accept-", "x-forwarded")


def is_id_header(name: str) -> bool:
    """Can it be the name of such a header, in lower case?

    Credentials, the host and what else the gateway reads or sets do not arrive as they were sent.
    """
    return (
        len(name) <= MOST_NAME
        and _is_token(name) is not None
        and name == name.lower()
        and name not in _REFUSED
        and not name.startswith(_PREFIXES)
        and is_forwarded(name)
    )


def id_in(value: str) -> str:
    """The id in the value of such a header; "": it has none that could be one."""
    return value if _is_visible(value) else ""
