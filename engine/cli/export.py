"""The command that writes a pruned model as a folder that others load: `export`."""

import shlex
import time
from argparse import Namespace
from dataclasses import replace
from typing import Any

from engine.cli.options import MOST, Parser, data, data_dir, model, pruned, shared, spec_of
from engine.cli.output import Report, last, print_result
from engine.cli.perplexity import mask_of
from engine.export.forms import FORMS
from engine.heads.ablation import FILLS
from engine.models.session import Session
from engine.questions.requests import MAX_SHOTS


def add_parsers(commands: Any) -> None:
    """The parser of export."""
    words = "a pruned model as a folder that transformers loads"
    parser: Parser = commands.add_parser("export", parents=[shared(), model(), data(), pruned()], help=words)
    parser.add_argument("--out", required=True, help="the new folder; one that is there is refused")
    help = "masked (default: stock architecture, zeros), small (cut, with a modelling file) or even (cut, stock)"
    parser.add_choice("--form", FORMS, help, default="masked")
    help = "what a pruned part gives: zero (default), or its mean, folded into output biases"
    parser.add_choice("--fill", FILLS, help, default="zero")
    parser.add_argument("--task", help="measure accuracy on it; with --prune-heads and --prune-ffns the ranking is its")
    parser.add_number("--shots", (0, MAX_SHOTS), "its solved examples (0)", default=0)
    parser.add_argument("--same-examples", action="store_true", help="the same ones for every question")
    parser.add_number("--limit", (1, MOST), "use this many of its questions (default: all)")
    parser.add_argument("--sample", default="first", help="which: first (as the harness) or stratified")
    parser.set_defaults(run=_export)


def _export(options: Namespace, session: Session, report: Report) -> int:
    from engine.export.exporting import Export, export
    from engine.export.folders import named_folder, refuse_taken
    from engine.questions.requests import TaskSpec, get_requests, select

    refuse_taken(named_folder(options.out))
    target, started = session.target(spec_of(options), options.bos), time.monotonic()
    questions = train = None
    if options.task:
        task = TaskSpec(options.task, options.shots, same_examples=options.same_examples)
        first = options.limit if options.sample == "first" else 0
        questions = select(get_requests(task, data_dir(options), session.store, first), options.limit, options.sample)
        if options.fill == "mean":
            train = select(
                get_requests(replace(task, split="train"), data_dir(options), session.store), None, "stratified"
            )
    mask = mask_of(options, session, target, report)
    command = shlex.join(["headroom", *options.typed])
    asked = Export(mask, options.out, options.form, options.fill, command, questions, train)
    made, _ = last(export(session, target, asked), report)
    (params_before, params), (bytes_before, n_bytes) = made.n_params, made.n_bytes
    lines = [f"{made.folder}: {mask.n_heads_pruned} heads and {mask.n_ffns_pruned} FFNs pruned, form {made.form}",
             f"{params:,} of {params_before:,} parameters, {n_bytes / 1e6:,.1f} of {bytes_before / 1e6:,.1f} MB",
             f"largest logit difference from the masked model: {made.checked.difference:.3g} on "
             f"{made.checked.n_tokens} tokens, {made.checked.precision}", *made.says]  # fmt: skip
    if made.judged is not None:
        told = made.judged.fields()
        each = [f"{name} {told[name]['acc']:.4f}" for name in ("full", "pruned", "mean_filled") if name in told]
        lines.append(f"accuracy on {told['task']}: {', '.join(each)}, n {told['n']}")
    fields = made.fields() | {"seconds": time.monotonic() - started, "heads_pruned": mask.n_heads_pruned,
                              "ffns_pruned": mask.n_ffns_pruned, "model": target.identity.name}  # fmt: skip
    print_result(options, fields, "\n".join([*lines, made.to_load]))
    return 0
