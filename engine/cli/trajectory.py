"""The command about training: `trajectory`, what was learnt at every snapshot of a run or of a published series."""

import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np

from engine.cli.options import MOST, Parser, names_of, shared
from engine.cli.output import Report, check_out, check_writable, last, print_result, table_file, write
from engine.cli.texts import read_text
from engine.errors import UsageError
from engine.models.session import Session
from engine.training.measuring import N_ABLATED, N_ABLATED_TEXTS, N_TEXTS, QUANTITIES, WITHOUT_ABLATIONS
from engine.training.trajectory import Trajectory, encode

MOST_BYTES = 20_000_000  # of a text


def add_parsers(commands: Any) -> None:
    """The parser of trajectory."""
    words = "what a run or a published series had learnt at each of its snapshots"
    parser: Parser = commands.add_parser("trajectory", parents=[shared()], help=words)
    help = "folder of a run, RUN@step{0,512}, or a series such as EleutherAI/pythia-70m@step{0,512,1000}"
    parser.add_argument("series", metavar="SERIES", help=help)
    default = f"all but ablations, which take longest; of {', '.join(QUANTITIES)}"
    parser.add_argument("--what", help=f"what is measured, separated by commas (default: {default})")
    parser.add_number(
        "--texts", (1, MOST), f"of held-out texts (default: {N_TEXTS}, or what there is)", default=N_TEXTS
    )
    help = f"of them with each head ablated (default: {N_ABLATED_TEXTS})"
    parser.add_number("--ablation-texts", (1, MOST), help, default=N_ABLATED_TEXTS)
    help = f"at which heads are ablated, most of them in the window of the phase change (default: {N_ABLATED})"
    parser.add_number("--ablation-snapshots", (1, MOST), f"snapshots {help}", default=N_ABLATED)
    shorter = "of 512 tokens, the same share of a shorter context"
    parser.add_number("--early", (1, MOST), f"token index that the in-context score begins at (default: 50 {shorter})")
    parser.add_number("--late", (1, MOST), f"and ends at (default: 500 {shorter})")
    parser.add_number("--around", (0, MOST), "tokens on either side of both (default: 0, as defined)", default=0)
    parser.add_argument("--text", help="a UTF-8 text file to measure on, in place of held-out text or passages")
    help = "tokens of a step of a published series (default: known for Pythia)"
    parser.add_number("--step-tokens", (1, 10**9), help)
    parser.add_argument("--out", help="file to write: .csv or .parquet")
    parser.add_argument("--save", help="file to write the whole record to: .safetensors")
    parser.add_argument(
        "--download", action="store_true", help="fetch snapshots from the hub that are not on this computer"
    )
    parser.set_defaults(run=_trajectory, precision="fp32")


def _trajectory(options: Namespace, session: Session, report: Report) -> int:
    """Measures every snapshot, writes the table and the record, and prints where the phase change lies."""
    from engine.training.measuring import TrajectoryPlan, target_at, trajectory
    from engine.training.phase_change import window
    from engine.training.series import series_of

    if options.out:
        check_out(options.out, (".csv", ".parquet"))
    if options.save:
        if Path(options.save).suffix != ".safetensors":
            raise UsageError(f"--save {options.save!r} must end in .safetensors")
        check_writable(options.save)
    text = read_text(options.text, MOST_BYTES) if options.text else ""
    plan = TrajectoryPlan(
        tuple(names_of(options.what, WITHOUT_ABLATIONS)), options.texts, options.ablation_texts,
        options.ablation_snapshots, options.early or 0, options.late or 0, options.around, text,
        Path(options.text).name if text else "",
    )  # fmt: skip
    series, started = series_of(options.series, options.step_tokens), time.monotonic()
    found, cached = last(trajectory(target_at(session, series), series, plan).run(session), report)
    if options.out:
        write(options.out, table_file(Path(options.out).suffix, table(found, plan.what)))
    if options.save:
        write(options.save, encode(found))
    where = window(found.tokens, found.icl)
    fields: dict[str, Any] = {
        "name": found.name, "label": found.label, "recipe": found.recipe, "about": dict(found.about),
        "steps": found.steps.tolist(), "tokens": found.tokens.tolist(), "ablated": found.ablated.tolist(),
        "loss": found.loss, "icl": found.icl,
        "best_prefix_matching": found.best("prefix_matching"),
        "window": where and {"start_tokens": where.start, "end_tokens": where.end, "share": where.share,
                             "steepest_tokens": int(found.tokens[where.steepest]), "smoothed": where.smoothed},
        "out": options.out, "save": options.save, "cached": cached,
        "seconds": round(time.monotonic() - started, 1),
    }  # fmt: skip
    print_result(options, fields, "\n".join(_lines(options, found, where)))
    return 0


