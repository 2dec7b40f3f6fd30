"""The names of the admin console's session cookie.

Cookies do not know ports (RFC 6265, 8.5): a browser that is signed in to the console sends this one
to the proxy on the same host as well. The proxy keeps it from upstreams, and upstreams from it.
"""

from __future__ import annotations

from typing import Final

#: Over plain HTTP.
SESSION: Final = "gateway_session"
#: Over TLS. RFC 6265bis, 4.1.3.2: a browser takes `__Host-` only by TLS, from this very host.
SECURE_SESSION: Final = "__Host-gateway_session"
