"""Folders and files that appear under their name when all of them is written, or not at all."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from archplace.arch_configs.errors import ConfigError, Problem


def refuse_occupied(target: Path, *, force: bool, is_ours: Callable[[Path], bool]) -> None:
    """Raise :class:`ConfigError` where ``target`` cannot become a folder of ours.

    What exists already stays, but for empty folders and, with ``force``, folders of which ``is_ours`` says so.
    """
    if not target.exists() and not target.is_symlink():
        for parent in target.parents:
            if parent.exists() and not parent.is_dir():
                raise _problem(target, f"cannot be made: {parent} is a file")
        return
    if not target.is_dir() or target.is_symlink():
        raise _problem(target, "exists and is no folder; give another --out")
    if not any(target.iterdir()):
        return
    if not is_ours(target):
        raise _problem(target, "exists and holds something else than a case of archplace; give another --out")
    if not force:
        raise _problem(target, "exists; replace it with --force, or give another --out")


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """Give a folder beside ``target`` to write to, and rename it when all is written.

    What ``target`` was goes then, and not before. Where anything fails nothing is left behind; what cannot be written
    is a :class:`ConfigError`.
    """
    partial = target.with_name(f".{target.name}.partial-{os.getpid()}")
    try:
        try:
            partial.mkdir(parents=True)
            yield partial
            _replace(partial, target)
        except OSError as error:
            raise _problem(
                target,
                f"cannot be written: {error.strerror or error}; nothing was changed there: make room, or give "
                "another --out",
            ) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def refuse_existing(target: Path, *, force: bool) -> None:
    """Raise :class:`ConfigError` where ``target`` cannot become a file of ours; ``force`` replaces files."""
    if target.is_dir():
        raise _problem(target, "exists and is a folder; give the name of a file as --out")
    if target.exists() and not force:
        raise _problem(target, "exists; replace it with --force, or give another --out")


def write_whole(target: Path, text: str) -> None:
    """Write a file. What cannot be written is a :class:`ConfigError`, and what was there stays."""
    partial = target.with_name(f".{target.name}.partial-{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(text, encoding="utf-8")
        partial.replace(target)
    except OSError as error:
        raise _problem(target, f"cannot be written: {error.strerror or error}; give another --out") from None
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def _replace(partial: Path, target: Path) -> None:
    old = target.with_name(f".{target.name}.old-{os.getpid()}")
    there = target.exists()
    if there:
        target.rename(old)
    try:
        partial.rename(target)
    except OSError:
        if there:
            old.rename(target)
        raise
    if there:
        shutil.rmtree(old, ignore_errors=True)


def _problem(path: Path, message: str) -> ConfigError:
    return ConfigError([Problem(place=str(path), key="", message=message)])
