"""The scores that color the map of heads: what each costs alone, an estimate of that, or induction; and the work that
measures them."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from engine.heads.induction import InductionScores, induction
from engine.importance.orders import PARTS, Ranking
from engine.importance.rules import QUICK
from engine.importance.scores import Scores
from engine.measurement import Measurement
from engine.models.session import Target
from engine.questions.rendering import TaskSpec
from engine.requests import ScoreImportance, ScoreInduction
from engine.studies.surveys import Survey, SurveySettings
from pages.ui.controls.coloring import COST, ESTIMATE, INDUCTION, ranking_by, title_of
from pages.ui.controls.many_tasks import importance_work, is_short, setting_of, so_far
from pages.ui.controls.study import Study
from pages.ui.downloads.origin import of_model, of_task
from pages.ui.page.defaults import ORDER, RANKING_QUESTIONS, SAMPLE
from pages.ui.page.runtime import first_figure_s
from pages.ui.page.work import Work


@dataclass(frozen=True)
class ScoreReader:
    """Reads the scores of a study's task as far as they are stored, and measures them."""

    study: Study
    target: Target
    task: TaskSpec  # of the study, as the model is asked

    @cached_property
    def setting(self) -> SurveySettings:
        return setting_of(self.study)

    def ranking(self, by: str) -> Ranking:
        """Returns the ranking by the scores of a coloring. Until another model than the included one has a pruning
        order, it is that of few questions."""
        order = self.study.ranking or (ORDER if self.target.spec.is_demo else QUICK)
        return ranking_by(by, Ranking(order, n_questions=RANKING_QUESTIONS))

    def whats(self, by: str) -> tuple[str, str]:
        """Returns the names of the scores of heads and of FFNs that color the map by COST or by ESTIMATE."""
        heads, ffns = (self.ranking(by).what(part) for part in PARTS)
        return heads, ffns

    def works(self, by: str) -> list[Work[Survey]]:
        """Returns the work that measures the scores of heads and of FFNs, by COST or by ESTIMATE."""
        n = self.ranking(by).n_scored

        def work(what: str) -> Work[Survey]:
            of = replace(self.setting, n_ranking=n), self.target, [self.task], what
            return importance_work(*of, f"heads {what} {n}", f"{title_of(what)}, {self.task.title}")

        return [work(what) for what in self.whats(by)]

    @property
    def induction(self) -> Work[InductionScores]:
        return Work("induction", "Induction scores", induction(self.target), 1, while_seen=True)

    @cached_property
    def induction_scores(self) -> InductionScores | None:
        return next(iter(reversed(self.induction.results_so_far())), None)

    def found(self, by: str) -> tuple[Scores | None, Scores | None]:
        """Returns the scores of heads and of FFNs so far, by COST or by ESTIMATE: over the first questions, if not all
        are measured."""
        heads, ffns = (so_far(work).preview([self.task]).get(self.task) for work in self.works(by))
        return heads, ffns

    def failed(self, by: str) -> dict[TaskSpec, str]:
        """Returns why the scores of heads cannot be measured."""
        return {} if by == INDUCTION else dict(so_far(self.works(by)[0]).failed)

    def missing(self, by: str) -> list[Work[Any]]:
        """Returns the work that the map still lacks, that of heads first."""
        if by == INDUCTION:
            return [] if self.induction_scores is not None else [self.induction]
        return [work for work in self.works(by) if not so_far(work).n_known]

    def start(self, by: str) -> None:
        """Starts what is missing of the map, as far as a screen may measure by itself: heads, then induction, then
        FFNs."""
        left_s = first_figure_s()
        for priority, work in zip((0, 2), self.missing(by), strict=False):
            if work.is_read and is_short(work, self.target, left_s):
                replace(work, while_seen=True, priority=priority).start()
                left_s -= work.takes_s(by_size=not self.target.spec.is_demo) or 0.0

    def requests(self, by: str) -> list[ScoreImportance | ScoreInduction]:
        """Returns the requests of the scores that color the map."""
        if by == INDUCTION:
            return [ScoreInduction(**of_model(self.target.as_usual), out="induction.csv")]
        of: dict[str, Any] = {**of_model(self.target), **of_task(self.task), "task_data": self.study.data_dir}
        of |= {"limit": self.ranking(by).n_scored, "sample": SAMPLE}
        return [ScoreImportance(**of, score=what, out=f"{what}.csv") for what in self.whats(by)]

    def measurements(self, by: str) -> dict[str, Measurement[Any]]:
        """Returns what is measured for the map, by title."""
        works = [self.induction] if by == INDUCTION else self.works(by)
        return {work.title: work.of for work in works if isinstance(work.of, Measurement)}

    def opens_with(self) -> str:
        """Returns the coloring that the screen opens with: what each head costs if that is measured or this is the
        included model, else the estimate, or induction if the estimate is not measured and takes long."""
        if self.target.spec.is_demo or so_far(self.works(COST)[0]).scores:
            return COST
        heads = self.works(ESTIMATE)[0]
        if self.found(ESTIMATE)[0] is not None or heads.under_way or not heads.is_read:
            return ESTIMATE
        return ESTIMATE if is_short(heads, self.target, first_figure_s()) else INDUCTION
