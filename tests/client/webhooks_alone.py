"""A program for any Python: verifies webhooks by the client library in the folder of its argument.

Without an argument the library is where it is installed. The signatures are made here, and what is
imported has to be the library's own or of the standard library: httpx is not.
"""

import base64
import hashlib
import hmac
import json
import sys
import time

EVENT = {
    "id": "evt_1",
    "type": "ticket.created",
    "created": "2026-11-23T16:43:58.446012Z",
    "integration": {"id": "int_1", "provider": "github", "name": "Our code"},
    "data": {"title": "Größe"},
}
SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()


def signed(key: bytes, text: str, body: bytes) -> bytes:
    return hmac.new(key, text.encode() + body, hashlib.sha256).digest()


before = set(sys.modules)
sys.path[:0] = sys.argv[1:]

from gateway_client import webhooks  # noqa: E402 - its folder is known now

body = json.dumps(EVENT).encode()
now = int(time.time())
timed = signed(SECRET.encode(), f"{now}.", body).hex()
standard = base64.b64encode(signed(bytes(range(32)), f"evt_1.{now}.", body)).decode()
for headers in (
    {"X-Service-Timestamp": str(now), "X-Service-Signature": f"v1={timed}"},
    {"webhook-id": "evt_1", "webhook-timestamp": str(now), "webhook-signature": f"v1,{standard}"},
    webhooks.sign(body, SECRET, event_id="evt_1"),
):
    event = webhooks.verify(body, headers, SECRET)
    assert (event.id, event.type, event.data) == ("evt_1", "ticket.created", EVENT["data"])
    try:
        webhooks.verify(body + b" ", headers, SECRET)
    except webhooks.SignatureInvalid:
        continue
    raise AssertionError("a body that was changed is verified")

loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
others = loaded - sys.stdlib_module_names - {"gateway_client"}
assert not others, f"imported: {sorted(others)}"
print(webhooks.__file__)
