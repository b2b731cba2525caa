from types import ModuleType

import archplace.arch_configs as room


def test_all_is_what_can_be_imported():
    importable = {
        name for name, value in vars(room).items() if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert importable == set(room.__all__)


def test_all_has_no_repetition():
    assert len(set(room.__all__)) == len(room.__all__)
