"""Scores of heads, FFNs and layers: `ScoreImportance`, `ScoreInduction` and `ScoreLayers`; and pruning criteria
compared: `CompareCriteria`, one task pruned in several orders and at random.
"""

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, ClassVar

from engine.accuracy.restarts import lost, oracle
from engine.errors import HeadroomError, UsageError
from engine.heads.entity_induction import N_PROMPTS
from engine.heads.induction import SCORES, VARIANTS, InductionScores, best_heads, induction
from engine.importance.criteria import ON_REQUEST
from engine.importance.layers import block_influence, greedy, n_passes, unmeasured_order
from engine.importance.rankings import agreement, order, permille
from engine.importance.scores import OF_ENTITIES, WHAT, Scores, importance
from engine.measurement import Measurement
from engine.models.session import Session
from engine.questions.tasks import SPLITS
from engine.requests.base import NamesTask, OfModel, OfTask, OnRay, RequestRun, Result
from engine.requests.fields import choice, names_of, number, output, string
from engine.requests.output import ARRAYS, TABLES, file_of, scores_file, scores_table, table_file
from engine.requests.shared_fields import MOST, MOST_SEED, training_questions
from engine.studies.compare import ALONG, COMPARED, SEEDS, TENTHS, ComparedCriteria, Comparing, areas, comparison
from engine.studies.surveys import SurveySettings
from engine.views.importance import importance_view, layers_view
from engine.views.induction import induction_view
from engine.views.sweep import criteria_view
from engine.views.words import counted

N_BEST = 5
MOST_SEEDS = 100
LEVELS = ",".join(f"{level / 10:g}" for level in TENTHS)


@dataclass(frozen=True, kw_only=True)
class ScoreImportance(OnRay, OfTask):
    """Score how much each head or FFN matters for one task. The value is Scores."""

    command: ClassVar[str] = "importance"
    group: ClassVar[str] = "Scores"
    split: str = choice("train", SPLITS, "which split the questions come from (default: train)")
    score: str = choice("heads", WHAT, "score to compute (default: heads)")
    prompts: int = number(
        N_PROMPTS,
        (1, MOST),
        f"number of prompts for {', '.join(OF_ENTITIES)} (default: {N_PROMPTS}; hundreds for small effects)",
    )
    out: str | None = output(ARRAYS, is_required=True)

    def measurement(self, session: Session) -> Measurement[Scores]:
        if self.prompts != N_PROMPTS and self.score not in OF_ENTITIES:
            raise UsageError(f"--prompts has no effect on {self.score}; leave it out, or choose {OF_ENTITIES[0]}")
        questions = self.questions(session, self.split)
        return importance(self.target(session), questions, self.score, n_prompts=self.prompts)

    def measure(self, run: RequestRun) -> Result:
        scores = run.value(self.measurement(run.session))
        found = {"scores": scores.scores, "tie_break": scores.tie_break, "gate_heads": scores.gate_heads,
                 "gate_ffns": scores.gate_ffns}  # fmt: skip
        columns = {"score": scores.scores, "gold_log_likelihood_drop_nats": scores.tie_break}
        fields = {"task": self.task, "shots": self.shots, "what": self.score, "n": scores.n,
                  "examples_per_second": scores.n / run.seconds, "out": self.out,
                  "shape": list(scores.scores.shape), "gradients_exactly_zero": scores.n_zero}  # fmt: skip
        files = file_of(self.out, lambda suffix: scores_file(suffix, found, columns))
        table = partial(scores_table, columns)
        return Result(scores, fields, importance_view(scores, self.task), files, table=table)


@dataclass(frozen=True, kw_only=True)
class ScoreInduction(OfModel):
    """Score every head for induction. The value is InductionScores."""

    command: ClassVar[str] = "induction"
    group: ClassVar[str] = "Scores"
    variant: str = choice(
        "olsson", VARIANTS, "definition of the scores: olsson (default), or bansal (as in llm-interpret; slower)"
    )
    seed: int = number(0, (0, MOST_SEED), "seed of the random tokens (default: 0)")
    out: str | None = output(ARRAYS, is_required=True)

    def measurement(self, session: Session) -> Measurement[InductionScores]:
        if self.bos is not None:
            words = "induction has sequences of its own, with and without a beginning; leave out --bos/--no-bos"
            raise UsageError(words)
        return induction(session.target(self.spec), self.variant, self.seed)

    def measure(self, run: RequestRun) -> Result:
        found = run.value(self.measurement(run.session))
        errors = {f"{name}_standard_error": found.standard_error[name] for name in SCORES if found.n[name] > 1}
        best = {name: list(best_heads(found.mean[name], N_BEST)) for name in SCORES}
        fields = {"variant": self.variant, "seed": self.seed, "n": found.n, "best": best, "note": found.note,
                  "out": self.out, "shape": list(found.mean["copying"].shape)}  # fmt: skip
        both = found.mean | errors
        files = file_of(self.out, lambda suffix: scores_file(suffix, both, both))
        return Result(found, fields, induction_view(found), files)


