"""The command that goes on with what was interrupted: the one that was given, without what has its default."""

import argparse
import shlex


def command_line(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> str:
    """Return the command line that gives ``arguments``, quoted for a shell."""
    words = parser.prog.split()
    options: list[str] = []
    # The parser's own list: an option that is added later must not be forgotten here.
    for action in parser._actions:
        value = getattr(arguments, action.dest, None)
        if value is None or value == action.default or action.dest == "debug":
            continue
        values = [str(item) for item in (value if isinstance(value, list | tuple) else [value])]
        if not action.option_strings:
            words += values
        else:
            options.append(action.option_strings[-1])
            options += values if action.nargs != 0 else []
    return shlex.join(words + options)
