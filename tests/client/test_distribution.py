"""The client library as it is installed: its distributions in new environments.

Those of the gateway are in tests/end_to_end/test_installed.py.
"""

from __future__ import annotations

import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path

import pytest

from tests.kit.distributions import CHECKOUT, Built, build, files, in_sdist, in_wheel, install

#: Files of the package that are not installed, and why.
NOT_SHIPPED: dict[str, str] = {}
WEBHOOKS_ALONE = Path(__file__).with_name("webhooks_alone.py")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(tmp_path_factory.mktemp("client"), "client")


def package(built: Built) -> set[str]:
    """The files of the package that are to be installed."""
    found = files(built.project / "gateway_client")
    assert sorted(NOT_SHIPPED.keys() - found) == []
    return {f"gateway_client/{name}" for name in found - NOT_SHIPPED.keys()}


def metadata(built: Built) -> Message:
    with zipfile.ZipFile(built.wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        return message_from_bytes(archive.read(name))


def test_the_wheel_has_the_package_alone(built: Built) -> None:
    """All of its files, with the mark that it has types, and nothing of the gateway."""
    assert sorted(in_wheel(built) ^ package(built)) == []
    assert "gateway_client/py.typed" in in_wheel(built)


def test_the_source_has_what_the_wheel_is_built_with(built: Built) -> None:
    """The package, its project, README and licence, and nothing of the gateway."""
    expected = package(built) | {"pyproject.toml", "README.md", "LICENSE"}
    assert sorted(in_sdist(built) ^ expected) == []


def test_it_needs_httpx_alone(built: Built) -> None:
    """Its metadata has one dependency, without extras, and the licence."""
    found = metadata(built)
    (dependency,) = found.get_all("Requires-Dist", [])
    assert dependency.startswith("httpx<1,>=")
    assert (found["License-Expression"], found["License-File"]) == ("Apache-2.0", "LICENSE")


def test_its_licence_is_the_gateways(built: Built) -> None:
    """The copy stays one."""
    assert (built.project / "LICENSE").read_bytes() == (CHECKOUT / "LICENSE").read_bytes()


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_it_is_installed(built: Built, kind: str, tmp_path: Path) -> None:
    """Webhooks are verified without httpx; with it all that it exports can be imported, and the
    command says how it is used.
    """
    site = install(getattr(built, kind), tmp_path / "site")
    site.run("python", "-c", "import importlib.util as u; assert u.find_spec('httpx') is None")
    found = site.run("python", str(WEBHOOKS_ALONE)).strip()
    assert found.startswith(str(site.folder))
    site.add_dependencies()
    program = "import gateway_client; from gateway_client import *; Client, AsyncClient"
    found = site.run("python", "-W", "error", "-c", f"{program}; print(gateway_client.__file__)")
    assert found.startswith(str(site.folder))
    assert "METHOD" in site.run("python", "-m", "gateway_client", "--help")
