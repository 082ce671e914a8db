"""What heads do: `ReportHead`, all that is known of one; `IdealizeHeads`, what ideal patterns leave; `ShowFindings`,
what goes without a loss, what carries the examples, and what a text loses."""

import shlex
from dataclasses import MISSING, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from engine.accuracy.evaluation import accuracy
from engine.errors import UsageError
from engine.heads.induction import SCORES
from engine.measurement import Measurement
from engine.models.masks import parse_heads
from engine.models.session import Session, Target
from engine.questions.tasks import task_info
from engine.requests.accuracy import Evaluate
from engine.requests.base import OfModel, Request, RequestRun, Result, WithData, selected, task_named
from engine.requests.fields import argv, flag, names_of, number, string
from engine.requests.shared_fields import MOST, SAME_EXAMPLES, examples_in_prompt, labels_of_examples
from engine.requests.texts import MeasureLosses, OfTexts
from engine.studies.removal import found_heads, random_heads_mask, without
from engine.studies.surveys import SurveySettings, grid
from engine.views.heads import head_view, ideal_view
from engine.views.view import plain_text, text_view

if TYPE_CHECKING:
    from engine.studies.one_head import HeadRequest
    from engine.studies.portrait import Portrait

N_PARTNERS, N_TOKENS = 8, 6  # that are reported
SHOWN_TASK, SHOWN_SHOTS, SHOWN_QUESTIONS, SHOWN_PERCENT = "demo_outfit", 5, 48, "60"
SHOWN_PASSAGE = "Privet Drive, twice"


@dataclass(frozen=True, kw_only=True)
class ReportHead(WithData, OfModel):
    """Show all measurements of one head. The value is a Portrait."""

    command: ClassVar[str] = "head"
    group: ClassVar[str] = "Kinds of heads"
    head: str = string(MISSING, "the head, such as L1H0", is_position=True, example="L1H1")
    tasks: str | None = string(
        None,
        "comma-separated tasks on which to evaluate the model without the head and to rank the head (default: none)",
        what="tasks",
    )
    shots: int = examples_in_prompt(5)
    limit: int = number(64, (1, MOST), "number of training questions per task, as a stratified sample (default: 64)")
    token: str = string(
        "", ('input token, such as " fox", for which to show the tokens that the head promotes after it')
    )
    stored_only: bool = flag("show stored results only, without measuring", name="stored")

    def asked(self, session: Session) -> "HeadRequest":
        """Which head, which tasks and which tokens, as the engine names them."""
        from engine.studies.one_head import HeadRequest, head_named

        settings = SurveySettings(self.spec, self.bos, self.data_dir, n_ranking=self.limit)
        tasks = tuple(grid(names_of(self.tasks, ()), [self.shots]))
        for task in tasks:
            task_info(task.name)  # refuses a name that is none before anything is measured
        return HeadRequest(head_named(self.head, self.target(session).shape), settings, tasks, self.token)

    def measurement(self, session: Session) -> "Measurement[Portrait]":
        from engine.studies.one_head import portrait

        return portrait(self.target(session), self.asked(session))

    def measure(self, run: RequestRun) -> Result:
        from engine.studies.one_head import READ

        target, request = self.target(run.session), self.asked(run.session)
        wanted = self.measurement(run.session)
        portrait = wanted.so_far(run.session) if self.stored_only else run.value(wanted)
        assert portrait is not None
        fields = {"head": request.name, **told(portrait), "model": target.identity.name, "precision": self.precision}
        view = head_view(request.name, fields, portrait, READ)
        return Result(portrait, {"finding": plain_text(view.finding), **fields}, view)


def told(found: Any) -> dict[str, Any]:
    """The head's measurements as fields for JSON; long lists are cut to their first few entries."""
    return {
        "scores": {variant: _scores(found, variant) for variant in found.scores},
        "kinds": {name: {"score": float(scores[found.head]), "rank": found.rank_in_kind(name)}
                  for name, scores in found.kinds.items()},
        "attention_to_first_token": found.rests,
        "fed_by": _partners(found),
        "tasks": [_effect(task, each) | {"is_clear": found.costs[1][task]} for task, each in found.effects.items()],
        "importance": [
            {"what": each.what, "task": each.task.name, "shots": each.task.shots, "score": each.score,
             "rank": each.rank, "n_heads": each.n_heads}
            for each in found.places
        ],
        "recovered": [
            {"in": "texts" if task is None else task.name, "pattern": kind,
             "effect_nats": each.effect_nats, "share": each.share, "ci95": [each.low, each.high],
             "n_scored": each.n_scored}
            for task, kinds in found.recovered.items() for kind, each in kinds.items()
        ],
        "in_context": None if found.context is None else dict(zip(("score", "change"), map(_mean, found.context),
                                                                  strict=True)),
        "texts": {name: _text(found, name) for name in found.texts},
        "tokens": None if found.typed is None else _tokens(found.typed),
        "copied_tokens": None if found.tokens is None else found.tokens.copied,
        "left": list(found.left),
        "failed": dict(found.failed),
    }  # fmt: skip


