"""What the tests of the store share: stores that are closed after the test."""

from contextlib import ExitStack, closing

import pytest

from cache import Store


@pytest.fixture
def opened():
    """Opens the store in a folder."""
    with ExitStack() as stack:
        yield lambda folder: stack.enter_context(closing(Store(folder)))
