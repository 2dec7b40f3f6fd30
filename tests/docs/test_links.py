"""Every link in the documents has a target."""

from __future__ import annotations

from tests.docs.pages import ROOT, Page, page, pages


def test_links() -> None:
    """The linked file is in the checkout, and has the named heading."""
    broken = []
    root = ROOT.resolve()
    for one in pages():
        for link in one.links():
            target, _, anchor = link.partition("#")
            path = (one.path.parent / target).resolve() if target else one.path
            if not path.exists() or not path.is_relative_to(root):
                broken.append(f"{one.name}: found a link to {link}, expected a file")
            elif anchor:
                name = str(path.relative_to(root))
                if anchor not in page(name).anchors():
                    broken.append(f"{one.name}: found a link to {link}, expected a heading")
    assert broken == [], "\n".join(broken)


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
