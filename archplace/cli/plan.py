"""``archplace plan RUN.yaml``: search the placement of one training job on one accelerator."""

import argparse

from archplace.arch_configs.errors import EXIT_DONE, EXIT_INFEASIBLE, ConfigError
from archplace.cli._output import add_format, print_document, print_rows
from archplace.cli._patience import patience


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"found {number}; needs at least 1")
    return number


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("run", metavar="RUN.yaml", help="workload, accelerator, cluster, and what each axis may be")
    parser.add_argument("--best", type=_at_least_one, default=10, metavar="N", help="strategies to print (default: 10)")
    add_format(parser)
    parser.epilog = (
        "Answers first whether the job fits, then lists the fastest strategies of all, with proof: no other takes less "
        "than stated. JSON and YAML carry each strategy as the keys of a run file, to be evaluated on their own, and "
        "every kind of refusal; CSV the strategies alone. Exit code 3 if nothing fits, with what would."
    )


def run(arguments: argparse.Namespace) -> int:
    """Search; print the best strategies to stdout."""
    # Imported here, so that help and mistakes in the command line come at once.
    from archplace.search.plan_tables import PlanView
    from archplace.search.plan_text import plan_text
    from archplace.search.planfile import load_plan
    from archplace.search.remedies import remedies
    from archplace.search.schedule import ScheduleCache
    from archplace.search.strategy.plan import plan

    job = load_plan(arguments.run)
    only = [key for key in ("stages", "stage_recompute") if getattr(job, key) is not None]
    if only:
        message = "plan chooses the stages itself; remove the key, or price these stages with archplace evaluate"
        raise ConfigError([job.problem_at(message, key) for key in only])
    problem, cache = job.problem, ScheduleCache()
    with patience(f"searching placements of {problem.workload.name} on {problem.accelerators:,} accelerators"):
        found = plan(problem, job.axes, best=arguments.best, cache=cache)
        unfit = not found.best and found.n_strategies > 0
        view = PlanView.of(problem, found, remedies(problem, job.axes, cache) if unfit else ())
    if arguments.format == "table":
        print(plan_text(view))
    elif arguments.format == "csv":
        print_rows([row.flat() for row in view.rows], "csv")
    else:
        print_document(view.document(), arguments.format)
    return EXIT_DONE if found.best else EXIT_INFEASIBLE