def _scores(found: Any, variant: str) -> dict[str, Any]:
    return {name: {"score": found.score(name, variant), "rank": found.rank(name, variant) or None} for name in SCORES}


def _partners(found: Any) -> list[dict[str, Any]]:
    """The earlier heads of the largest part in its QK trace, largest first; or, if it has none, of the largest
    K-composition."""
    parts = found.partners
    if parts is None:
        return []
    previous, listed = found.scores["olsson"].mean["previous_token"], []
    sizes = found.feeding.composition if np.isnan(parts).all() else parts
    for flat in np.argsort(-sizes, axis=None, kind="stable")[:N_PARTNERS]:
        layer, head = (int(at) for at in np.unravel_index(flat, parts.shape))
        each = {"trace": found.feeding.trace[layer, head], "previous_token": previous[layer, head]}
        each |= {"part": parts[layer, head], "composition": found.feeding.composition[layer, head]}
        row = {name: float(value) for name, value in each.items()}
        listed.append({"head": f"L{layer}H{head}", **row, "composition_at_random": float(found.feeding.random.mean())})
    return listed


def _effect(task: Any, found: Any) -> dict[str, Any]:
    change = found.change
    accuracies = {"acc": found.full, "acc_without": found.pruned, "change": found.pruned - found.full}
    counts = {"n": change.n, "gained": change.gained, "lost": change.lost, "p": change.p_mcnemar}
    return {"task": task.name, "shots": task.shots, **accuracies, "ci95": list(change.interval), **counts}


def _text(found: Any, name: str) -> dict[str, Any]:
    """For one included text: the pairs with most attention, the tokens raised most, and the loss without the head."""
    from engine.heads.in_text import most_looked_at, most_raised

    seen, both = found.texts[name], found.losses.get(name)
    words = seen.pieces
    looked = [{"from": words[each.destination], "to": words[each.source], "attention": each.attention}
              for each in most_looked_at(seen, N_TOKENS)]  # fmt: skip
    raised = [{"at": words[at], "token": seen.strings[int(seen.raised_ids[at, 0])],
               "nats": float(seen.raised_nats[at, 0])} for at in most_raised(seen, N_TOKENS)]  # fmt: skip
    change = None if both is None else np.nanmean(both[1].loss_nats - both[0].loss_nats)
    return {"looks": looked, "raises": raised, "loss_without_it_nats": change}


def _tokens(found: Any) -> list[dict[str, Any]]:
    """What the OV circuit makes of each token."""
    sides = (("raises", found.raised_ids), ("lowers", found.lowered_ids))
    return [
        {"token": found.strings[int(token)], "own_rank": int(found.own_rank[at])}
        | {name: [found.strings[int(each)] for each in ids[at]] for name, ids in sides}
        for at, token in enumerate(found.token_ids)
    ]


def _mean(found: Any) -> dict[str, Any]:
    return {"nats": found.value, "ci95": [found.low, found.high], "n": found.n}


