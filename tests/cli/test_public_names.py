"""What a package says it exports can be imported from it, and says what it is."""

import importlib

import pytest

PACKAGES = [
    "archplace",
    "archplace.arch_configs",
    "archplace.costmodel",
    "archplace.search.placement",
    "archplace.search.schedule",
    "archplace.search.report",
    "archplace.workloads",
]


@pytest.mark.parametrize("name", PACKAGES)
def test_all_names_exist(name):
    package = importlib.import_module(name)
    assert package.__doc__
    assert len(set(package.__all__)) == len(package.__all__)
    for exported in package.__all__:
        assert hasattr(package, exported), exported


@pytest.mark.parametrize("name", [name for name in PACKAGES if name != "archplace"])
def test_exported_classes_and_functions_are_documented(name):
    package = importlib.import_module(name)
    for exported in package.__all__:
        thing = getattr(package, exported)
        if callable(thing) and getattr(thing, "__module__", "").startswith("archplace"):
            assert thing.__doc__, exported
