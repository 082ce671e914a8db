"""The source of the Training screen's numbers: the records of runs, which a command and a program read."""

from collections.abc import Mapping, Sequence

from engine.requests import MeasureTrajectory
from pages.ui.downloads.origin import Origin
from pages.ui.training.runs import DrawnRun, RunSource


def origin(runs: Sequence[DrawnRun], sources: Mapping[str, RunSource], in_full: bool) -> Origin:
    """Returns the requests of the results shown of these runs, which are described `in_full`, or not at all."""
    requests = [
        MeasureTrajectory(
            series=str(sources[run.name].record),
            out=f"{run.name}.csv",
            average_tokens=run.trajectory.about.get("around", 0),
        )
        for run in runs
    ]
    about = " · ".join(run.in_full for run in runs) if in_full else ""
    return Origin("Training", requests, {}, about, ", ".join(run.label for run in runs))
