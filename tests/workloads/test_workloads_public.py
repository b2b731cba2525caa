"""The room's public names."""

import types

from archplace import workloads


def test_all_equals_what_is_importable() -> None:
    public = {
        name
        for name, value in vars(workloads).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert set(workloads.__all__) == public
    assert list(workloads.__all__) == sorted(workloads.__all__)
