"""The command about heads with an ideal pattern: `idealise`, how much of what they are worth it leaves."""

import math
import time
from argparse import Namespace
from typing import Any

from engine.cli.measure import task_of
from engine.cli.options import MOST, Parser, data_dir, spec_of
from engine.cli.output import Report, last, print_result
from engine.cli.texts import of_text, texts_named
from engine.errors import UsageError
from engine.models.session import Session
from engine.questions.requests import MAX_SHOTS


def add_parsers(commands: Any) -> None:
    """The parser of idealise."""
    words = "heads that look at the token before, behind its copies, or at everything: what is left of their effect"
    parser: Parser = commands.add_parser("idealise", parents=of_text(), help=words)
    parser.add_argument("--heads", required=True, help="such as L1H0,L1H1: their patterns are replaced all at once")
    parser.add_argument("--task", help="answer this task's questions too, or alone where no text is named")
    parser.add_number("--shots", (0, MAX_SHOTS), "solved examples in front of each question (0)", default=0)
    parser.add_argument("--same-examples", action="store_true", help="the same ones for every question: faster")
    parser.add_number("--limit", (1, MOST), "use this many questions (default: 100)", default=100)
    parser.set_defaults(run=_idealise, split="validation")


def _idealise(options: Namespace, session: Session, report: Report) -> int:
    """Measures the heads as they are, ablated and with each ideal pattern, and prints what each recovers."""
    from engine.accuracy.evaluation import accuracy
    from engine.heads.idealised import (
        PATTERNS,
        SIDES,
        Ideal,
        ideal_answers,
        ideal_losses,
        recovered_in_questions,
        recovered_in_texts,
    )
    from engine.models.masks import parse_heads, parse_mask
    from engine.questions.requests import get_requests, select

    target, started = session.target(spec_of(options), options.bos), time.monotonic()
    ideal = Ideal(tuple(parse_heads(options.heads, target.shape)), parse_mask(options.mask, target.shape))
    fields: dict[str, Any] = {"heads": [f"L{layer}H{head}" for layer, head in ideal.heads], "mask": ideal.mask.text()}
    lines, all_cached = [], True
    if options.text or options.passage or options.solved:
        texts = texts_named(options, session, report, options.texts)
        losses, cached = last(ideal_losses(target, texts, ideal).run(session), report)
        all_cached &= cached
        found = {kind: recovered_in_texts(losses, kind) for kind in PATTERNS}
        means = {side: _mean(losses[side]) for side in SIDES}
        first, n_tokens = next(iter(found.values())), sum(map(len, losses["full"]))
        fields["texts"] = {"n": len(texts), "n_tokens": n_tokens, "n_scored": first.n_scored, "loss_nats": means,
                           "recovered": _all(found)}  # fmt: skip
        lines.append(f"{len(texts)} text{'s' * (len(texts) > 1)}: {first.n_scored:,} of {n_tokens:,} tokens scored")
        lines += [_effect("texts", "nats a token", first), *_lines(found)]
    elif not options.task:
        raise UsageError("name what is measured: --text FILE, --passage TITLE or --solved TASK, or --task NAME")
    if options.task:
        questions = select(
            get_requests(task_of(options), data_dir(options), session.store, options.limit), options.limit
        )
        answers, cached = last(ideal_answers(target, questions, ideal).run(session), report)
        all_cached &= cached
        found = {kind: recovered_in_questions(answers, kind) for kind in PATTERNS}
        right = {side: accuracy(answers[side]).acc for side in SIDES}
        fields["questions"] = {"task": options.task, "shots": options.shots, "n": questions.n, "acc": right,
                               "recovered": _all(found)}  # fmt: skip
        lines += [_effect(options.task, "nats a question", next(iter(found.values()))), *_lines(found)]
        lines.append("accuracy: " + ", ".join(f"{side} {100 * value:.1f} %" for side, value in right.items()))
    fields |= {"model": target.identity.name, "precision": options.precision, "bos": target.bos}
    print_result(options, {**fields, "seconds": time.monotonic() - started, "cached": all_cached}, "\n".join(lines))
    return 0


def _mean(losses: Any) -> float:
    import numpy as np

    return float(np.nanmean(np.concatenate(losses)))


def _effect(where: str, unit: str, found: Any) -> str:
    interval = f"(95 % {found.effect_low:+.4f} to {found.effect_high:+.4f})"
    none = ""
    if math.isnan(found.share):
        none = f"; {'the loss is smaller' if found.effect_high < 0 else 'no clear difference'}: nothing to recover"
    return f"{where}: without the heads {found.effect_nats:+.4f} {unit} {interval}{none}"


def _lines(found: Any) -> list[str]:
    return [f"  {kind}: recovers {100 * each.share:.1f} % (95 % {100 * each.low:.1f} to {100 * each.high:.1f})"
            for kind, each in found.items() if not math.isnan(each.share)]  # fmt: skip


def _all(found: Any) -> dict[str, Any]:
    return {kind: {"effect_nats": each.effect_nats, "effect_ci95": [each.effect_low, each.effect_high],
                   "share": each.share, "ci95": [each.low, each.high], "n": each.n}
            for kind, each in found.items()}  # fmt: skip
