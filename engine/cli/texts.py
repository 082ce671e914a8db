"""The commands about texts: per-token losses, what single heads do to them, and where heads look."""

import io
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np

from engine.cli.output import (
    Report,
    check_ending,
    data_dir,
    last,
    names_of,
    print_result,
    scores_file,
    spec_of,
    table_file,
    write,
)
from engine.errors import HeadroomError, UsageError


def losses(options: Namespace, store: Any, report: Report) -> int:
    """Writes each token's loss under two masks or models; prints means and in-context-learning scores."""
    import pandas as pd

    from engine.models.loading import LoadSpec, Models, identify
    from engine.models.masks import parse_mask
    from engine.texts.incontext import icl_change, icl_score
    from engine.texts.tokenloss import Cutting, same_tokens, token_losses

    check_ending(options.out, (".csv", ".parquet"))
    spec, cutting, models = spec_of(options), Cutting(options.window, options.stride), Models(store)
    other = LoadSpec(options.other_model or spec.model, options.other_precision or spec.precision, spec.int8_threshold,
                     None if options.other_model else spec.revision)  # fmt: skip
    masks = (
        parse_mask(options.mask_a, identify(spec, store).shape),
        parse_mask(options.mask, identify(other, store).shape),
    )
    started = time.monotonic()
    texts, measured, all_cached = _texts(options, models, store, report), [], True
    for side, mask in zip((spec, other), masks, strict=True):  # side by side, so that each model is loaded once
        runs = [last(token_losses(models, side, text, mask, options.bos, store, cutting), report) for text in texts]
        measured.append([run.value for run in runs])
        all_cached &= all(run.cached for run in runs)
    frames = []
    for number, (a, b) in enumerate(zip(*measured, strict=True)):
        same_tokens(a, b)
        frame = pd.DataFrame({"index": np.arange(1, len(a) + 1), "token": a.pieces, "loss_full_nats": a.loss_nats,
                              "loss_masked_nats": b.loss_nats, "diff_nats": b.loss_nats - a.loss_nats})  # fmt: skip
        frames.append(frame if len(texts) == 1 else frame.assign(text=number + 1))
    whole = pd.concat(frames)
    write(options.out, table_file(Path(options.out).suffix, whole))
    full, masked = ([each.loss_nats for each in side] for side in measured)
    try:
        scores = {"full": icl_score(full), "masked": icl_score(masked), "change": icl_change(full, masked)}
        icl: dict[str, Any] = {name: {"nats": _number(found.value), "ci95": [_number(found.low), _number(found.high)],
                                      "n": found.n} for name, found in scores.items()}  # fmt: skip
        line = ", ".join(f"{name} {found.value:+.3f}" for name, found in scores.items())
        note, words = "", f"in-context-learning score (nats, {scores['full'].n} texts): {line}"
    except HeadroomError as error:
        icl, note, words = {}, str(error), str(error)
    mean_a, mean_b = whole["loss_full_nats"].mean(), whole["loss_masked_nats"].mean()
    print_result(options, {
        "n_texts": len(texts), "n_tokens": len(whole), "loss_full_nats": _number(mean_a),
        "loss_masked_nats": _number(mean_b), "diff_nats": _number(mean_b - mean_a), "icl_score": icl, "note": note,
        "window": measured[0][0].window, "stride": measured[0][0].stride, "bos": measured[0][0].bos,
        "mask": masks[1].text(), "mask_a": masks[0].text(), "seconds": time.monotonic() - started,
        "cached": all_cached, "out": options.out,
    }, f"{len(whole):,} tokens: mean loss {mean_a:.4f} nats, {mean_b:.4f} masked ({mean_b - mean_a:+.4f}); {words}\n"
       f"written to {options.out}")  # fmt: skip
    return 0


