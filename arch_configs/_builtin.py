"""Built-in files by name, and the user's own by path."""

from pathlib import Path

from archplace.arch_configs._suggest import choose

_ROOM = Path(__file__).parent


def builtin_names(folder: str) -> tuple[str, ...]:
    """Return the names of the built-in files of one kind, sorted."""
    return tuple(sorted(path.stem for path in (_ROOM / folder).glob("*.yaml")))


def locate(name_or_path: str | Path, folder: str, what: str) -> Path:
    r"""Return the file that ``name_or_path`` means.

    A :class:`~pathlib.Path`, and text that ends in ``.yaml`` or ``.yml`` or contains a ``/`` or ``\``, is a path;
    other text is the name of a built-in file. Raises :class:`ConfigError` with a suggestion for an unknown name.
    """
    if isinstance(name_or_path, Path):
        return name_or_path
    if any(mark in name_or_path for mark in "/\\") or name_or_path.endswith((".yaml", ".yml")):
        return Path(name_or_path)
    name = choose(name_or_path, builtin_names(folder), what=f"{what} (or, for a file, a name that ends in .yaml)")
    return _ROOM / folder / f"{name}.yaml"
