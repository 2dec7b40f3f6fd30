"""Templates of configuration files."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import get_args

import pytest

from loadtests.compare.render import FOLDER, render, render_file
from loadtests.compare.scenarios import Layer
from tests.kit.rows import each_row

TEMPLATE = "always @port@\n@if key all\nwith $dollar {braces}\n@end\n@if proxy\nwithout\n@end\nlast"
VALUES = {
    name: name.upper()
    for name in (
        *("folder", "conf", "port", "upstream", "workers", "layer", "scope", "redis", "script"),
        *("modules", "tiny", "tiny_rate", "tiny_peak", "tiny_more"),
    )
}


@each_row(
    ("variant", "expected"),
    [
        ("all", "always 80\nwith $dollar {braces}\nlast\n"),
        ("key", "always 80\nwith $dollar {braces}\nlast\n"),
        ("proxy", "always 80\nwithout\nlast\n"),
        ("other", "always 80\nlast\n"),
    ],
)
def test_a_variant_keeps_its_own_lines(variant: str, expected: str) -> None:
    """Lines between @if and @end are kept for the variants named there, by their whole names."""
    assert render(TEMPLATE, variant, {"port": 80}) == expected


@each_row("template", ["@if a\n@if b\n@end\n@end", "@end", "@if a\nline"])
def test_unbalanced_conditions_are_errors(template: str) -> None:
    """A template with unmatched @if or @end is refused."""
    with pytest.raises(ValueError, match=r"@if|@end"):
        render(template, "a", {})


def test_an_unknown_name_is_an_error() -> None:
    """A name without a value is an error, and never stays in a configuration."""
    with pytest.raises(KeyError, match="nowhere"):
        render("@nowhere@", "a", {})


def test_names_in_lines_left_out_need_no_value() -> None:
    """Names in lines that a variant leaves out need no value."""
    assert render("@if other\n@nowhere@\n@end", "a", {}) == "\n"


TEMPLATES = ["upstream.conf", "nginx.conf", "haproxy.cfg", "envoy.yaml"]
VARIANTS = [*get_args(Layer), "floor", "floor-log"]


@each_row(("name", "variant"), itertools.product(TEMPLATES, VARIANTS))
def test_every_template_renders_for_every_layer(name: str, variant: str, tmp_path: Path) -> None:
    """All conditions are balanced, all names are known, and no marker is left."""
    text = render_file(name, variant, VALUES, tmp_path).read_text()
    assert not re.search(r"@(if|end)|@[a-z_]+@", text)
    assert text.count("{") == text.count("}")


def test_the_files_that_are_no_templates_are_there() -> None:
    """The scripts that peers and wrk load are beside the templates."""
    names = {path.name for path in FOLDER.iterdir()}
    assert {"nginx_gate.lua", "nginx_window.lua", "wrk_one.lua", "wrk_lines.lua"} <= names
