"""The commands that measure a model: `evaluate` (accuracy under a mask), `importance` and `induction` (scores)."""

import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine.cli.options import MOST, MOST_SEED, Parser, data, data_dir, model, pruned, shared, spec_of
from engine.cli.output import Report, check_out, check_writable, last, print_result, scores_file, to_json, write
from engine.errors import UsageError
from engine.heads.induction import VARIANTS
from engine.importance.importance import WHAT
from engine.models.session import Session
from engine.questions.requests import MAX_SHOTS
from engine.questions.tasks import SPLITS

AGAINST = (
    "a second model on the same questions, pruned at the same levels by its own ranking: a precision or @REVISION of "
    "this one, or another model, such as fp32 or 'facebook/opt-125m in bf16'"
)


def add_parsers(commands: Any) -> None:
    """The parsers of evaluate, importance and induction."""
    parser = commands.add_parser("evaluate", parents=[*of_task(), pruned()], help="accuracy of a model under one mask")
    parser.add_choice("--split", SPLITS, "whose questions (default: validation)", default="validation")
    parser.add_argument("--items", help="write one JSON line a question to this file")
    parser.add_argument("--against", help=AGAINST)
    parser.set_defaults(run=_evaluate)

    parser = commands.add_parser("importance", parents=of_task(), help="scores of heads or FFNs for one task")
    parser.add_choice("--split", SPLITS, "whose questions (default: train)", default="train")
    parser.add_choice("--what", WHAT, "which scores (default: heads)", default="heads")
    parser.add_argument("--out", required=True, help="file to write: .npz, .csv or .parquet")
    parser.set_defaults(run=_importance)

    parser = commands.add_parser("induction", parents=[shared(), model()], help="induction scores of every head")
    parser.add_choice("--variant", VARIANTS, "olsson (default) or bansal: llm-interpret's, slower", default="olsson")
    parser.add_number("--seed", (0, MOST_SEED), "seed of the random tokens", default=0)
    parser.add_argument("--out", required=True, help="file to write: .npz, .csv or .parquet")
    parser.set_defaults(run=_induction)


def of_task() -> list[Parser]:
    """The options of a command about a model and a task's questions."""
    task = Parser(add_help=False)
    task.add_argument("--task", required=True, help="task name (see `tasks`) or a .jsonl with context, choices, gold")
    task.add_number("--shots", (0, MAX_SHOTS), "solved examples in front of each question (0)", default=0)
    task.add_argument(
        "--same-examples", action="store_true", help="the same solved examples for every question: faster"
    )
    task.add_number("--limit", (1, MOST), "use this many questions (default: all)")
    task.add_argument("--sample", default="first", help="which: first (as the harness) or stratified")
    return [shared(), model(), data(), task]


def _evaluate(options: Namespace, session: Session, report: Report) -> int:
    from engine.accuracy.evaluation import accuracy, evaluation
    from engine.importance.rankings import permille
    from engine.importance.rankings_of import Pruning, Ranking, orders_of
    from engine.models.masks import parse_edits
    from engine.questions.requests import get_requests, select

    if options.items:
        check_writable(options.items)
    other = None if options.against is None else spec_of(options).compared_with(options.against)
    levels = options.prune_heads, options.prune_ffns, options.prune_layers
    heads, ffns, layers = (permille(level) for level in levels)
    ranking = Ranking(options.ranking, options.seed, options.ranking_questions, layers_by=options.layers_by)
    target, task = session.target(spec_of(options), options.bos), task_of(options)
    edits = parse_edits(options.mask, target.shape)
    mask, started = edits.alone, time.monotonic()
    requests = get_requests(task, data_dir(options), session.store, first_of(options))
    questions = select(requests, options.limit, options.sample)
    pruning = Pruning(task, ranking, heads, ffns, edits, layers)
    if pruning.by_level:
        mask = pruning.mask(last(orders_of(target, pruning, data_dir(options)).run(session), report)[0])
    answers, cached = last(evaluation(target, questions, mask).run(session), report)
    seconds = time.monotonic() - started
    result = accuracy(answers)
    norm = f"perplexity {result.perplexity:.2f}" if requests.greedy else f"acc_norm {result.acc_norm:.4f}"
    beside, told = {}, ""
    if other is not None:
        second = session.target(other, options.bos)
        beside, told = _second(options, session, report, (target, pruning), second, (questions, answers))
    if options.items:
        write(options.items, "".join(to_json(item) + "\n" for item in items(answers)).encode())
    print_result(options, {
        "task": options.task, "shots": options.shots, "same_examples": options.same_examples, "split": options.split,
        "n": result.n,
        "acc": result.acc, "acc_norm": None if requests.greedy else result.acc_norm,
        "perplexity": result.perplexity,
        "acc_ci95": [result.ci_low, result.ci_high], "seconds": seconds, "items_per_second": result.n / seconds,
        "cached": cached, "mask": mask.text(), "heads_pruned": mask.n_heads_pruned,
        "ffns_pruned": mask.n_ffns_pruned, "layers_dropped": list(mask.layers_dropped),
        "model": target.identity.name, "precision": options.precision, "bos": target.bos,
        "contexts_cut": int((answers.n_cut > 0).sum()), "saved": session.store.on_disk, **beside,
    }, f"{options.task}, {options.shots} shots: acc {result.acc:.4f} (95 % {result.ci_low:.3f}-{result.ci_high:.3f}), "
       f"{norm}, n {result.n}, {mask.n_heads_pruned} heads and {mask.n_ffns_pruned} FFNs pruned"
       f"{', from the store' if cached else f', {seconds:.1f} s'}{told}")  # fmt: skip
    return 0