def attribute(options: Namespace, store: Any, report: Report) -> int:
    """Writes what ablating each head does to the in-context-learning score, and to a change of the losses."""
    from engine.heads.ablation import attribute
    from engine.heads.induction import best_heads
    from engine.models.loading import Models, identify
    from engine.models.masks import parse_mask
    from engine.texts.tokenloss import token_losses

    check_ending(options.out)
    spec, models, started = spec_of(options), Models(store), time.monotonic()
    shape = identify(spec, store).shape
    mask = parse_mask(options.mask, shape)
    options.texts = options.texts or 12
    texts = _texts(options, models, store, report)
    final = last(attribute(models, spec, texts, mask, options.kind, options.fill, options.bos, store), report)
    mean, low, high = final.value.icl()
    found = {"icl_score_change_nats": mean, "low": low, "high": high}
    if options.before_and_after is not None:
        runs = [[last(token_losses(models, spec, text, each, options.bos, store), report).value.loss_nats
                 for text in texts] for each in (mask, parse_mask(options.before_and_after, shape))]  # fmt: skip
        differences = [after - before for before, after in zip(*runs, strict=True)]
        found["before_and_after_nats"] = final.value.before_and_after(differences, options.seed)
    write(options.out, scores_file(Path(options.out).suffix, found, found))
    best = list(best_heads(mean, 5))
    print_result(options, {
        "n_texts": len(texts), "kind": options.kind, "fill": options.fill, "mask": mask.text(), "best": best,
        "shape": list(mean.shape), "seconds": time.monotonic() - started, "cached": final.cached, "out": options.out,
    }, f"without these heads the in-context-learning score rises most: "
       f"{', '.join(f'{head} {score:+.3f} nats' for head, score in best)}\nwritten to {options.out}")  # fmt: skip
    return 0


def attention(options: Namespace, store: Any, report: Report) -> int:
    """Writes where heads attend in a text and what that adds to the next token's logit."""
    import pandas as pd

    from engine.heads.attention import head_views, overview
    from engine.models.loading import Models, identify
    from engine.models.masks import parse_mask

    check_ending(options.out)
    spec, models, started = spec_of(options), Models(store), time.monotonic()
    mask = parse_mask(options.mask, identify(spec, store).shape)
    texts = _texts(options, models, store, report)
    if len(texts) > 1:
        raise UsageError("attention is shown for one text; leave out --texts and --solved")
    names = names_of(options.heads, ())
    heads = [parse_head(name) for name in names]
    if not heads:
        raise UsageError("--heads names no head; write it like L1H0,L1H1")
    seen = last(overview(models, spec, texts[0], mask, options.bos, store), report).value
    final = last(head_views(models, spec, texts[0], mask, heads, options.bos, store), report)
    views = [final.value[head] for head in heads]
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
        "seconds": time.monotonic() - started, "cached": final.cached, "out": options.out,
    }, f"{len(names)} heads on {len(seen.token_ids):,} tokens written to {options.out}"
       + (f"; {seen.n_left_out:,} tokens behind did not fit" if seen.n_left_out else ""))  # fmt: skip
    return 0


def parse_head(name: str) -> tuple[int, int]:
    """(layer, head) of a name such as L3H5; UsageError where it is none."""
    layer, _, head = name.strip().upper().removeprefix("L").partition("H")
    if not (name.strip().upper().startswith("L") and layer.isdecimal() and head.isdecimal()):
        raise UsageError(f"head {name!r} cannot be read; write it like L3H5")
    return int(layer), int(head)


def _texts(options: Namespace, models: Any, store: Any, report: Report) -> list[str]:
    """The texts that the options name: whole, or with --texts cut or strung together to 512 tokens each."""
    from engine.demo import passages
    from engine.texts.incontext import Source, texts_of
    from engine.texts.passages import decoded

    given = [name for name in ("text", "passage", "solved") if getattr(options, name, None)]
    if len(given) != 1:
        raise UsageError("give exactly one of --text FILE, --passage TITLE and --solved TASK")
    if given == ["solved"]:
        source = Source("task", options.solved, n_texts=options.texts or 12)
    elif given == ["passage"]:
        by_title = {passage.title: passage.text for passage in passages()}
        if options.passage not in by_title:
            raise UsageError(f"no built-in passage is called {options.passage!r}; choose one of {', '.join(by_title)}")
        if not options.texts:
            return [by_title[options.passage]]
        source = Source("passage", options.passage, n_texts=options.texts)
    else:
        try:
            raw = Path(options.text).read_bytes()
        except OSError as error:
            raise HeadroomError(f"cannot read {options.text} ({error.strerror}); give another file") from error
        text = decoded(raw, options.text)
        if not options.texts:
            return [text]
        source = Source("text", options.text, text, n_texts=options.texts)
    return list(last(texts_of(models, spec_of(options), source, data_dir(options), store), report).value)


def _number(value: Any) -> float | None:
    """JSON has no nan."""
    return None if np.isnan(value) else float(value)
