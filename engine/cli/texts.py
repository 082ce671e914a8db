"""The commands about texts: per-token losses, what single heads do to them, what is said next, where heads look."""

import io
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np

from engine.cli.options import MOST, MOST_SEED, Parser, data, data_dir, model, shared, spec_of
from engine.cli.output import Report, check_out, last, print_result, scores_file, table_file, write
from engine.errors import HeadroomError, UsageError
from engine.files import named, read_regular
from engine.heads.ablation import FILLS, KINDS
from engine.models.loading import PRECISIONS
from engine.models.session import Session
from engine.texts.continuation import MOST_PERMILLE, MOST_TOKENS
from engine.texts.incontext import MOST_AROUND
from engine.texts.sources import MAX_TEXTS, N_TEXTS


def of_text() -> list[Parser]:
    """The parents of a command about texts."""
    text = Parser(add_help=False)
    text.add_argument("--text", help="a UTF-8 text file")
    text.add_argument("--passage", help="the title of a built-in passage instead")
    text.add_argument("--solved", help="or a task: solved train questions strung together to texts")
    default = f"{N_TEXTS} with --solved and in attribute, else the text whole"
    help = f"cut into at most so many texts of 512 tokens (default: {default})"
    text.add_number("--texts", (1, MAX_TEXTS), help)
    text.add_argument("--mask", default="", help='what to prune, such as "L3H5 L4H* F7 F2-5 B9"')
    return [shared(), model(), data(), text]


def add_parsers(commands: Any) -> None:
    """The parsers of losses, attribute and attention."""
    scored = Parser(add_help=False)
    help = "tokens on either side of the 50th and the 500th in a score (default: 0, as defined)"
    scored.add_number("--around", (0, MOST_AROUND), help, default=0)
    parser = commands.add_parser(
        "losses", parents=[*of_text(), scored], help="per-token losses of a text, full and masked"
    )
    parser.add_argument("--mask-a", default="", help="what the first of the two lacks already (default: nothing)")
    parser.add_argument("--other-model", help="measure --mask on this model instead (same tokenizer)")
    parser.add_choice("--other-precision", PRECISIONS, "and in this precision")
    parser.add_number("--window", (0, MOST), "tokens a window (default: the model's)", default=0)
    parser.add_number("--stride", (0, MOST), "tokens from one window to the next (default: half)", default=0)
    parser.add_argument("--out", required=True, help="file to write: .csv or .parquet")
    parser.set_defaults(run=_losses)

    parser = commands.add_parser(
        "attribute", parents=[*of_text(), scored], help="each head ablated: in-context-learning score"
    )
    parser.add_choice("--kind", KINDS, "of ablation (default: full)", default="full")
    parser.add_choice("--fill", FILLS, "what an ablated head gives (default: zero)", default="zero")
    parser.add_argument("--before-and-after", help="a second mask: attribute the change of losses to it as well")
    help = "seed of the tokens of the before-and-after vector"
    parser.add_number("--seed", (0, MOST_SEED), help, default=0)
    parser.add_argument("--out", required=True, help="file to write: .npz, .csv or .parquet")
    parser.set_defaults(run=_attribute)

    parents = [shared(), model()]
    parser = commands.add_parser("continue", parents=parents, help="what the full and the masked model say next")
    parser.add_argument("--prompt", required=True, help="what they go on from, as it stands")
    parser.add_argument("--mask", default="", help='what to prune, such as "L3H5 L4H* F7 F2-5 B9"')
    parser.add_number("--tokens", (1, MOST_TOKENS), "how many at most (default: 24)", default=24)
    help = "of draws (default: 0, the likeliest token)"
    parser.add_number("--temperature", (0, MOST_PERMILLE / 1000), help, float, default=0.0)
    parser.add_number("--seed", (0, MOST_SEED), "of draws", default=0)
    parser.add_argument("--out", required=True, help="file to write: .csv or .parquet")
    parser.set_defaults(run=_continue)

    parser = commands.add_parser("attention", parents=of_text(), help="where heads look, and what that raises")
    parser.add_argument("--heads", required=True, help="such as L1H0,L1H1")
    parser.add_argument("--out", required=True, help="file to write: .npz, .csv or .parquet")
    parser.set_defaults(run=_attention)


