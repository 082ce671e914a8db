"""The scores that color the map of heads: what each costs alone, an estimate of that, or induction; and the work that
measures them."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from engine.heads.induction import InductionScores, induction
from engine.importance.criteria import CRITERIA, MEASURED_BY
from engine.importance.importance import ORACLES, Scores
from engine.importance.rankings_of import Ranking
from engine.measurement import Measurement
from engine.models.session import Target
from engine.questions.requests import CHUNK, TaskSpec
from engine.requests import ScoreImportance, ScoreInduction
from engine.studies.surveys import StudySettings, Survey
from pages.ui.controls.coloring import COST, ESTIMATE, INDUCTION
from pages.ui.controls.many_tasks import importance_work, setting_of, so_far
from pages.ui.controls.study import Study
from pages.ui.downloads.origin import of_model, of_task
from pages.ui.page.defaults import ORDER, RANKING_QUESTIONS, SAMPLE
from pages.ui.page.runtime import first_figure_s
from pages.ui.page.work import Work

MEASURED, FFNS = CRITERIA["oracle"].heads, CRITERIA["oracle"].ffns
LOST = "Accuracy lost alone"


@dataclass(frozen=True)
class ScoreReader:
    """Reads the scores of a study's task as far as they are stored, and measures them. Of a model other than the
    included one, an estimate is first measured on as few questions as are stored together."""

    study: Study
    target: Target
    task: TaskSpec  # of the study, as the model is asked

    @cached_property
    def setting(self) -> StudySettings:
        return setting_of(self.study.setup)

    @property
    def ranking(self) -> Ranking:
        """The pruning order, whose scores are the estimate."""
        return Ranking(self.study.ranking or ORDER, n_questions=RANKING_QUESTIONS)

    @property
    def induction(self) -> Work[InductionScores]:
        return Work("induction", "Induction scores", induction(self.target), while_seen=True)

    @cached_property
    def induction_scores(self) -> InductionScores | None:
        return next(iter(reversed(self.induction.stored())), None)

    def whats(self, by: str) -> tuple[str, str]:
        """Returns the names of the scores of heads and of FFNs that color the map by COST or by ESTIMATE."""
        return (MEASURED, FFNS) if by == COST else (self.ranking.what("heads"), self.ranking.what("ffns"))

    def work(self, what: str, n: int = RANKING_QUESTIONS) -> Work[Survey]:
        """Returns the work that measures one score on `n` questions."""
        setting = replace(self.setting, n_ranking=n)
        title = LOST if what in ORACLES else MEASURED_BY[what].label
        slot = f"heads {what}" + " first" * (n != RANKING_QUESTIONS)
        return importance_work(setting, self.target, [self.task], what, slot, f"{title}, {self.task.title}")

    def found(self, what: str) -> Scores | None:
        """Returns a score so far: over the first questions, if not all are measured."""
        surveys = [so_far(self.work(what, n)) for n in (CHUNK, RANKING_QUESTIONS)]
        found = [each.preview([self.task]) for each in surveys]
        return next((each[self.task] for each in reversed(found) if each), None)

    def failed(self, what: str) -> dict[TaskSpec, str]:
        """Returns why a score cannot be measured."""
        return dict(so_far(self.work(what)).failed)

    def missing(self, by: str) -> list[Work[Any]]:
        """Returns the work that the map still lacks, that of heads first."""
        if by == INDUCTION:
            return [] if self.induction_scores is not None else [self.induction]
        works = {what: self.work(what) for what in self.whats(by)}
        return [work for what, work in works.items() if not so_far(work).n_known]

    def start(self, by: str) -> None:
        """Starts what is missing of the map, as far as a screen may measure by itself: all of the included model's, of
        another one the first questions of an estimate, or induction."""
        left_s = first_figure_s()
        for work in self.missing(by) if left_s else []:
            takes_s = work.takes_s(by_size=not self.target.spec.is_demo)
            is_demo = self.target.spec.is_demo
            if work.is_read and (is_demo if takes_s is None else takes_s <= left_s):
                replace(work, while_seen=True).start()
                left_s -= takes_s or 0.0
            elif work.is_read and by == ESTIMATE and self.found(self.whats(by)[0]) is None:
                self._start_first(left_s)
                return

    def _start_first(self, left_s: float) -> None:
        first = self.work(self.whats(ESTIMATE)[0], CHUNK)
        takes_s = first.takes_s(by_size=True)
        if takes_s is not None and takes_s <= left_s:
            replace(first, while_seen=True).start()

    def requests(self, by: str) -> list[ScoreImportance | ScoreInduction]:
        """Returns the requests of the scores that color the map."""
        if by == INDUCTION:
            return [ScoreInduction(**of_model(self.target.as_usual), out="induction.csv")]
        of: dict[str, Any] = {**of_model(self.target), **of_task(self.task), "task_data": self.study.setup.data_dir}
        of |= {"limit": RANKING_QUESTIONS, "sample": SAMPLE}
        return [ScoreImportance(**of, score=what, out=f"{what}.csv") for what in self.whats(by)]

    def measurements(self, by: str) -> dict[str, Measurement[Any]]:
        """Returns what is measured for the map, by title."""
        works = [self.induction] if by == INDUCTION else [self.work(what) for what in self.whats(by)]
        return {work.title: work.of for work in works if isinstance(work.of, Measurement)}

    def opens_with(self) -> str:
        """Returns the coloring that the screen opens with: what each head costs if that is measured or this is the
        included model, else the estimate if it is measured or short, else induction."""
        if self.target.spec.is_demo or so_far(self.work(MEASURED)).scores:
            return COST
        what = self.whats(ESTIMATE)[0]
        if self.found(what) is not None:
            return ESTIMATE
        first = self.work(what, CHUNK)
        first.stored()
        takes_s = first.takes_s(by_size=True)
        is_short = first.under_way or (takes_s is not None and takes_s <= first_figure_s())
        return ESTIMATE if is_short else INDUCTION
