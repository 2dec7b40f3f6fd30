"""Paths that are made from others: each segment stays as it is encoded, and none appears."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gateway.domain.rewrites import encoded, rewritten, stripped
from gateway.domain.routes import RouteTable
from gateway.http1.paths import CanonicalPath, canonical
from gateway.policies.rewrites import read_template
from tests.domain.route_rules import no_deadline, route
from tests.kit.reach import reached, reaches


@pytest.mark.parametrize(
    ("prefix", "path", "sent"),
    [
        ("/shop", b"/shop/a/b", b"/a/b"),
        ("/shop", b"/SHOP/a", b"/a"),
        ("/shop", b"/shop", b"/"),
        ("/shop", b"/shop/", b"/"),
        ("/shop", b"/shop/a/", b"/a/"),
        ("/shop", b"/shop/%2Fa%3F", b"/%2Fa%3F"),
        ("/a/b", b"/a/b/c", b"/c"),
    ],
)
def test_a_prefix_is_left_out(prefix: str, path: bytes, sent: bytes) -> None:
    """The rest is as it was sent, and a path of its own."""
    assert stripped(prefix.split("/")[1:]).sent.path(path) == sent


TABLE = [
    ("/old/**", "/new/**", b"/old/a/b/", b"/new/a/b/"),
    ("/old/**", "/new/**", b"/old", b"/new"),
    ("/old/**", "/new/**", b"/old/", b"/new/"),
    ("/old/**", "/**", b"/old", b"/"),
    ("/**", "/new/**", b"/", b"/new/"),
    ("/items/{id}", "/v2/{id}", b"/items/a%2Fb", b"/v2/a%2Fb"),
    ("/items/{id}", "/v2/{id}/details", b"/Items/7/", b"/v2/7/details/"),
    ("/{a}/{b}", "/{b}/{a}", b"/x/y", b"/y/x"),
    ("/{t}/x/**", "/**/of/{t}", b"/acme/x/1/2", b"/1/2/of/acme"),
    ("/a/**/{id}/b", "/b/{id}/**", b"/a/1/2/3/b", None),
    ("/a/**/c/{id}", "/{id}/**", b"/a/1/2/c/3", b"/3/1/2"),
    ("/a/**/c/**", "/fixed", b"/a/c", b"/fixed"),
    ("/a b/**", "/c d/**", b"/a%20b/x", b"/c%20d/x"),
    ("/items/{id}", "/all", b"/items/7", b"/all"),
]


@pytest.mark.parametrize(("pattern", "template", "path", "sent"), TABLE)
def test_templates(pattern: str, template: str, path: bytes, sent: bytes | None) -> None:
    """Names and the rest stand for what the pattern matched."""
    pattern, template = (text.replace(" ", "%20") for text in (pattern, template))
    made = route(f"GET {pattern}")
    if sent is None:
        with pytest.raises(ValueError, match=r"without a \* or a name right after"):
            read_template(template, made, f"GET {pattern}")
        return
    found = read_template(template, made, f"GET {pattern}")
    assert found.sent.path(path) == sent


@pytest.mark.parametrize(
    ("pattern", "template", "upstreams", "clients"),
    [
        ("/old/**", "/new/**", b"/new/a/", b"/old/a/"),
        ("/old/**", "/new/**", b"/new", b"/old"),
        ("/old/**", "/new/**", b"/newer", None),
        ("/old/**", "/new/**", b"/New/a", None),
        ("/items/{id}", "/v2/{id}/x", b"/v2/7/x", b"/items/7"),
        ("/items/{id}", "/v2/{id}/x", b"/v2/7/y", None),
        ("/{t}/x/**", "/**/of/{t}", b"/1/2/of/acme", b"/acme/x/1/2"),
        ("/{t}/x/**", "/**/of/{t}", b"/of", None),
    ],
)
def test_back(pattern: str, template: str, upstreams: bytes, clients: bytes | None) -> None:
    """A path of the upstream is one of the client's only if it is of the template."""
    back = read_template(template, route(f"GET {pattern}"), f"GET {pattern}").back
    assert back is not None
    assert back.path(upstreams) == clients


@pytest.mark.parametrize(
    ("pattern", "template"),
    [("/a/{id}", "/b"), ("/a/*/b", "/c"), ("/a/**", "/b"), ("/a/**/b/**", "/c")],
)
def test_what_cannot_be_turned_back(pattern: str, template: str) -> None:
    """Where the template leaves something out, the client's path is not known."""
    assert read_template(template, route(f"GET {pattern}"), f"GET {pattern}").back is None


def test_heads() -> None:
    """The literals that both paths begin with."""
    found = rewritten("", ("v2", "{id}"), ("a", "b c", "*"), ("", "", "id"))
    assert (found.client_head, found.upstream_head) == (b"/a/b%20c", b"/v2")
    assert stripped(["x", "y"]).client_head == b"/x/y"


SEGMENTS = st.lists(
    st.one_of(
        st.sampled_from(
            [".", "..", "%2e", "%2E%2e", "%2F", "..%2f", "a%2F..", "%00", "%3F", "a;b"]
        ),
        st.sampled_from(["", "x", "items", "%25", "%20", "a.", ".%20", "é", "%c3%a9", "%41"]),
    ),
    max_size=6,
)


@no_deadline
@given(
    SEGMENTS,
    st.sampled_from(
        [("/**", "/n/**"), ("/{a}/**", "/**/{a}"), ("/**/x", "/**"), ("/{a}", "/b/{a}")]
    ),
)
def test_no_result_leads_elsewhere(segments: list[str], rewrite: tuple[str, str]) -> None:
    """Whatever a client sends: the result is canonical, so it has no dot segment."""
    pattern, template = rewrite
    made = route(f"GET {pattern}")
    found = canonical(f"/{'/'.join(segments)}".encode(), keeps_slashes=True)
    assume(isinstance(found, CanonicalPath))
    assert isinstance(found, CanonicalPath)
    assume(RouteTable([made]).match("GET", found.segments) is made)
    sent = read_template(template, made, f"GET {pattern}").sent.path(found.path)
    assert sent is not None
    again = canonical(sent, keeps_slashes=True)
    assert isinstance(again, CanonicalPath)
    assert again.path == sent


@reaches(0.2)
@no_deadline
@given(st.text(min_size=1, max_size=5).filter(lambda text: "/" not in text))
def test_encoded_is_as_canonical(text: str) -> None:
    """A literal is encoded as the canonical form has it."""
    found = canonical(b"/" + encoded(text))
    if isinstance(found, CanonicalPath) and len(found.segments) == 1:
        reached()
        assert found.path == b"/" + encoded(text)