def _losses(options: Namespace, session: Session, report: Report) -> int:
    """Writes each token's loss under two masks or models; prints means and in-context-learning scores."""
    import pandas as pd

    from engine.models.loading import LoadSpec
    from engine.models.masks import parse_mask
    from engine.texts.incontext import icl_change, icl_score
    from engine.texts.tokenloss import Cutting, same_tokens, token_losses

    check_out(options.out, (".csv", ".parquet"))
    spec, cutting = spec_of(options), Cutting(options.window, options.stride)
    other_precision = options.other_precision or spec.precision
    other = LoadSpec(options.other_model or spec.model, other_precision, spec.int8_threshold)
    sides = [session.target(each, options.bos) for each in (spec, other)]
    masks = [parse_mask(text, side.shape) for text, side in zip((options.mask_a, options.mask), sides, strict=True)]
    started = time.monotonic()
    texts, measured, all_cached = texts_named(options, session, report, options.texts), [], True
    for side, mask in zip(sides, masks, strict=True):  # side by side, so that each model is loaded once
        runs = [last(token_losses(side, text, mask, cutting).run(session), report) for text in texts]
        measured.append([losses for losses, _ in runs])
        all_cached &= all(cached for _, cached in runs)
    frames = []
    for number, (a, b) in enumerate(zip(*measured, strict=True)):
        same_tokens(a, b)
        frame = pd.DataFrame({"index": np.arange(1, len(a) + 1), "token": a.pieces, "loss_full_nats": a.loss_nats,
                              "loss_masked_nats": b.loss_nats, "diff_nats": b.loss_nats - a.loss_nats})  # fmt: skip
        frames.append(frame if len(texts) == 1 else frame.assign(text=number + 1))
    whole = pd.concat(frames)
    write(options.out, table_file(Path(options.out).suffix, whole))
    full, masked = ([each.loss_nats for each in side] for side in measured)
    around = options.around
    try:
        scores = {"full": icl_score(full, around), "masked": icl_score(masked, around)}
        scores |= {"change": icl_change(full, masked, around)}
        icl: dict[str, Any] = {name: {"nats": found.value, "n": found.n, "ci95": [found.low, found.high]}
                               for name, found in scores.items()}  # fmt: skip
        line = ", ".join(f"{name} {found.value:+.3f}" for name, found in scores.items())
        note, words = "", f"in-context-learning score (nats, {scores['full'].n} texts): {line}"
    except HeadroomError as error:
        icl, note, words = {}, str(error), str(error)
    mean_a, mean_b = whole["loss_full_nats"].mean(), whole["loss_masked_nats"].mean()
    print_result(options, {
        "n_texts": len(texts), "n_tokens": len(whole), "loss_full_nats": mean_a,
        "loss_masked_nats": mean_b, "diff_nats": mean_b - mean_a, "icl_score": icl, "note": note,
        "window": measured[0][0].window, "stride": measured[0][0].stride, "bos": measured[0][0].bos,
        "mask": masks[1].text(), "mask_a": masks[0].text(), "seconds": time.monotonic() - started,
        "cached": all_cached, "out": options.out,
    }, f"{len(whole):,} tokens: mean loss {mean_a:.4f} nats, {mean_b:.4f} masked ({mean_b - mean_a:+.4f}); {words}\n"
       f"written to {options.out}")  # fmt: skip
    return 0


def _attribute(options: Namespace, session: Session, report: Report) -> int:
    """Writes what ablating each head does to the in-context-learning score, and to a change of the losses."""
    from engine.heads.ablation import Ablating, head_ablations
    from engine.heads.induction import best_heads
    from engine.models.masks import parse_mask
    from engine.texts.tokenloss import losses_of_texts

    check_out(options.out)
    target, started = session.target(spec_of(options), options.bos), time.monotonic()
    mask = parse_mask(options.mask, target.shape)
    texts = texts_named(options, session, report, options.texts or N_TEXTS)
    wanted = head_ablations(target, texts, Ablating(mask, options.kind, options.fill))
    ablations, cached = last(wanted.run(session), report)
    mean, low, high = ablations.icl(options.around)
    found = {"icl_score_change_nats": mean, "low": low, "high": high}
    if options.before_and_after is not None:
        masks = mask, parse_mask(options.before_and_after, target.shape)
        sides = (last(losses_of_texts(target, texts, each).run(session), report)[0] for each in masks)
        differences = [after - before for before, after in zip(*sides, strict=True)]
        found["before_and_after_nats"] = ablations.before_and_after(differences, options.seed)
    write(options.out, scores_file(Path(options.out).suffix, found, found))
    best = list(best_heads(mean, 5))
    print_result(options, {
        "n_texts": len(texts), "kind": options.kind, "fill": options.fill, "mask": mask.text(), "best": best,
        "shape": list(mean.shape), "seconds": time.monotonic() - started, "cached": cached, "out": options.out,
    }, f"without these heads the in-context-learning score rises most: "
       f"{', '.join(f'{head} {score:+.3f} nats' for head, score in best)}\nwritten to {options.out}")  # fmt: skip
    return 0