@dataclass(frozen=True, kw_only=True)
class IdealizeHeads(OfTexts):
    """Replace the attention patterns of heads with ideal patterns, and measure how much of the heads' effect remains.
    The value is Recovered by pattern, of texts and of questions."""

    command: ClassVar[str] = "idealize"
    group: ClassVar[str] = "Kinds of heads"

    heads: str = string(
        MISSING, "comma-separated heads whose patterns are replaced together, such as L1H0,L1H1", example="L1H1"
    )
    task: str | None = string(None, "also evaluate this task (no text is needed if a task is given)", what="task")
    shots: int = examples_in_prompt()
    same_examples: bool = flag(SAME_EXAMPLES)
    labels: str = labels_of_examples()
    limit: int = number(100, (1, MOST), "number of questions (default: 100)")

    def measure(self, run: RequestRun) -> Result:
        from engine.heads.idealized import (
            PATTERNS,
            SIDES,
            Ideal,
            ideal_answers,
            ideal_losses,
            recovered_in_questions,
            recovered_in_texts,
        )

        target = self.target(run.session)
        ideal = Ideal(tuple(parse_heads(self.heads, target.shape)), self.mask_in(target))
        names = [f"L{layer}H{head}" for layer, head in ideal.heads]
        fields: dict[str, Any] = {"heads": names, "mask": ideal.mask.text()}
        value, task = {}, task_named(self.task, self.shots, self.same_examples, self.labels)
        if self.text or self.passage or self.from_task:
            texts = self.contents(run, self.texts)
            losses = run.value(ideal_losses(target, texts, ideal))
            recovered = value["texts"] = {kind: recovered_in_texts(losses, kind) for kind in PATTERNS}
            means = {side: _mean_loss(losses[side]) for side in SIDES}
            first, n_tokens = next(iter(recovered.values())), sum(map(len, losses["full"]))
            fields["texts"] = {"n": len(texts), "n_tokens": n_tokens, "n_scored": first.n_scored, "loss_nats": means,
                               "recovered": _recovered_fields(recovered)}  # fmt: skip
        elif task is None:
            raise UsageError("name the input: --text FILE, --passage TITLE or --from-task TASK, or --task NAME")
        if task is not None:
            questions = selected(task, self.data_dir, run.session, self.limit, "first")
            answers = run.value(ideal_answers(target, questions, ideal))
            recovered = value["questions"] = {kind: recovered_in_questions(answers, kind) for kind in PATTERNS}
            right = {side: accuracy(answers[side]).acc for side in SIDES}
            fields["questions"] = {"task": self.task, "shots": self.shots, "n": questions.n, "acc": right,
                                   "recovered": _recovered_fields(recovered)}  # fmt: skip
        fields |= {"model": target.identity.name, "precision": self.precision, "bos": target.bos}
        return Result(value, fields, ideal_view(names, fields))


def _mean_loss(losses: Any) -> float:
    return float(np.nanmean(np.concatenate(losses)))


def _recovered_fields(found: Any) -> dict[str, Any]:
    return {kind: {"effect_nats": each.effect_nats, "effect_ci95": [each.effect_low, each.effect_high],
                   "share": each.share, "ci95": [each.low, each.high], "n": each.n}
            for kind, each in found.items()}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ShowFindings(Request):
    """Show three findings on the included model, each with its command. The value is the Result of each command."""

    command: ClassVar[str] = "demo"
    group: ClassVar[str] = "Checks"

    def target(self, session: Session) -> Target:
        return Evaluate(task=SHOWN_TASK).target(session)

    def measure(self, run: RequestRun) -> Result:
        settings: dict[str, Any] = {"task": SHOWN_TASK, "shots": SHOWN_SHOTS, "limit": SHOWN_QUESTIONS}
        target = self.target(run.session)
        heads = run.value(found_heads(target)).heads
        gone = without(target.shape, heads).text()
        instead = random_heads_mask(target.shape, heads, 0).text()
        requests = {
            "full": Evaluate(**settings),
            "pruned": Evaluate(**settings, prune_heads=SHOWN_PERCENT, order_questions=32),
            "without": Evaluate(**settings, mask=gone),
            "random": Evaluate(**settings, mask=instead),
            "text": MeasureLosses(passage=SHOWN_PASSAGE, mask=gone, out="losses.csv"),
        }
        results = {name: request.measure(run) for name, request in requests.items()}
        percent = {name: f"{100 * each.fields['acc']:.0f}%" for name, each in results.items() if "acc" in each.fields}
        lost = results["text"].fields
        findings = {
            "pruned": f"Without {SHOWN_PERCENT}% of its heads, the model answers {percent['pruned']} of "
            f"{SHOWN_QUESTIONS} questions right, with all {percent['full']} ({SHOWN_TASK}, {SHOWN_SHOTS} examples).",
            "without": f"Without its {len(heads)} induction heads ({gone}), {percent['without']}; without as many "
            f"random ones, {percent['random']}.",
            "text": f"Without them, a repeated text costs {lost['loss_masked_nats']:.2f} nats a token instead of "
            f"{lost['loss_full_nats']:.2f} ({SHOWN_PASSAGE}).",
        }
        commands = {name: shlex.join(["headroom", *argv(requests[name])]) for name in findings}
        lines = [f"{at}. {words}\n   {commands[name]}" for at, (name, words) in enumerate(findings.items(), start=1)]
        fields = {"findings": [{"finding": words, "command": commands[name]} for name, words in findings.items()]}
        return Result(results, fields | {"heads": gone}, text_view("\n".join(lines)))
