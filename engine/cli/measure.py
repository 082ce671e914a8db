"""What each command of the command line does; `engine.__main__` parses and turns errors into exit codes."""

import json
import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from engine.cli.output import Report, check_ending, data_dir, last, print_result, scores_file, spec_of, write
from engine.cli.studies import correlate, sweep
from engine.cli.texts import attention, attribute, losses
from engine.errors import HeadroomError, UsageError


def run(options: Namespace, report: Report) -> int:
    """Exit code of the command that `options` names."""
    threads = getattr(options, "threads", None)
    if threads is not None:
        if threads < 1:
            raise UsageError(f"--threads is {threads}; give at least 1")
        os.environ["OMP_NUM_THREADS"] = str(threads)  # read when torch is imported, which has not happened yet
    from cache import open_store

    store = open_store(options.cache)
    try:
        code = COMMANDS[options.command](options, store, report)
    finally:
        store.close()
    if store.notice:
        print(f"headroom: {store.notice}", file=sys.stderr)
    return code


def _evaluate(options: Namespace, store: Any, report: Report) -> int:
    from engine.accuracy.evaluation import accuracy, evaluate, numbers_key
    from engine.importance.rankings import permille
    from engine.importance.rankings_of import Ranking, compute_orders
    from engine.models.loading import Models, identify
    from engine.models.masks import parse_mask
    from engine.questions.requests import get_requests, select

    heads, ffns = permille(options.prune_heads), permille(options.prune_ffns)
    ranking = Ranking(options.ranking, options.seed, options.ranking_questions)
    spec, task = spec_of(options), task_of(options)
    identity = identify(spec, store)
    mask = parse_mask(options.mask, identity.shape)
    started = time.monotonic()
    requests = get_requests(task, data_dir(options), store)
    selection = select(requests, options.limit, options.sample)
    models = Models(store)
    if heads or ffns:
        steps = compute_orders(models, spec, task, ranking, options.bos, data_dir(options), store, ffns_too=ffns > 0)
        mask |= last(steps, report).value.mask(identity, heads, ffns)
    final = last(evaluate(models, spec, requests, selection, mask, options.bos, store), report)
    seconds = time.monotonic() - started
    answers, result = final.value, accuracy(final.value)
    if options.items:
        write(options.items, "".join(json.dumps(item) + "\n" for item in items(answers)).encode())
    numbers = numbers_key(identity, spec, options.bos)
    print_result(options, {
        "task": options.task, "shots": options.shots, "same_examples": options.same_examples, "split": options.split,
        "n": result.n,
        "acc": result.acc, "acc_norm": None if requests.greedy else result.acc_norm,
        "acc_ci95": [result.ci_low, result.ci_high], "seconds": seconds, "items_per_second": result.n / seconds,
        "cached": final.cached, "mask": mask.text(), "heads_pruned": mask.n_heads_pruned,
        "ffns_pruned": mask.n_ffns_pruned, "model": identity.name, "precision": spec.precision, "bos": numbers["bos"],
        "contexts_cut": int((answers.n_cut > 0).sum()), "saved": "kept in memory" not in (store.notice or ""),
    }, f"{options.task}, {options.shots} shots: acc {result.acc:.4f} (95 % {result.ci_low:.3f}-{result.ci_high:.3f}), "
       f"acc_norm {result.acc_norm:.4f}, n {result.n}, {mask.n_heads_pruned} heads and {mask.n_ffns_pruned} FFNs pruned"
       f"{', from the store' if final.cached else f', {seconds:.1f} s'}")  # fmt: skip
    return 0


def task_of(options: Namespace) -> Any:
    """Which questions, as the options name them."""
    from engine.questions.requests import TaskSpec

    return TaskSpec(options.task, options.shots, options.split, same_examples=options.same_examples)


