"""Where the numbers of a screen come from: the command, the Python program, and the records that they are read from.

No streamlit here.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from engine.importance.rankings_of import Evidence, Pruning, recall_evidence
from engine.models.subject import Lab, Subject
from engine.questions.requests import TaskSpec, get_requests
from engine.receipts import Reads
from engine.studies.surveys import Setting, survey


@dataclass(frozen=True)
class Origin:
    """The shell `command`, one or several lines, and the `python` program that measure what a screen shows, and what
    `reads` it from the store."""

    command: str
    python: str
    reads: Reads


def ranking_reads(subject: Subject, pruning: Pruning, data_dir: str | None) -> Reads:
    """What reads the scores that the levels of a pruning go by; nothing where they take none."""
    wanted = pruning.missing(Evidence())
    if not wanted:
        return {}

    def read(lab: Lab) -> object:
        requests = get_requests(replace(pruning.task, split=pruning.ranking.split), data_dir, lab.store)
        return recall_evidence(lab, subject, requests, pruning.ranking, wanted)

    return {"Ranking": read}


def survey_reads(setting: Setting, tasks: Sequence[TaskSpec], what: str) -> Callable[[Lab], object]:
    """What reads the importance of every task."""
    return partial(survey, setting=setting, tasks=tuple(tasks), what=what, compute=False)
