"""The command about one head: `head`, all that is known of it."""

import time
from argparse import Namespace
from typing import Any

import numpy as np

from engine.cli.options import MOST, data, data_dir, model, names_of, shared, spec_of
from engine.cli.output import Report, last, print_result
from engine.heads.induction import SCORES
from engine.models.session import Session
from engine.questions.requests import MAX_SHOTS

N_PARTNERS, N_TOKENS = 8, 6  # that are told


def add_parsers(commands: Any) -> None:
    """The parser of head."""
    words = "all that is known of one head, measured where it is not stored"
    parser = commands.add_parser("head", parents=[shared(), model(), data()], help=words)
    parser.add_argument("head", help="which, such as L1H0")
    help = "tasks to answer without it and to rank it for, separated by commas (default: none)"
    parser.add_argument("--tasks", help=help)
    parser.add_number("--shots", (0, MAX_SHOTS), "solved examples in front of each question (5)", default=5)
    parser.add_number("--limit", (1, MOST), "questions of each task, a stratified sample (100)", default=100)
    help = "train questions of each task behind its importance (64)"
    parser.add_number("--ranking-questions", (1, MOST), help, default=64)
    parser.add_argument("--token", default="", help='tokens of your own: what the head says of them, such as " fox"')
    parser.add_argument("--stored", action="store_true", help="tell what is stored, and measure nothing")
    parser.set_defaults(run=_head)


def _head(options: Namespace, session: Session, report: Report) -> int:
    from engine.questions.tasks import task_info
    from engine.studies.one_head import HeadRequest, head_named, portrait
    from engine.studies.surveys import StudySettings, grid

    target, started = session.target(spec_of(options), options.bos), time.monotonic()
    sizes = options.limit, options.ranking_questions
    setting = StudySettings(spec_of(options), options.bos, data_dir(options), *sizes)
    tasks = tuple(grid(names_of(options.tasks, ()), [options.shots]))
    for task in tasks:
        task_info(task.name)  # refuses a name that is none before anything is measured
    asked = HeadRequest(head_named(options.head, target.shape), setting, tasks, options.token)
    wanted = portrait(target, asked)
    if options.stored:
        found, cached = wanted.so_far(session), True
        assert found is not None
    else:
        found, cached = last(wanted.run(session), report)
    rows = told(found)
    more = {"model": target.identity.name, "precision": options.precision, "seconds": time.monotonic() - started}
    missing = ", ".join(found.left)
    lines = [
        f"{asked.name}: {found.verdict or 'its scores are not measured yet'}",
        *(
            f"{each['task']}, {each['shots']} shots: {100 * each['change']:+.1f} points without it "
            f"({100 * each['ci95'][0]:+.1f} to {100 * each['ci95'][1]:+.1f}, p {each['p']:.3f})"
            for each in rows["tasks"]
        ),
        *(f"{each['task']}, {each['what']}: rank {each['rank']} of {found.n_heads}" for each in rows["importance"]),
        *([f"fed by {', '.join(each['head'] for each in rows['fed_by'][:3])}"] if rows["fed_by"] else []),
        *(f"{name}: {line}" for name, line in found.failed.items()),
        *([f"not stored: {missing}"] if missing else []),
    ]
    print_result(options, {"head": asked.name, **rows, **more, "cached": cached}, "\n".join(lines))
    return 0


def told(found: Any) -> dict[str, Any]:
    """The head's measurements as fields for JSON; long lists are cut to their first few entries."""
    return {
        "verdict": found.verdict,
        "scores": {variant: _scores(found, variant) for variant in found.scores},
        "attention_to_first_token": found.rests,
        "fed_by": _partners(found),
        "tasks": [_effect(each) for each in found.effects],
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
    """The earlier heads of the largest part in its QK trace, largest first."""
    parts = found.partners
    if parts is None:
        return []
    previous, listed = found.scores["olsson"].mean["previous_token"], []
    for flat in np.argsort(-parts, axis=None, kind="stable")[:N_PARTNERS]:
        layer, head = (int(at) for at in np.unravel_index(flat, parts.shape))
        each = {"trace": found.feeding.trace[layer, head], "previous_token": previous[layer, head]}
        each |= {"part": parts[layer, head], "composition": found.feeding.composition[layer, head]}
        row = {name: float(value) for name, value in each.items()}
        listed.append({"head": f"L{layer}H{head}", **row, "composition_at_random": float(found.feeding.random.mean())})
    return listed


def _effect(each: Any) -> dict[str, Any]:
    change = each.paired
    accuracies = {"acc": each.acc, "acc_without": each.acc_without, "change": each.change}
    counts = {"n": change.n, "gained": change.gained, "lost": change.lost, "p": change.p_mcnemar}
    return {"task": each.task.name, "shots": each.task.shots, **accuracies, "ci95": [each.low, each.high], **counts}


def _text(found: Any, name: str) -> dict[str, Any]:
    """A built-in text: the pairs it looks at most, the tokens it raises most, and what is lost without it."""
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