def items(answers: Any) -> Iterator[dict[str, Any]]:
    """One mapping a question in dataset order: doc_id, gold, loglikelihoods (nats), pred, correct."""
    predicted, correct = answers.predicted, answers.correct
    for row in sorted(range(len(answers)), key=lambda row: answers.questions[row].doc_id):
        question = answers.questions[row]
        scores = answers.log_likelihood_nats[row, : len(question.contexts)]
        gold = question.golds[0] if len(question.golds) == 1 else list(question.golds)
        yield {"doc_id": question.doc_id, "gold": gold, "loglikelihoods": scores.tolist(),
               "pred": int(predicted[row]), "correct": bool(correct[row])}  # fmt: skip


def _importance(options: Namespace, store: Any, report: Report) -> int:
    from engine.importance.importance import WHAT, importance
    from engine.models.loading import Models
    from engine.questions.requests import get_requests, select

    if options.what not in WHAT:
        raise UsageError(f"--what {options.what!r} is unknown; choose one of {', '.join(WHAT)}")
    check_ending(options.out)
    started = time.monotonic()
    requests = get_requests(task_of(options), data_dir(options), store)
    selection = select(requests, options.limit, options.sample)
    steps = importance(Models(store), spec_of(options), requests, selection, options.what, options.bos, store)
    scores = last(steps, report).value
    seconds = time.monotonic() - started
    found = {"scores": scores.scores, "tie_break": scores.tie_break, "gate_heads": scores.gate_heads,
             "gate_ffns": scores.gate_ffns}  # fmt: skip
    columns = {"score": scores.scores, "gold_log_likelihood_drop_nats": scores.tie_break}
    write(options.out, scores_file(Path(options.out).suffix, found, columns))
    print_result(options, {
        "task": options.task, "shots": options.shots, "what": options.what, "n": scores.n, "seconds": seconds,
        "examples_per_second": scores.n / seconds, "cached": scores.cached, "out": options.out,
        "shape": list(scores.scores.shape), "gradients_exactly_zero": scores.n_zero,
    }, f"{options.what} importance of {options.task} from {scores.n} questions written to {options.out}"
       f"{', from the store' if scores.cached else f', {seconds:.1f} s'}")  # fmt: skip
    return 0


def _induction(options: Namespace, store: Any, report: Report) -> int:
    from engine.heads.induction import SCORES, best_heads, induction
    from engine.models.loading import Models

    check_ending(options.out)
    if options.bos is not None:
        raise UsageError("induction has sequences of its own, with and without a beginning; leave out --bos/--no-bos")
    started = time.monotonic()
    final = last(induction(Models(store), spec_of(options), options.variant, options.seed, store), report)
    found, seconds = final.value, time.monotonic() - started
    errors = {f"{name}_standard_error": found.standard_error[name] for name in SCORES if found.n[name] > 1}
    write(options.out, scores_file(Path(options.out).suffix, found.mean | errors, found.mean | errors))
    best = {name: list(best_heads(found.mean[name], 5)) for name in SCORES}
    lines = "\n".join(f"{name:<16} " + ", ".join(f"{head} {score:.3g}" for head, score in heads)
                      for name, heads in best.items())  # fmt: skip
    print_result(options, {
        "variant": options.variant, "seed": options.seed, "n": found.n, "seconds": seconds, "cached": final.cached,
        "best": best, "note": found.note, "out": options.out, "shape": list(found.mean["copying"].shape),
    }, f"{lines}\nwritten to {options.out}{'; ' if found.note else ''}{found.note}"
       f"{', from the store' if final.cached else f', {seconds:.1f} s'}")  # fmt: skip
    return 0


