"""What the engine's tests are given: jobs, and a target of the tiny OPT."""

import pytest

from tests.conftest import HANG_S
from tests.engine.fixtures import target_in


@pytest.fixture
def jobs():
    """Jobs with threads of their own."""
    from engine.jobs import Jobs

    jobs = Jobs()
    yield jobs
    jobs.close(HANG_S)


@pytest.fixture
def target(session, tiny_opt):
    """The tiny OPT, in the session's store."""
    return target_in(session, tiny_opt)
