"""The scripts that made the included data change seldom: their tests run in `make thorough` alone."""

from tests.conftest import IS_THOROUGH

collect_ignore_glob = [] if IS_THOROUGH else ["test_*.py"]
