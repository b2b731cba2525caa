"""The four rooms are top-level folders and parts of one package: links, mapping and packages must agree."""

import tomllib
from pathlib import Path

import archplace

ROOT = Path(__file__).resolve().parents[2]
ROOMS = {"arch_configs", "workloads", "costmodel", "search"}


def setuptools_table():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]


def packages_below(folder: Path, name: str):
    yield name
    for child in sorted(folder.iterdir()):
        if child.is_dir() and not child.is_symlink() and (child / "__init__.py").is_file():
            yield from packages_below(child, f"{name}.{child.name}")


def test_mapping_names_every_room():
    mapping = setuptools_table()["package-dir"]
    assert mapping == {"archplace": "archplace"} | {f"archplace.{room}": room for room in ROOMS}


def test_links_agree_with_the_mapping():
    for room in ROOMS:
        link = ROOT / "archplace" / room
        # Where the file system has no symbolic links, git leaves a small file that holds the target.
        target = link.readlink().as_posix() if link.is_symlink() else link.read_text().strip()
        assert target == f"../{room}"


def test_every_package_is_installed():
    found = set(packages_below(ROOT / "archplace", "archplace"))
    for room in ROOMS:
        found |= set(packages_below(ROOT / room, f"archplace.{room}"))
    assert sorted(found) == sorted(setuptools_table()["packages"])


def test_package_data_patterns_reach_every_data_file():
    table = setuptools_table()
    folders = {"arch_configs": ["*.yaml"], "workloads": ["*.yaml"], "search/report": ["*.css", "*.js"]}
    for folder, kinds in folders.items():
        patterns = table["package-data"]["archplace." + folder.replace("/", ".")]
        matched = {path for pattern in patterns for path in (ROOT / folder).glob(pattern)}
        assert matched == {path for kind in kinds for path in (ROOT / folder).rglob(kind)}


def test_typed_marker_ships():
    assert (ROOT / "archplace" / "py.typed").is_file()
    assert archplace.__version__ == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
