"""The job that ships with its trace."""

from pathlib import Path

import pytest

from archplace.workloads import load_job


@pytest.fixture(scope="session")
def traced_gpt_job():
    """Six blocks of the example script's GPT, in another size than they were traced in."""
    return load_job(Path(__file__).parents[3] / "runs" / "traced-gpt-workload.yaml")
