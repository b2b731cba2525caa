"""The only module that knows PuLP: solvers by name, and what of their answer counts as proof."""

import warnings
from dataclasses import dataclass

import pulp

from archplace.arch_configs.errors import ConfigError

_SPELLINGS = {"highs": "HiGHS", "cbc": "PULP_CBC_CMD"}
"""PULP_CBC_CMD is the CBC that comes with PuLP; PuLP 4, which archplace does not allow yet, drops it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What a MILP solver said."""

    found: bool
    """There is a solution; read it from the variables."""
    proven: bool
    """The solver has proven it optimal. PuLP's ``status`` says "Optimal" after a time-out too; its ``sol_status``
    does not.
    """


def minimise(model: pulp.LpProblem, *, solver: str, time_limit_s: float) -> Answer:
    """Solve ``model`` with the named solver, silently and on one thread.

    ``solver``: ``HiGHS``, ``CBC``, or any name of ``pulp.listSolvers()`` that is installed here. Raises
    ``ConfigError`` naming the available ones.
    """
    name = _SPELLINGS.get(solver.lower(), solver)
    available = pulp.listSolvers(onlyAvailable=True)
    if name not in available:
        known = _why_missing(name) if name in pulp.listSolvers() else "is not known to PuLP"
        raise ConfigError(f"solver: {solver!r} {known}; available are {', '.join(available)}")
    options = {"msg": False, "timeLimit": time_limit_s}
    if name in ("HiGHS", "PULP_CBC_CMD"):
        # Their default gap of 1e-4 would end the search before the proof.
        options |= {"threads": 1, "gapRel": 0.0}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PULP_CBC_CMD is deprecated", DeprecationWarning)
        model.solve(pulp.getSolver(name, **options))
    found = model.sol_status in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible)
    return Answer(found=found, proven=model.sol_status == pulp.LpSolutionOptimal)


def _why_missing(name: str) -> str:
    """Why an interface of PuLP does not work here; HiGHS can be installed and still not load."""
    if name == "HiGHS":
        try:
            import highspy  # noqa: F401
        except ImportError as error:
            if "undefined symbol" in str(error):
                # From 1.15 on highspy shares a library name with the HiGHS inside OR-tools.
                return "cannot be loaded beside OR-tools: pip install 'highspy<1.15'"
    return "is not installed here"
