"""The names of the admin console's session cookie.

Cookies are not bound to a port (RFC 6265, 8.5): a browser that is signed in to the console also
sends this one to the proxy on the same host. The proxy forwards it in neither direction.
"""

from __future__ import annotations

from typing import Final

#: Over plain HTTP.
SESSION: Final = "gateway_session"
#: Over TLS. RFC 6265bis, 4.1.3.2: a browser accepts `__Host-` only over TLS and from the same host.
SECURE_SESSION: Final = "__Host-gateway_session"
