"""The command about a text as a whole: `perplexity` by the standard recipe, of the full and of the pruned model."""

import json
import time
from argparse import Namespace
from typing import Any

from engine.cli.options import MOST, Parser, data, data_dir, model, pruned, shared, spec_of
from engine.cli.output import Report, last, print_result
from engine.cli.texts import built_in, read_text
from engine.errors import HeadroomError, UsageError
from engine.models.session import Session
from engine.questions.requests import MAX_SHOTS

BETWEEN_ROWS = "\n\n"  # as the standard recipe joins the rows of a data set


def add_parsers(commands: Any) -> None:
    """The parser of perplexity."""
    parents = [shared(), model(), data(), pruned()]
    words = "perplexity of a text, full and pruned: whole, BOS once, windows without overlap"
    parser: Parser = commands.add_parser("perplexity", parents=parents, help=words)
    parser.add_argument("--text", help='a UTF-8 text file, or a .jsonl whose rows\' "text" is joined by two newlines')
    parser.add_argument("--passage", help="the title of a built-in passage instead")
    parser.add_number("--window", (0, MOST), "tokens a window (default: the model's)", default=0)
    parser.add_argument(
        "--task", help="what the ranking is measured on, with --prune-heads, --prune-ffns and --prune-layers"
    )
    parser.add_number("--shots", (0, MAX_SHOTS), "its solved examples (0)", default=0)
    parser.add_argument("--same-examples", action="store_true", help="the same ones for every question")
    parser.set_defaults(run=_perplexity)


def _perplexity(options: Namespace, session: Session, report: Report) -> int:
    """Measures a text under no mask and under the one that is named, and prints both and the change."""
    from engine.models.masks import Mask
    from engine.texts.perplexity import change, perplexity

    text = _text(options)
    target, started = session.target(spec_of(options), options.bos), time.monotonic()
    mask, full = mask_of(options, session, target, report), Mask.full(target.shape)
    sides, found, all_cached = {"full": full} if mask.is_full else {"full": full, "pruned": mask}, {}, True
    for name, each in sides.items():
        found[name], cached = last(perplexity(target, text, each, options.window).run(session), report)
        all_cached &= cached
    first = found["full"]
    lines = [f"{name}: perplexity {side.a_token:.2f} a token, {side.a_word:.2f} a word, {side.a_byte:.3f} a byte"
             for name, side in found.items()]  # fmt: skip
    fields: dict[str, Any] = {name: _fields(side) for name, side in found.items()}
    if "pruned" in found:
        difference = change(first, found["pruned"])
        low, high = difference.low, difference.high
        fields["change"] = {"nats": difference.nats, "ci95": [low, high]}
        interval = f" (95 % {low:+.4f} to {high:+.4f})" if low == low else ""
        lines.append(f"change: {difference.nats:+.4f} nats a token{interval}")
    windows = f"{len(first):,} of {first.n_tokens:,} tokens scored, in windows of {first.window:,}"
    print_result(options, {
        **fields, "n_scored": len(first), "n_tokens": first.n_tokens, "n_words": first.n_words,
        "n_bytes": first.n_bytes, "window": first.window, "bos": first.bos, "mask": mask.text(),
        "heads_pruned": mask.n_heads_pruned, "ffns_pruned": mask.n_ffns_pruned, "model": target.identity.name,
        "precision": options.precision, "seconds": time.monotonic() - started, "cached": all_cached,
    }, "\n".join([*lines, windows]))  # fmt: skip
    return 0


def mask_of(options: Namespace, session: Session, target: Any, report: Report) -> Any:
    """What is pruned, by the levels and the typed mask."""
    from engine.importance.rankings import permille
    from engine.importance.rankings_of import Pruning, Ranking, orders_of
    from engine.models.masks import parse_edits
    from engine.questions.requests import TaskSpec

    ranking = Ranking(options.ranking, options.seed, options.ranking_questions, layers_by=options.layers_by)
    edits, levels = parse_edits(options.mask, target.shape), (options.prune_heads, options.prune_ffns)
    (heads, ffns), layers = (permille(level) for level in levels), permille(options.prune_layers)
    if not (heads or ffns or layers):
        return edits.alone
    if not options.task:
        raise UsageError(
            "--prune-heads, --prune-ffns and --prune-layers go by a ranking; say with --task what it is measured on"
        )
    task = TaskSpec(options.task, options.shots, same_examples=options.same_examples)
    pruning = Pruning(task, ranking, heads, ffns, edits, layers)
    return pruning.mask(last(orders_of(target, pruning, data_dir(options)).run(session), report)[0])


def _text(options: Namespace) -> str:
    """The text that the options name, checked."""
    from engine.texts.perplexity import MOST_BYTES

    if bool(options.text) == bool(options.passage):
        raise UsageError("give exactly one of --text FILE and --passage TITLE")
    if options.passage:
        return built_in(options.passage)
    text = read_text(options.text, MOST_BYTES)
    return BETWEEN_ROWS.join(_rows(options.text, text)) if options.text.endswith(".jsonl") else text


def _rows(name: str, text: str) -> list[str]:
    """The "text" of every row of a JSON Lines file; HeadroomError names the row that has none."""
    found = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise HeadroomError(f"{name}, row {number}: is not valid JSON; write one object a line") from error
        if not isinstance(row, dict) or not isinstance(row.get("text"), str):
            raise HeadroomError(f'{name}, row {number}: has no text in its column "text"; add it to the row')
        found.append(row["text"])
    return found


def _fields(side: Any) -> dict[str, Any]:
    return {"perplexity": side.a_token, "word_perplexity": side.a_word, "byte_perplexity": side.a_byte,
            "nats": side.nats}  # fmt: skip
