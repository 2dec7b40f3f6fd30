"""Who is at the other end of a connection, and who a request on it is from.

The other end speaks for itself; a trusted proxy also speaks for those behind it, in the PROXY
protocol for the whole connection, and in X-Forwarded-For or Forwarded for each request.
"""

from __future__ import annotations

from gateway.domain.networks import Address, client_address, is_within, limit_subject
from gateway.domain.policy import Policy
from gateway.http1.head import Fields


class Client:
    """The other end of one connection, as a policy sees it.

    ip:         its address: "192.0.2.1"
    scheme:     how it speaks to us: "http" or "https"
    subject:    what limits per address count it under: an IPv6 client's is its network
    is_trusted: it is one of the policy's trusted proxies
    policy:     that policy
    forwarded:  the lines that tell an upstream of it, where it is not trusted
    """

    __slots__ = ("_address", "forwarded", "ip", "is_trusted", "policy", "scheme", "subject")

    def __init__(self, address: Address, scheme: str, policy: Policy) -> None:
        self._address = address
        self.ip = str(address)
        self.scheme = scheme
        self.forwarded = f"X-Forwarded-For: {self.ip}\r\nX-Forwarded-Proto: {scheme}\r\n".encode(
            "ascii"
        )
        self.take_up(policy)

    def take_up(self, policy: Policy) -> None:
        """See it as this policy does."""
        self.policy = policy
        self.is_trusted = is_within(self._address, policy.trusted_proxies)
        self.subject = limit_subject(self._address, policy.ipv6_prefix)

    def origin(self, fields: Fields) -> tuple[str, str]:
        """Who a request of a trusted proxy is from: the address, and what limits count it under."""
        if not fields.forwarded_for:
            return self.ip, self.subject
        policy = self.policy
        address = client_address(self._address, fields.forwarded_for, policy.trusted_proxies)
        return str(address), limit_subject(address, policy.ipv6_prefix)

    def is_secure(self, fields: Fields) -> bool:
        """Did the request come over TLS, here or at a trusted proxy?"""
        return self.scheme == "https" or (
            self.is_trusted
            and b"\r\nx-forwarded-proto: https\r\n" in b"\r\n" + fields.proxied.lower()
        )

    def forwarded_lines(self, fields: Fields) -> bytes:
        """Tell the upstream whom the request of a trusted proxy came from."""
        chain = ", ".join((*(item.strip() for item in fields.forwarded_for), self.ip))
        proxied = fields.proxied
        if b"x-forwarded-proto:" not in proxied.lower():
            proxied += b"X-Forwarded-Proto: %b\r\n" % self.scheme.encode("ascii")
        return b"X-Forwarded-For: %b\r\n%b" % (chain.encode("latin-1"), proxied)