def _continue(options: Namespace, session: Session, report: Report) -> int:
    """Writes what the full and the masked model say after a prompt, token by token; prints both."""
    import pandas as pd

    from engine.models.masks import Mask, parse_mask
    from engine.texts.continuation import How, continuation, next_tokens

    check_out(options.out, (".csv", ".parquet"))
    how = How(options.tokens, round(1000 * options.temperature), options.seed)
    target, started = session.target(spec_of(options), options.bos), time.monotonic()
    mask, full = parse_mask(options.mask, target.shape), Mask.full(target.shape)
    sides = {"full": full} if mask.is_full else {"full": full, "masked": mask}
    likeliest, all_cached = last(next_tokens(target, options.prompt, list(sides.values())).run(session), report)
    said, frames = {}, []
    for name, each in sides.items():
        found, cached = last(continuation(target, options.prompt, each, how).run(session), report)
        said[name], all_cached = found, all_cached and cached
        about = {"model": name, "index": range(1, 1 + len(found.pieces)), "token_id": found.token_ids}
        frames.append(pd.DataFrame(about | {"token": found.pieces, "p": np.exp(found.log_p.astype(float))}))
    write(options.out, table_file(Path(options.out).suffix, pd.concat(frames)))
    p = {name: [float(each) for each in np.exp(row)] for name, row in zip(sides, likeliest.log_p, strict=True)}
    print_result(options, {
        "prompt": options.prompt, "said": {name: found.text for name, found in said.items()},
        "next": [{"token": token, **{name: p[name][i] for name in p}} for i, token in enumerate(likeliest.strings)],
        "mask": mask.text(), "tokens": how.n_tokens, "temperature": how.temperature_permille / 1000, "seed": how.seed,
        "seconds": time.monotonic() - started, "cached": all_cached, "out": options.out,
    }, "\n".join([*(f"{name}: {found.text!r}" for name, found in said.items()),
                  f"written to {options.out}"]))  # fmt: skip
    return 0


def _attention(options: Namespace, session: Session, report: Report) -> int:
    """Writes where heads attend in a text and what that adds to the next token's logit."""
    import pandas as pd

    from engine.heads.attention import head_views, overview
    from engine.models.masks import parse_heads, parse_mask

    check_out(options.out)
    target, started = session.target(spec_of(options), options.bos), time.monotonic()
    mask = parse_mask(options.mask, target.shape)
    texts = texts_named(options, session, report, options.texts)
    if len(texts) > 1:
        raise UsageError("attention is shown for one text; leave out --texts and --solved")
    heads = parse_heads(options.heads, target.shape)
    if not heads:
        raise UsageError("--heads names no head; write it like L1H0,L1H1")
    names = [f"L{layer}H{head}" for layer, head in heads]
    seen, _ = last(overview(target, texts[0], mask).run(session), report)
    found, cached = last(head_views(target, texts[0], mask, heads).run(session), report)
    views = [found[head] for head in heads]
    if Path(options.out).suffix == ".npz":
        buffer = io.BytesIO()
        np.savez(buffer, heads=np.array(heads), token_ids=seen.token_ids, tokens=np.array(seen.pieces),
                 pattern=np.stack([view.pattern for view in views]),
                 raised_nats=np.stack([view.raised_nats for view in views]))  # fmt: skip
        write(options.out, buffer.getvalue())
    else:
        rows = []
        for name, view in zip(names, views, strict=True):
            destination, source = np.nonzero((view.pattern != 0) | (view.raised_nats != 0))
            rows.append(pd.DataFrame({"head": name, "destination": destination, "source": source,
                                      "attention": view.pattern[destination, source],
                                      "raised_nats": view.raised_nats[destination, source]}))  # fmt: skip
        write(options.out, table_file(Path(options.out).suffix, pd.concat(rows)))
    print_result(options, {
        "heads": names, "n_tokens": len(seen.token_ids), "n_left_out": seen.n_left_out, "mask": mask.text(),
        "seconds": time.monotonic() - started, "cached": cached, "out": options.out,
    }, f"{len(names)} heads on {len(seen.token_ids):,} tokens written to {options.out}"
       + (f"; {seen.n_left_out:,} tokens behind did not fit" if seen.n_left_out else ""))  # fmt: skip
    return 0


def texts_named(options: Namespace, session: Session, report: Report, n_texts: int | None) -> list[str]:
    """The texts that the options name: at most `n_texts` of 512 tokens each, or without a number the text whole."""
    from engine.texts.passages import MAX_BYTES
    from engine.texts.sources import Source, texts_of

    given = [name for name in ("text", "passage", "solved") if getattr(options, name, None)]
    if len(given) != 1:
        raise UsageError("give exactly one of --text FILE, --passage TITLE and --solved TASK")
    if given == ["solved"]:
        source = Source("task", options.solved, n_texts=n_texts or N_TEXTS)
    elif given == ["passage"]:
        passage = built_in(options.passage)
        if not n_texts:
            return [passage]
        source = Source("passage", options.passage, n_texts=n_texts)
    else:
        text = read_text(options.text, MAX_BYTES)
        if not n_texts:
            return [text]
        source = Source("text", options.text, text, n_texts=n_texts)
    return list(last(texts_of(session.target(spec_of(options)), source, data_dir(options)).run(session), report)[0])


def built_in(title: str) -> str:
    """The text of a built-in passage; UsageError where none is called so."""
    from engine.demo import passages

    by_title = {passage.title: passage.text for passage in passages(long=True)}
    if title not in by_title:
        raise UsageError(f"no built-in passage is called {title!r}; choose one of {', '.join(by_title)}")
    return by_title[title]


def read_text(file: str, most_bytes: int) -> str:
    """The text in the file that --text names; HeadroomError where it cannot be read or is no text."""
    from engine.texts.passages import decoded

    try:
        raw = read_regular(named(file, "--text"), 2 * most_bytes)
    except OSError as error:
        raise HeadroomError(f"cannot read {file} ({error.strerror}); give another file") from error
    return decoded(raw, file, most_bytes)