def _cache(options: Namespace, store: Any, report: Report) -> int:
    from engine.records import SCHEMA

    folder = str(store.directory)
    if options.action == "list":
        counts: dict[str, int] = {}
        for key in store.keys():
            kind = key.split("/")[1] if key.startswith(f"{SCHEMA}/") else key.split("/")[0]
            name = kind if key.startswith((f"{SCHEMA}/", "file-digest/", "passage")) else "old results"
            counts[name] = counts.get(name, 0) + 1
        lines = "\n".join(f"{kind}: {count}" for kind, count in sorted(counts.items())) or "the store is empty"
        print_result(options, {"folder": folder, "entries": counts}, lines)
    elif options.action == "size":
        size = store.size_bytes()
        print_result(options, {"folder": folder, "bytes": size}, f"{size / 1e6:,.1f} MB in {folder}")
    elif options.action == "verify":
        found = store.verify()
        text = (f"{found.n_checked} entries checked, {len(found.bad_keys)} damaged and deleted, "
                f"{found.n_orphans_removed} orphan files removed")  # fmt: skip
        print_result(options, {"checked": found.n_checked, "damaged": list(found.bad_keys),
                         "orphans_removed": found.n_orphans_removed}, text)  # fmt: skip
    else:
        freed = store.clear()
        print_result(options, {"folder": folder, "bytes_freed": freed}, f"{freed / 1e6:,.1f} MB deleted from {folder}")
    return 0


def _tasks(options: Namespace, store: Any, report: Report) -> int:
    from engine.questions.tasks import list_tasks

    states = list_tasks(data_dir(options))
    entries = [{"name": state.info.name, "title": state.info.title, "asks": state.info.asks, "where": state.where,
                "available": state.available, "note": state.note} for state in states]  # fmt: skip
    lines = [f"{entry['name']:<18} {entry['where']:<9} {entry['title']}: {entry['asks']}"
             + ("" if entry["available"] else f" ({entry['note']})") for entry in entries]  # fmt: skip
    print_result(options, {"tasks": entries}, "\n".join(lines))
    return 0


def _models(options: Namespace, store: Any, report: Report) -> int:
    from engine.models.loading import OPT_PARAMETERS, PRECISIONS, LoadSpec, identify, memory_estimate

    entries, lines = [], []
    for name in ["demo", *_hub_models()]:
        try:
            identity = identify(LoadSpec(name), store)
        except HeadroomError as error:
            entries.append({"model": name, "available": False, "note": str(error)})
            lines.append(f"{name}: {error}")
            continue
        sizes = {precision: identity.weight_bytes(precision) for precision in PRECISIONS}
        fits = {precision: memory_estimate(identity, precision).fits for precision in PRECISIONS}
        shape = identity.shape
        entries.append({"model": name, "available": True, "parameters": identity.n_params, "n_layers": shape.n_layers,
                        "n_heads": shape.n_heads, "bytes": sizes, "fits": fits})  # fmt: skip
        each = [f"{p} {size / 1e6:,.0f} MB{'' if fits[p] else ' (too big)'}" for p, size in sizes.items()]
        count = f"{identity.n_params / 1e6:,.0f} M parameters, {shape.n_layers} layers x {shape.n_heads} heads"
        lines.append(f"{name}: {count}, {', '.join(each)}")
    print_result(
        options, {"models": entries, "hub": [f"facebook/opt-{name}" for name in OPT_PARAMETERS]}, "\n".join(lines)
    )
    return 0


def _hub_models() -> list[str]:
    """Ids of supported models that lie in the hub's own cache on this computer."""
    from huggingface_hub.constants import HF_HUB_CACHE

    folders = sorted(Path(HF_HUB_CACHE).glob("models--*/snapshots/*/config.json"))
    return sorted({file.parts[-4].removeprefix("models--").replace("--", "/") for file in folders})


COMMANDS: dict[str, Callable[[Namespace, Any, Report], int]] = {
    "evaluate": _evaluate, "importance": _importance, "induction": _induction, "losses": losses,
    "attribute": attribute, "attention": attention, "correlate": correlate, "sweep": sweep, "cache": _cache,
    "tasks": _tasks, "models": _models,
}  # fmt: skip