def table(found: Trajectory, what: tuple[str, ...]) -> Any:
    """A DataFrame with a row a number: step, tokens, quantity, layer, head, value; layer and head empty where a
    quantity is of the whole model."""
    import pandas as pd

    columns: dict[str, list[Any]] = {name: [] for name in ("at", "quantity", "layer", "head", "value")}

    def add(quantity: str, values: np.ndarray, at: np.ndarray | None = None) -> None:
        """Values (snapshot,) or (snapshot, layer, head)."""
        places = np.argwhere(np.isfinite(values))
        rows = places[:, 0] if at is None else at[places[:, 0]]
        columns["at"] += rows.tolist()
        columns["quantity"] += [quantity] * len(places)
        for number, name in enumerate(("layer", "head"), 1):
            columns[name] += places[:, number].tolist() if values.ndim == 3 else [None] * len(places)
        columns["value"] += values[tuple(places.T)].tolist()

    if "loss" in what:
        add("loss", found.loss)
    if "icl" in what:
        add("icl", found.icl)
    if "copies" in what:
        add("first_copy", found.first_copy)
        add("second_copy", found.second_copy)
    if "index" in what:
        for index in range(found.by_index.shape[1]):
            add(f"loss@{index + 1}", found.by_index[:, index])
    if "tokens" in what:
        for text in range(found.token_losses.shape[1]):
            add(f"token of text {text + 1}", found.token_losses[:, text])
    if "induction" in what:
        for name, scores in found.heads.items():
            add(name, scores)
    if "passages" in what:
        for title, passage in found.passages.items():
            for token in range(len(passage.pieces)):
                add(f"{title}@{token + 1}", passage.losses[:, token])
    if "ablations" in what and len(found.ablated):
        add("icl without the head", found.ablated_icl, found.ablated)
        for text in range(found.ablated_losses.shape[3]):
            add(f"token of text {text + 1} without the head", found.ablated_losses[..., text], found.ablated)
    at = columns.pop("at")
    frame = pd.DataFrame({"step": found.steps[at], "tokens": found.tokens[at]} | columns)
    return frame.astype({"layer": "Int64", "head": "Int64"})


def _lines(options: Namespace, found: Trajectory, where: Any) -> list[str]:
    about, best = found.about, found.best("prefix_matching")
    around = f", ± {about['around']} tokens" if about["around"] else ""
    lines = [f"{found.label}: {len(found.steps)} snapshots to {found.tokens[-1]:,} tokens, on {about['n_texts']:,} "
             f"texts of {about['n_ctx']} tokens ({about['text']})",
             f"loss {found.loss[0]:.3f} to {found.loss[-1]:.3f} nats, in-context score (token {about['late']} less "
             f"{about['early']}{around}) {found.icl[0]:+.3f} to {found.icl[-1]:+.3f}"]  # fmt: skip
    if np.isfinite(best).any():
        lines.append(f"best prefix matching {best[0]:.2f} to {best[-1]:.2f}")
    if where is None:
        lines.append("no window of a phase change: the in-context score never falls steeply")
    else:
        lines.append(f"phase change from {where.start:,.0f} to {where.end:,.0f} tokens: {where.share:.0%} of the "
                     f"change of the in-context score")  # fmt: skip
    lines += [f"steps {a} and {b} have the same weights" for a, b in about["same_weights"]]
    return lines + [f"wrote {path}" for path in (options.out, options.save) if path]
