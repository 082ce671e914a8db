"""The command line: `python -m engine COMMAND`, the same functions and the same store as the screens.

Exit codes: 0 done, 1 failed with one plain line, 2 bad usage, 130 cancelled. With --json exactly one JSON object goes
to standard output; progress and messages always go to standard error.
"""

import argparse
import os
import signal
import sys
import time
from typing import Any, NoReturn

from engine.errors import Cancelled, HeadroomError, UsageError


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line and a hint."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message}; `{self.prog} --help` lists the options", file=sys.stderr)
        raise SystemExit(2)


def main(arguments: list[str] | None = None) -> int:
    """Exit code of the command in `arguments` (default: the process's own)."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    signal.signal(signal.SIGTERM, _stop)
    options = _parser().parse_args(arguments)
    try:
        from engine.cli import measure as commands

        code = commands.run(options, _report if sys.stderr.isatty() else _report_sparsely())
        if getattr(options, "study", None) is not None:
            # the command line is a front end as app.py is; what it calls in the engine knows no charts
            from pages.ui.study_report import write_report

            write_report(options.study, options.out)
        return code
    except UsageError as error:
        print(f"headroom: {error}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, Cancelled):
        print("headroom: cancelled; finished parts are stored, the same command goes on from there", file=sys.stderr)
        return 130
    except HeadroomError as error:
        print(f"headroom: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except MemoryError:
        print("headroom: out of memory; choose a smaller model or --precision int8", file=sys.stderr)
        return 1


def _parser() -> Parser:
    shared = Parser(add_help=False)
    shared.add_argument("--cache", help="folder of the result store (default: HEADROOM_CACHE, then cache/data)")
    shared.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    model = Parser(add_help=False)
    model.add_argument("--model", default="demo", help="demo, a hub id such as facebook/opt-125m, or a folder")
    model.add_argument("--precision", default="int8", help="int8 (default), bf16 or fp32")
    model.add_argument("--int8-threshold", type=float, default=6.0, help="bitsandbytes outlier threshold (6.0)")
    model.add_argument("--revision", help="branch, tag or commit of a hub model")
    model.add_argument("--bos", action=argparse.BooleanOptionalAction, default=None,
                       help="beginning-of-sequence token in front (default: as the tokenizer; OPT: yes)")  # fmt: skip
    model.add_argument("--threads", type=int, help="CPU threads (default: torch's choice)")
    data = Parser(add_help=False)
    data.add_argument("--task-data", help="folder with <task>/train.jsonl and validation.jsonl (or HEADROOM_TASK_DATA)")
    task = Parser(add_help=False)
    task.add_argument("--task", required=True, help="task name (see `tasks`) or a .jsonl with context, choices, gold")
    task.add_argument("--shots", type=int, default=0, help="solved examples in front of each question (0)")
    task.add_argument(
        "--same-examples", action="store_true", help="the same solved examples for every question: faster"
    )
    task.add_argument("--limit", type=int, help="use this many questions (default: all)")
    task.add_argument("--sample", default="first", help="which: first (as the harness) or stratified")

    parser = Parser(prog="python -m engine", description="Headroom without a browser: the same work, the same store.")
    commands = parser.add_subparsers(dest="command", required=True, parser_class=Parser)
    measure = [shared, model, data, task]
    evaluate = commands.add_parser("evaluate", parents=measure, help="accuracy of a model under one mask")
    evaluate.add_argument("--split", default="validation", help="validation (default) or train")
    evaluate.add_argument("--mask", default="", help='what to prune, such as "L3H5 L4H* F7 F2-5"')
    evaluate.add_argument("--prune-heads", default="0", help="percent of heads to prune by --ranking")
    evaluate.add_argument("--prune-ffns", default="0", help="percent of FFNs to prune by --ranking")
    evaluate.add_argument(
        "--ranking",
        default="importance",
        help="importance (this task's), reversed, random, induction-first or induction-protected",
    )
    evaluate.add_argument("--ranking-questions", type=int, help="train questions behind the ranking (default: all)")
    evaluate.add_argument("--seed", type=int, default=0, help="seed of the random ranking")
    evaluate.add_argument("--items", help="write one JSON line a question to this file")
    importance = commands.add_parser("importance", parents=measure, help="scores of heads or FFNs for one task")
    importance.add_argument("--split", default="train", help="train (default) or validation")
    importance.add_argument("--what", default="heads", help="heads, gate, heads-oracle or ffns")
    importance.add_argument("--out", required=True, help="file to write: .npz, .csv or .parquet")
    induction = commands.add_parser("induction", parents=[shared, model], help="induction scores of every head")
    induction.add_argument("--variant", default="olsson", help="olsson (default) or bansal: llm-interpret's, slower")
    induction.add_argument("--seed", type=int, default=0, help="seed of the random tokens")
    induction.add_argument("--out", required=True, help="file to write: .npz, .csv or .parquet")
    text = Parser(add_help=False)
    text.add_argument("--text", help="a UTF-8 text file")
    text.add_argument("--passage", help="the title of a built-in passage instead")
    text.add_argument("--solved", help="or a task: solved train questions strung together to texts")
    text.add_argument("--texts", type=int, help="cut into at most so many texts of 512 tokens (default: whole)")
    text.add_argument("--mask", default="", help='what to prune, such as "L3H5 L4H* F7 F2-5"')
    of_text = [shared, model, data, text]
    losses = commands.add_parser("losses", parents=of_text, help="per-token losses of a text, full and masked")
    losses.add_argument("--mask-a", default="", help="what the first of the two lacks already (default: nothing)")
    losses.add_argument("--other-model", help="measure --mask on this model instead (same tokenizer)")
    losses.add_argument("--other-precision", help="and in this precision")
    losses.add_argument("--window", type=int, default=0, help="tokens a window (default: the model's)")
    losses.add_argument("--stride", type=int, default=0, help="tokens from one window to the next (default: half)")
    losses.add_argument("--out", required=True, help="file to write: .csv or .parquet")
    attribute = commands.add_parser("attribute", parents=of_text, help="each head ablated: in-context-learning score")
    attribute.add_argument("--kind", default="full", help="full (default) or pattern-preserving")
    attribute.add_argument("--fill", default="zero", help="zero (default) or mean: what an ablated head gives")
    attribute.add_argument("--before-and-after", help="a second mask: attribute the change of losses to it as well")
    attribute.add_argument("--seed", type=int, default=0, help="seed of the tokens of the before-and-after vector")
    attribute.add_argument("--out", required=True, help="file to write: .npz, .csv or .parquet")
    attention = commands.add_parser("attention", parents=of_text, help="where heads look, and what that raises")
    attention.add_argument("--heads", required=True, help="such as L1H0,L1H1")
    attention.add_argument("--out", required=True, help="file to write: .npz, .csv or .parquet")
    study = Parser(add_help=False)
    study.add_argument("--tasks", help="names separated by commas (default: all embedded ones, or all of --task-data)")
    study.add_argument("--shots", default="0,1,5", help="shot counts separated by commas (0,1,5)")
    study.add_argument("--ranking-questions", type=int, default=64, help="train questions behind each ranking (64)")
    study.add_argument("--aggregate", default="scores", choices=("scores", "ranks"),
                       help="how tasks are put together: mean of scores (default) or of ranks")  # fmt: skip
    over_tasks = [shared, model, data, study]
    correlate = commands.add_parser("correlate", parents=over_tasks, help="how much the rankings of tasks agree")
    correlate.add_argument("--what", default="heads", help="heads (default), gate, heads-oracle or ffns")
    correlate.add_argument("--induction", action="store_true", help="with prefix matching and copying beside the tasks")
    correlate.add_argument("--out", required=True, help="file to write: .csv or .parquet")
    sweep = commands.add_parser("sweep", parents=over_tasks, help="accuracy over tasks, shot counts and pruning levels")
    sweep.add_argument("--heads", default="0,10,20,30,40,50,60,70,80,90,100", help="levels in percent (0,10,..,100)")
    sweep.add_argument("--ffns", default="0", help="levels in percent (0)")
    sweep.add_argument("--by", default="own", help="own (default), reversed, random, within-layers, task, aggregate "
                       "or others: whose importance says what goes first")  # fmt: skip
    sweep.add_argument("--of", default="", help="the other task, with --by task")
    sweep.add_argument("--seed", type=int, default=0, help="seed of the random rankings")
    sweep.add_argument("--limit", type=int, default=48, help="questions a task (48)")
    sweep.add_argument("--preset", choices=("paper",), help="the whole study: tables, figures and a report in --out")
    sweep.add_argument("--out", required=True, help="file to write: .csv or .parquet; with --preset a folder")
    store = commands.add_parser("cache", parents=[shared], help="look after the result store")
    store.add_argument("action", choices=("list", "size", "verify", "clear"))
    commands.add_parser("tasks", parents=[shared, data], help="the tasks that can be used here and now")
    commands.add_parser("models", parents=[shared], help="the models that can be used here and now")
    return parser


def _report(done: int, total: int, message: str, started_s: float) -> None:
    seconds = time.monotonic() - started_s
    left = f", {seconds / done * (total - done):.0f} s left" if done and done < total and seconds > 2 else ""
    end = "\n" if total and done >= total else ""
    print(f"\r\033[K{done} of {total}  {message}{left}", end=end, file=sys.stderr, flush=True)


def _report_sparsely() -> Any:
    last = [time.monotonic()]

    def report(done: int, total: int, message: str, started_s: float) -> None:
        if time.monotonic() - last[0] > 5:
            last[0] = time.monotonic()
            print(f"{done} of {total}  {message}", file=sys.stderr, flush=True)

    return report


def _stop(signum: int, frame: Any) -> None:
    raise Cancelled


if __name__ == "__main__":
    sys.exit(main())
