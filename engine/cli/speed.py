"""The command that measures what pruning saves: `speed`, full against pruned on this machine."""

import time
from argparse import Namespace
from pathlib import Path
from typing import Any

from engine.cli.options import Parser, data, model, pruned, shared, spec_of
from engine.cli.output import Report, check_out, last, print_result, table_file, write
from engine.cli.perplexity import mask_of
from engine.models.session import Session
from engine.questions.requests import MAX_SHOTS


def add_parsers(commands: Any) -> None:
    """The parser of speed."""
    words = "what pruning saves: tokens a second, bytes of weights, keys and values"
    parser: Parser = commands.add_parser("speed", parents=[shared(), model(), data(), pruned()], help=words)
    parser.add_argument("--task", help="what the ranking is measured on, with --prune-heads and --prune-ffns")
    parser.add_number("--shots", (0, MAX_SHOTS), "its solved examples (0)", default=0)
    parser.add_argument("--same-examples", action="store_true", help="the same ones for every question")
    parser.add_argument("--again", action="store_true", help="measure anew what is stored")
    parser.add_argument("--out", help="file to write the table to: .csv or .parquet")
    parser.set_defaults(run=_speed)


def _speed(options: Namespace, session: Session, report: Report) -> int:
    from engine.accuracy.speed import WAYS, speed

    if options.out:
        check_out(options.out, (".csv", ".parquet"))
    target, started = session.target(spec_of(options), options.bos), time.monotonic()
    mask = mask_of(options, session, target, report)
    found, cached = last(speed(target, mask, options.again).run(session), report)
    if options.out:
        write(options.out, table_file(Path(options.out).suffix, found.frame()))
    print_result(options, {
        "rows": found.rows(), "n_prompt": found.n_prompt, "n_new": found.n_new, "load": found.load,
        "n_cpus": found.n_cpus, "rounds": len(found.prompt[WAYS[0]]), "mask": mask.text(),
        "heads_pruned": mask.n_heads_pruned, "ffns_pruned": mask.n_ffns_pruned, "model": target.identity.name,
        "precision": options.precision, "seconds": time.monotonic() - started, "cached": cached, "out": options.out,
    }, "\n".join([*map(_line, found.rows()),
                  f"a prompt of {found.n_prompt} tokens and {found.n_new} behind it, medians (range) of "
                  f"{len(found.prompt[WAYS[0]])} turns each; the machine's load was {found.load:.1f} on {found.n_cpus} "
                  "cores"]))  # fmt: skip
    return 0


def _line(row: dict[str, Any]) -> str:
    sides = [f"{way} {row[way]:,.0f}" + (f" ({row[f'{way}_low']:,.0f} to {row[f'{way}_high']:,.0f})"
                                         if f"{way}_low" in row else "") for way in ("full", "pruned")]  # fmt: skip
    return f"{row['quantity']:<16}{row['unit']:<12}{sides[0]:<32}{sides[1]:<32}x{row['ratio']:.2f}"