def _second(
    options: Namespace, session: Session, report: Report, first: tuple[Any, Any], second: Any, asked: tuple[Any, Any]
) -> tuple[dict[str, Any], str]:
    """(what JSON says of the second model under `against`, a line of it): `first` is the first model and its pruning,
    `asked` the questions and its answers."""
    from engine.accuracy.evaluation import evaluation
    from engine.importance.rankings_of import orders_of
    from engine.studies.two_models import compared, pruning_of_second

    (target, pruning), (questions, answers) = first, asked
    started, pruning = time.monotonic(), pruning_of_second(pruning, target.shape, second.shape)
    mask = pruning.typed.alone
    if pruning.by_level:
        mask = pruning.mask(last(orders_of(second, pruning, data_dir(options)).run(session), report)[0])
    said, cached = last(evaluation(second, questions, mask).run(session), report)
    both, name = compared(answers, said), second.spec.in_words
    low, high = both.interval
    found = {
        "model": second.identity.name, "precision": second.spec.precision, "bos": second.bos, "acc": both.second.acc,
        "acc_ci95": [both.second.ci_low, both.second.ci_high], "mask": mask.text(),
        "heads_pruned": mask.n_heads_pruned, "ffns_pruned": mask.n_ffns_pruned, "difference": both.difference,
        "difference_ci95": [low, high], "only_first": both.only_first, "only_second": both.only_second,
        "layers_dropped": list(mask.layers_dropped), "p_mcnemar": both.change.p_mcnemar, "cached": cached,
        "seconds": time.monotonic() - started,
    }  # fmt: skip
    line = f"{name}: acc {both.second.acc:.4f}, {100 * both.difference:+.1f} points (95 % {100 * low:.1f} to "
    line += f"{100 * high:.1f}, McNemar p {both.change.p_mcnemar:.3f}), right by it alone {both.only_second}, "
    line += f"by the first alone {both.only_first}, {mask.n_heads_pruned} heads and {mask.n_ffns_pruned} FFNs pruned"
    return {"against": found}, f"\n{line}"


def task_of(options: Namespace) -> Any:
    """Which questions, as the options name them."""
    from engine.questions.requests import TaskSpec

    return TaskSpec(options.task, options.shots, options.split, same_examples=options.same_examples)


def first_of(options: Namespace) -> int | None:
    """How many of a very long file's first questions are wanted (None: all); 0 where they are drawn from all of it."""
    return options.limit if options.sample == "first" else 0


def items(answers: Any) -> Iterator[dict[str, Any]]:
    """One mapping a question in dataset order: doc_id, gold, loglikelihoods (nats), pred, correct."""
    predicted, correct = answers.predicted, answers.correct
    for row in sorted(range(len(answers)), key=lambda row: answers.questions[row].doc_id):
        question = answers.questions[row]
        scores = answers.log_likelihood_nats[row, : len(question.contexts)]
        gold = question.golds[0] if len(question.golds) == 1 else list(question.golds)
        yield {"doc_id": question.doc_id, "gold": gold, "loglikelihoods": scores.tolist(),
               "pred": int(predicted[row]), "correct": bool(correct[row])}  # fmt: skip


def _importance(options: Namespace, session: Session, report: Report) -> int:
    from engine.importance.importance import importance
    from engine.questions.requests import get_requests, select

    check_out(options.out)
    started = time.monotonic()
    requests = get_requests(task_of(options), data_dir(options), session.store, first_of(options))
    questions = select(requests, options.limit, options.sample)
    target = session.target(spec_of(options), options.bos)
    scores, cached = last(importance(target, questions, options.what).run(session), report)
    seconds = time.monotonic() - started
    found = {"scores": scores.scores, "tie_break": scores.tie_break, "gate_heads": scores.gate_heads,
             "gate_ffns": scores.gate_ffns}  # fmt: skip
    columns = {"score": scores.scores, "gold_log_likelihood_drop_nats": scores.tie_break}
    write(options.out, scores_file(Path(options.out).suffix, found, columns))
    print_result(options, {
        "task": options.task, "shots": options.shots, "what": options.what, "n": scores.n, "seconds": seconds,
        "examples_per_second": scores.n / seconds, "cached": cached, "out": options.out,
        "shape": list(scores.scores.shape), "gradients_exactly_zero": scores.n_zero,
    }, f"{options.what} importance of {options.task} from {scores.n} questions written to {options.out}"
       f"{', from the store' if cached else f', {seconds:.1f} s'}")  # fmt: skip
    return 0


def _induction(options: Namespace, session: Session, report: Report) -> int:
    from engine.heads.induction import SCORES, best_heads, induction

    check_out(options.out)
    if options.bos is not None:
        raise UsageError("induction has sequences of its own, with and without a beginning; leave out --bos/--no-bos")
    started = time.monotonic()
    found, cached = last(
        induction(session.target(spec_of(options)), options.variant, options.seed).run(session), report
    )
    seconds = time.monotonic() - started
    errors = {f"{name}_standard_error": found.standard_error[name] for name in SCORES if found.n[name] > 1}
    write(options.out, scores_file(Path(options.out).suffix, found.mean | errors, found.mean | errors))
    best = {name: list(best_heads(found.mean[name], 5)) for name in SCORES}
    lines = "\n".join(f"{name:<16} " + (", ".join(f"{head} {score:.3g}" for head, score in heads) or "undefined")
                      for name, heads in best.items())  # fmt: skip
    print_result(options, {
        "variant": options.variant, "seed": options.seed, "n": found.n, "seconds": seconds, "cached": cached,
        "best": best, "note": found.note, "out": options.out, "shape": list(found.mean["copying"].shape),
    }, f"{lines}\nwritten to {options.out}{'; ' if found.note else ''}{found.note}"
       f"{', from the store' if cached else f', {seconds:.1f} s'}")  # fmt: skip
    return 0
