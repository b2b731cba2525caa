"""``archplace calibrate FILE.csv``: fit what the programs of clusters sustain to measured training steps."""

import argparse
import datetime
import sys

from archplace.arch_configs.errors import EXIT_DONE, ConfigError, Problem
from archplace.cli._patience import patience


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("file", metavar="FILE.csv", help="measured training steps, as archplace accuracy reads them")
    parser.add_argument(
        "--clusters",
        metavar="NAME",
        nargs="+",
        help="fit the steps on these clusters, with one set of values for all of them (default: each cluster alone)",
    )
    parser.add_argument(
        "--fix",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="do not fit this value, such as dispatch_s=0 where whole steps are compiled; may be given several times",
    )
    parser.add_argument(
        "--hold-out", metavar="SHARE", type=float, default=0.25, help="share of the rows kept for judging (0.25)"
    )
    parser.add_argument(
        "--keep",
        action="store_true",
        help="fit nothing: judge the values that the clusters' files have, and state the uncertainty of predictions",
    )
    parser.add_argument("--write", action="store_true", help="write the sections into the clusters' files as well")
    parser.epilog = (
        "Prints the sections 'software' and 'uncertainty' of each cluster's file, with date and errors. What is fitted "
        "are few numbers with a meaning of their own; docs/accuracy.md describes them, and what intervals predictions "
        "carry. With too few steps for an interval there is no section 'uncertainty'."
    )


def run(arguments: argparse.Namespace) -> int:
    """Fit; print the sections to stdout."""
    # Imported here, so that help and mistakes in the command line come at once.
    from archplace.arch_configs._builtin import locate
    from archplace.arch_configs.cluster_files import load_cluster
    from archplace.search.accuracy import read_steps
    from archplace.search.accuracy.calibrate import calibrate, judge
    from archplace.search.accuracy.preset import fitted_text, software_section, uncertainty_section, write_section

    if not 0 <= arguments.hold_out < 1:
        raise ConfigError(_problem("--hold-out", f"found {arguments.hold_out}; allowed: from 0 to less than 1"))
    if arguments.keep and arguments.fix:
        raise ConfigError(_problem("--fix", "fits nothing together with --keep, which keeps every value; leave it out"))
    fixed = _fixed(arguments.fix)
    steps = read_steps(arguments.file)
    present = list(dict.fromkeys(step.hardware for step in steps))
    unknown = [name for name in arguments.clusters or () if name not in present]
    if unknown:
        message = f"no step of the file is on {unknown[0]!r}; there are steps on {', '.join(present)}"
        raise ConfigError(_problem("--clusters", message))
    for names in [arguments.clusters] if arguments.clusters else [[name] for name in present]:
        chosen = [step for step in steps if step.hardware in names]
        doing = "judging" if arguments.keep else "fitting"
        with patience(f"{doing} {len(chosen)} steps on {', '.join(names)}"):
            try:
                if arguments.keep:
                    fit = judge(chosen, held_out=arguments.hold_out)
                else:
                    fit = calibrate(chosen, fixed=fixed, held_out=arguments.hold_out)
            except ValueError as error:
                raise ConfigError(_problem(arguments.file, str(error))) from None
        sources = list(dict.fromkeys(step.source for step in chosen))
        date = datetime.datetime.now(datetime.UTC).date().isoformat()
        stated = uncertainty_section(fit, sources, date)
        for name in names:
            sections = {"uncertainty": stated}
            if not arguments.keep:
                software = software_section(load_cluster(name), fit, fitted_text(fit, sources, date))
                sections = {"software": software, **sections}
            print(f"# {name}\n{''.join(sections.values())}", end="")
            if arguments.write:
                path = locate(name, "clusters", "cluster")
                for key, section in sections.items():
                    write_section(path, key, section)
                print(f"wrote {path}", file=sys.stderr)
    return EXIT_DONE


def _problem(place: str, message: str) -> list[Problem]:
    return [Problem(place=place, key="", message=message)]


def _fixed(texts: list[str]) -> dict[str, float]:
    """Return the values that are not fitted."""
    from archplace.search.accuracy.calibrate import PARAMETERS

    known = {parameter.name: parameter for parameter in PARAMETERS}
    fixed: dict[str, float] = {}
    for text in texts:
        name, _, value = text.partition("=")
        try:
            fixed[name] = float(value)
        except ValueError:
            raise ConfigError(_problem("--fix", f"found {text!r}; write NAME=VALUE with a number")) from None
        if name not in known:
            raise ConfigError(_problem("--fix", f"found {name!r}; allowed: {', '.join(known)}"))
    return fixed
