import subprocess
import sys
from types import ModuleType

import pytest

import archplace.arch_configs as room


def test_all_is_what_can_be_imported():
    offered = {name for names in room._MODULES.values() for name in names}
    assert offered == set(room.__all__)
    assert len(set(room.__all__)) == len(room.__all__)
    for name in room.__all__:
        assert not isinstance(getattr(room, name), ModuleType)
    public = {name for name, value in vars(room).items() if name[0] != "_" and not isinstance(value, ModuleType)}
    assert public - {"TYPE_CHECKING"} == set(room.__all__)


def test_each_name_is_that_of_its_module():
    for module, names in room._MODULES.items():
        for name in names:
            assert getattr(room, name) is getattr(sys.modules[f"{room.__name__}.{module}"], name)


def test_another_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        room.nonsense  # noqa: B018


def test_errors_come_without_numpy_and_pydantic():
    code = (
        "import sys, archplace.arch_configs.errors; "
        "sys.exit(str({'numpy', 'pydantic', 'yaml'} & set(sys.modules) or ''))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.stderr.strip() == ""
