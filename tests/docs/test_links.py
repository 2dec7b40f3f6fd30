"""Every link in the documents has a target."""

from __future__ import annotations

import pytest

from tests.docs.pages import ROOT, Page, page, pages


@pytest.mark.parametrize("one", pages(), ids=lambda one: one.name)
def test_links(one: Page) -> None:
    """The linked file is in the checkout, and has the named heading."""
    broken = []
    for link in one.links():
        target, _, anchor = link.partition("#")
        path = (one.path.parent / target).resolve() if target else one.path
        if not path.exists() or not path.is_relative_to(ROOT.resolve()):
            broken.append(link)
        elif anchor:
            name = str(path.relative_to(ROOT.resolve()))
            if anchor not in page(name).anchors():
                broken.append(link)
    assert broken == []


def test_every_page_is_found() -> None:
    """The README links to every page of docs/."""
    linked = {link.partition("#")[0] for link in page("README.md").links()}
    assert {each.name for each in pages() if each.name.startswith("docs/")} <= linked


def test_headings_are_named_as_github_does() -> None:
    """Lower case, hyphens for spaces, no punctuation; a number for a repeated heading."""
    text = (
        "# Two words\n## INVALID_API_KEY\n## `code`, and more\n## Two words\n```sh\n# none\n```\n"
    )
    found = Page("x.md", text).anchors()
    assert found == {"two-words", "invalid_api_key", "code-and-more", "two-words-1"}
