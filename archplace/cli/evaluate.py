"""``archplace evaluate RUN.yaml``: price one placement of a training job."""

import argparse

from archplace.arch_configs.errors import EXIT_DONE, EXIT_INFEASIBLE, ConfigError
from archplace.cli._output import add_format, print_document, print_rows
from archplace.cli._patience import patience


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("run", metavar="RUN.yaml", help="workload, accelerator, cluster, and one value for each axis")
    parser.add_argument(
        "--simulate",
        action="store_true",
        help="run the pipeline by event simulation, and say what each stage does",
    )
    add_format(parser)
    parser.epilog = (
        "What the placement leaves out is: degrees 1, data parallelism over what the other degrees leave, no sequence "
        "parallelism, microbatches of 1, schedule 1f1b, nothing recomputed, shared or offloaded, gradient and pipeline "
        "communication behind computing, devices numbered along tensor, context, data, pipeline; layers are cut in the "
        "best way unless 'stages' gives them. Exit code 2 for a placement that is refused, 3 for one that does not fit "
        "into memory: its figures are printed all the same."
    )


def run(arguments: argparse.Namespace) -> int:
    """Evaluate; print the result to stdout."""
    # Imported here, so that help and mistakes in the command line come at once.
    from archplace.search.evaluation_tables import EvaluationView
    from archplace.search.evaluation_text import evaluation_text
    from archplace.search.planfile import load_plan
    from archplace.search.remedies import remedies
    from archplace.search.schedule import ScheduleCache
    from archplace.search.strategy.evaluate import evaluate

    job = load_plan(arguments.run)
    strategy, cache = job.strategy(), ScheduleCache()
    with patience(f"evaluating {strategy}"):
        try:
            held, recompute = job.held(strategy), job.recompute(strategy)
            found = evaluate(job.problem, strategy, held=held, recompute=recompute, cache=cache)
        except ValueError as error:
            raise ConfigError([job.problem_at(str(error), "placement")]) from None
        timeline = None
        if arguments.simulate:
            from archplace.search.pipeline.simulation import simulate

            timeline = simulate(found.shape, found.stage_seconds, overlap_transfers=strategy.overlap.pipeline)
        helps = () if found.feasible else tuple(remedies(job.problem, job.near(strategy), cache))
    view = EvaluationView(problem=job.problem, evaluation=found, timeline=timeline, remedies=helps)
    if arguments.format == "table":
        print(evaluation_text(view))
    elif arguments.format == "csv":
        print_rows([view.row()], "csv")
    else:
        print_document(view.document(), arguments.format)
    return EXIT_DONE if found.feasible else EXIT_INFEASIBLE
