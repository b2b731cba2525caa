"""The command line: one module per command, imported when it is called."""

from archplace.cli._main import main

__all__ = ["main"]
