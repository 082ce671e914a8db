"""The slowest tests of a run, and whether each says why it takes over a second."""

from collections import defaultdict
from collections.abc import Iterable

import pytest

N_SHOWN = 20
BUDGET_S = 1.0


def slowest_lines(reports: Iterable[pytest.TestReport]) -> list[str]:
    """A line for each of the slowest tests: seconds (set-up and teardown included), name, and the reason it gives."""
    seconds: defaultdict[str, float] = defaultdict(float)
    reasons: dict[str, str] = {}
    for report in reports:
        seconds[report.nodeid] += report.duration
        reasons.update((report.nodeid, str(why)) for name, why in report.user_properties if name == "slow")
    lines = []
    for name in sorted(seconds, key=lambda name: -seconds[name])[:N_SHOWN]:
        over = seconds[name] > BUDGET_S
        why = reasons.get(name, "no reason given: @pytest.mark.slow") if over else ""
        lines.append(f"{seconds[name]:6.2f} s  {name}{f'  ({why})' if why else ''}")
    return lines