@dataclass(frozen=True, kw_only=True)
class ScoreLayers(OfTask):
    """Measure the cost of dropping each layer, by block influence, oracle, or greedy search. The value is the block
    influence of every layer."""

    command: ClassVar[str] = "layers"
    group: ClassVar[str] = "Pruning"
    split: str = choice("train", SPLITS, "which split the questions come from (default: train)")
    greedy: int = number(
        0,
        (0, MOST),
        "number of layers to drop greedily, the cheapest first; each step evaluates all questions once "
        "per remaining layer (default: 0)",
    )

    def measure(self, run: RequestRun) -> Result:
        target, questions = self.target(run.session), self.questions(run.session, self.split)
        shape, n = target.shape, min(self.greedy, target.shape.n_layers)
        influence = run.value(block_influence(target, questions))
        answers = run.value(oracle(target, questions, "layers"))
        accuracy_lost, nats_lost = lost(answers[0], answers[1:])
        steps = run.value(greedy(target, questions, n))
        orders = {"influence": order(influence), "oracle": order(accuracy_lost, nats_lost)}
        orders |= {"last-first": unmeasured_order(shape, "last-first", 0)}
        orders |= {"greedy": [step.layer for step in steps]} if steps else {}
        named = {"accuracy lost": accuracy_lost, "nats lost": nats_lost}
        pairs = agreement({"influence": influence, **named})
        spearman = {
            name: {what: getattr(pairs, what)[0, at] for what in ("srcc", "low", "high", "p")}
            for at, name in enumerate(named, start=1)
        }
        went = {step.layer: (number, step) for number, step in enumerate(steps, start=1)}
        rows = []
        for layer in range(shape.n_layers):
            number, step = went.get(layer, (None, None))
            row = {"layer": layer, "influence": influence[layer], "accuracy_lost": accuracy_lost[layer]}
            row |= {"gold_nats_lost": nats_lost[layer], "greedy_step": number}
            rows.append(row | {"greedy_accuracy": None if step is None else step.accuracy})
        fields = {
            "task": self.task, "shots": self.shots, "n": questions.n, "acc": float(answers[0].correct.mean()),
            "layers": rows, "orders": {name: [int(layer) for layer in layers] for name, layers in orders.items()},
            "spearman": spearman, "passes": {by: n_passes(shape, by, n) for by in ("influence", "oracle", "greedy")},
            "model": target.identity.name, "precision": self.precision, "bos": target.bos,
        }  # fmt: skip
        on = f"on {self.task}, {counted(questions.n, 'question')}"
        return Result(influence, fields, layers_view(rows, orders, spearman, on))


@dataclass(frozen=True, kw_only=True)
class CompareCriteria(OnRay, NamesTask):
    """Compare pruning criteria by accuracy at each level, area under the curve, and rank agreement. The value is
    ComparedCriteria."""

    command: ClassVar[str] = "compare"
    group: ClassVar[str] = "Pruning"
    limit: int = number(100, (1, MOST), "number of validation questions, as a stratified sample (default: 100)")
    order_questions: int = training_questions()
    criteria: str | None = string(
        None,
        "comma-separated criteria: any --order of `evaluate` except random "
        f"(default: {', '.join(COMPARED)}; all but {', '.join(ON_REQUEST)})",
    )
    axis: str = choice(
        "heads", ALONG, "components to prune; both: the same percentage of heads and of FFNs (default: heads)"
    )
    levels: str = string(LEVELS, "comma-separated pruning levels, in percent (default: 0,10,...,100)")
    random_orders: int = number(SEEDS, (1, MOST_SEEDS), "number of random orders to compare with (default: 5)")
    out: str | None = output(TABLES, is_required=True)

    def comparing(self, session: Session) -> Comparing:
        """The comparison, as an engine value."""
        levels = tuple(sorted({permille(level) for level in names_of(self.levels, ())}))
        return Comparing(
            self.task_spec(session), tuple(names_of(self.criteria, COMPARED)), self.axis, levels, self.random_orders
        )

    def measurement(self, session: Session) -> Measurement[ComparedCriteria]:
        settings = SurveySettings(self.spec, self.bos, self.data_dir, self.limit, self.order_questions)
        return comparison(self.target(session), settings, self.comparing(session))

    def measure(self, run: RequestRun) -> Result:
        import pandas as pd

        comparing, found = self.comparing(run.session), run.value(self.measurement(run.session))
        if not found.curves:
            raise HeadroomError(f"nothing could be measured: {'; '.join(found.failed.values())}")
        ranked, agreeing = areas(found), {axis: found.agreement(axis) for axis in comparing.axes}
        fields: dict[str, Any] = {
            "task": self.task, "shots": self.shots, "axis": self.axis, "n": found.n,
            "ranking_questions": self.order_questions, "levels": [level / 1000 for level in comparing.levels],
            "seeds": self.random_orders, "chance": found.chance,
            "areas": [asdict(each) | {"verdict": each.verdict} for each in ranked],
            "rank_agreement": {axis: {"criteria": list(each.labels), "spearman": each.srcc}
                               for axis, each in agreeing.items() if each is not None},
            "not_measured": dict(found.failed), "rows": found.cells(), "out": self.out,
        }  # fmt: skip
        files = file_of(self.out, lambda suffix: table_file(suffix, pd.DataFrame(found.cells())))
        return Result(found, fields, criteria_view(found, ranked), files)
