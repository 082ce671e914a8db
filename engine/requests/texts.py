"""What models make of texts: `MeasureLosses`, `AttributeHeads`, `ContinuePrompt`, `MeasureAttention`
and `MeasureLens`."""

import io
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from engine.demo import LONG_PASSAGE, PASSAGE, PROMPT, passages
from engine.errors import HeadroomError, UsageError
from engine.files import named, read_regular
from engine.heads.ablation import FILLS, KINDS, Ablating, head_ablations
from engine.heads.induction import best_heads
from engine.heads.logit_lens import LogitLens, logit_lens
from engine.models.loading import PRECISIONS, LoadSpec
from engine.models.masks import Mask, parse_heads, parse_mask
from engine.models.session import Target
from engine.requests.base import OfModel, RequestRun, Result, WithData
from engine.requests.fields import choice, flag, number, output, path, string
from engine.requests.output import ARRAYS, TABLES, file_of, scores_file, table_file
from engine.requests.shared_fields import AS_CHAT, MOST, MOST_SEED
from engine.requests.vectors import vector_named, vector_option
from engine.texts.continuation import MOST_PERMILLE, MOST_TOKENS, Continuation, How, continuation, next_tokens
from engine.texts.incontext import MOST_AROUND, icl_change, icl_score
from engine.texts.passages import MAX_BYTES, MAX_TEXTS, N_TEXTS, Source, as_chat, decoded, texts_of
from engine.texts.tokenloss import Cutting, losses_of_texts, same_tokens, token_losses
from engine.views.texts import attention_view, attribution_view, continuation_view, lens_view, losses_view

if TYPE_CHECKING:
    from engine.heads.attention import Head, HeadView, Overview

WHAT_TO_PRUNE = 'components to prune, such as "L3H5 L4H* F7 F2-5 B9"'
N_BEST = 5


def title_of_passage(example: str = PASSAGE) -> Any:
    """A field for one of the included passages."""
    return string(None, "title of an included passage", what="passage", example=example)


@dataclass(frozen=True, kw_only=True)
class OfTexts(WithData, OfModel):
    """A model, its mask, and the texts that it reads."""

    text: str | None = path(None, "UTF-8 text file")
    passage: str | None = title_of_passage()
    from_task: str | None = string(
        None, "use the training questions of this task with their answers, concatenated, as the text", what="task"
    )
    texts: int | None = number(
        None,
        (1, MAX_TEXTS),
        "number of 512-token texts to split the input into "
        f"(default: one text, not split; {N_TEXTS} with --from-task, and in `attribute`)",
    )
    mask: str = string("", WHAT_TO_PRUNE)

    def contents(self, run: RequestRun, n_texts: int | None) -> list[str]:
        """The texts that are named: at most `n_texts` of 512 tokens each, or without a number the text whole."""
        given = [name for name in ("text", "passage", "from_task") if getattr(self, name)]
        if len(given) != 1:
            raise UsageError("give exactly one of --text FILE, --passage TITLE and --from-task TASK")
        if self.from_task:
            source = Source("task", self.from_task, n_texts=n_texts or N_TEXTS)
        else:
            name = self.passage or self.text or ""
            content = built_in(name) if self.passage else read_text(name, MAX_BYTES)
            if not n_texts:
                return [content]
            source = Source("passage", name) if self.passage else Source("text", name, content)
            source = replace(source, n_texts=n_texts)
        return list(run.value(texts_of(run.session.target(self.spec), source, self.data_dir)))

    def mask_in(self, target: Target) -> Mask:
        """The mask."""
        return parse_mask(self.mask, target.shape)


@dataclass(frozen=True, kw_only=True)
class ScoredTexts(OfTexts):
    """Texts with an in-context score."""

    average_tokens: int = number(
        0,
        (0, MOST_AROUND),
        "average the loss over this many tokens on each side of the 50th and 500th tokens when computing the "
        "in-context score (default: 0, as in the paper)",
    )


@dataclass(frozen=True, kw_only=True)
class MeasureLosses(ScoredTexts):
    """Measure the loss of every token of a text, with the full and the pruned model. The value is the TokenLosses of
    each text, by side."""

    command: ClassVar[str] = "losses"
    group: ClassVar[str] = "Text"
    base_mask: str = string("", "components to prune in both models (default: none)")
    other_model: str | None = string(
        None, ("second model, to which --mask is applied instead of to --model; both must have the same tokenizer")
    )
    other_precision: str | None = choice(None, PRECISIONS, "precision of --other-model")
    window: int = number(0, (0, MOST), "tokens per window (default: the model's context)")
    stride: int = number(0, (0, MOST), "tokens between the starts of two windows (default: half a window)")
    chat: bool = flag(AS_CHAT)
    out: str | None = output(TABLES, is_required=True)

    def measure(self, run: RequestRun) -> Result:
        import pandas as pd

        spec, cutting = self.spec, Cutting(self.window, self.stride)
        other = LoadSpec(self.other_model or spec.model, self.other_precision or spec.precision, spec.int8_threshold)
        targets = [run.session.target(each, self.bos) for each in (spec, other)]
        pairs = zip(targets, (self.base_mask, self.mask), strict=True)
        sides = [(target, parse_mask(mask, target.shape)) for target, mask in pairs]
        texts = self.contents(run, self.texts)
        losses = [  # side by side, so that each model is loaded once
            [run.value(token_losses(*self._target_with(target, text), mask, cutting, self.chat)) for text in texts]
            for target, mask in sides
        ]
        frames = []
        for at, (a, b) in enumerate(zip(*losses, strict=True)):
            same_tokens(a, b)
            frame = pd.DataFrame({"index": np.arange(1, len(a) + 1), "token": a.pieces, "loss_full_nats": a.loss_nats,
                                  "loss_masked_nats": b.loss_nats, "diff_nats": b.loss_nats - a.loss_nats})  # fmt: skip
            frames.append(frame if len(texts) == 1 else frame.assign(text=at + 1))
        whole = pd.concat(frames)
        full, masked = ([each.loss_nats for each in side] for side in losses)
        try:
            scores = {"full": icl_score(full, self.average_tokens), "masked": icl_score(masked, self.average_tokens)}
            scores |= {"change": icl_change(full, masked, self.average_tokens)}
            icl: dict[str, Any] = {name: {"nats": score.value, "n": score.n, "ci95": [score.low, score.high]}
                                   for name, score in scores.items()}  # fmt: skip
            note = ""
        except HeadroomError as error:
            scores, icl, note = {}, {}, str(error)
        mean_a, mean_b = whole["loss_full_nats"].mean(), whole["loss_masked_nats"].mean()
        first, (mask_a, mask_b) = losses[0][0], (mask for _, mask in sides)
        fields = {
            "n_texts": len(texts), "n_tokens": len(whole), "loss_full_nats": mean_a, "loss_masked_nats": mean_b,
            "diff_nats": mean_b - mean_a, "icl_score": icl, "note": note, "window": first.window,
            "stride": first.stride, "bos": first.bos, "mask": mask_b.text(), "mask_a": mask_a.text(), "out": self.out,
        }  # fmt: skip
        notes = [note] if note else []
        if any(each.n_total > each.window for each in losses[0]):
            notes.append(f"Texts are read in windows of {first.window:,} tokens, a new one every {first.stride:,}.")
        files = file_of(self.out, lambda suffix: table_file(suffix, whole))
        view = losses_view(whole.to_dict("records"), len(texts), scores, notes)
        return Result(tuple(losses), fields, view, files)

    def _target_with(self, target: Target, text: str) -> tuple[Target, str]:
        return as_chat(target, text) if self.chat else (target, text)


@dataclass(frozen=True, kw_only=True)
class AttributeHeads(ScoredTexts):
    """Attribute the in-context score to heads by ablation. The value is HeadAblations."""

    command: ClassVar[str] = "attribute"
    group: ClassVar[str] = "Text"
    passage: str | None = title_of_passage(LONG_PASSAGE)
    kind: str = choice("full", KINDS, "kind of ablation (default: full)")
    fill: str = choice("zero", FILLS, "what replaces the output of an ablated head (default: zero)")
    second_mask: str | None = string(
        None, "second mask; the loss change between --mask and this mask is also attributed to heads"
    )
    seed: int = number(0, (0, MOST_SEED), "seed of the random tokens used with --second-mask (default: 0)")
    out: str | None = output(ARRAYS, is_required=True)

    def measure(self, run: RequestRun) -> Result:
        target = self.target(run.session)
        mask, texts = self.mask_in(target), self.contents(run, self.texts or N_TEXTS)
        ablations = run.value(head_ablations(target, texts, Ablating(mask, self.kind, self.fill)))
        mean, low, high = ablations.icl(self.average_tokens)
        found = {"icl_score_change_nats": mean, "low": low, "high": high}
        if self.second_mask is not None:
            masks = mask, parse_mask(self.second_mask, target.shape)
            sides = (run.value(losses_of_texts(target, texts, each)) for each in masks)
            differences = [after - before for before, after in zip(*sides, strict=True)]
            found["before_and_after_nats"] = ablations.before_and_after(differences, self.seed)
        best = list(best_heads(mean, N_BEST))
        fields = {"n_texts": len(texts), "kind": self.kind, "fill": self.fill, "mask": mask.text(), "best": best,
                  "shape": list(mean.shape), "out": self.out}  # fmt: skip
        files = file_of(self.out, lambda suffix: scores_file(suffix, found, found))
        return Result(ablations, fields, attribution_view(found, len(texts)), files)


@dataclass(frozen=True, kw_only=True)
class ContinuePrompt(OfModel):
    """Continue a prompt with the full and the pruned model, and with a function vector. The value is a Continuation by
    side."""

    command: ClassVar[str] = "continue"
    group: ClassVar[str] = "Text"
    prompt: str = string(
        MISSING, "the prompt, used exactly as given unless --chat is set", what="prompt", example=PROMPT
    )
    chat: bool = flag(AS_CHAT)
    mask: str = string("", WHAT_TO_PRUNE)
    tokens: int = number(24, (1, MOST_TOKENS), "maximum number of tokens (default: 24)")
    temperature: float = number(
        0.0,
        (0, MOST_PERMILLE / 1000),
        "sampling temperature (default: 0, which always takes the most likely token)",
        float,
    )
    seed: int = number(0, (0, MOST_SEED), "seed for sampling (default: 0)")
    add_vector: str | None = vector_option("the prompt, with --mask if given")
    out: str | None = output(TABLES, is_required=True)

    def measure(self, run: RequestRun) -> Result:
        how = How(self.tokens, round(1000 * self.temperature), self.seed)
        target = self.target(run.session)
        mask, full = parse_mask(self.mask, target.shape), Mask.full(target.shape)
        sides = {"full": full} if mask.is_full else {"full": full, "masked": mask}
        added = None if self.add_vector is None else run.value(vector_named(target, self.add_vector))
        target, prompt = as_chat(target, self.prompt) if self.chat else (target, self.prompt)
        likeliest = run.value(next_tokens(target, prompt, list(sides.values()), self.chat, added))
        continuations = {
            name: run.value(continuation(target, prompt, side, how, self.chat)) for name, side in sides.items()
        }
        if added is not None:
            continuations["vector"] = run.value(continuation(target, prompt, mask, how, self.chat, added))
        p = {
            name: [float(each) for each in np.exp(row)]
            for name, row in zip(continuations, likeliest.log_p, strict=True)
        }
        fields = {
            "prompt": prompt, "said": {name: each.text for name, each in continuations.items()},
            "next": [{"token": token, **{name: p[name][i] for name in p}} for i, token in enumerate(likeliest.strings)],
            "mask": mask.text(), "tokens": how.n_tokens, "temperature": how.temperature_permille / 1000,
            "seed": how.seed, "vector_layer": added and added.layer, "out": self.out,
        }  # fmt: skip
        files = file_of(self.out, lambda suffix: table_file(suffix, continuation_table(continuations)))
        return Result(continuations, fields, continuation_view(continuations, fields["next"]), files)


@dataclass(frozen=True, kw_only=True)
class MeasureAttention(OfTexts):
    """Show where heads attend, and which tokens' logits they raise. The value is a HeadView by head."""

    command: ClassVar[str] = "attention"
    group: ClassVar[str] = "Text"
    heads: str = string(MISSING, "comma-separated heads to show, such as L1H0,L1H1", example="L1H1")
    out: str | None = output(ARRAYS, is_required=True)

    def measure(self, run: RequestRun) -> Result:
        from engine.heads.attention import head_views, overview

        target = self.target(run.session)
        mask, texts = self.mask_in(target), self.contents(run, self.texts)
        if len(texts) > 1:
            raise UsageError("attention is shown for one text; leave out --texts and --from-task")
        heads = parse_heads(self.heads, target.shape)
        if not heads:
            raise UsageError("--heads names no head; write it like L1H0,L1H1")
        names = [f"L{layer}H{head}" for layer, head in heads]
        seen = run.value(overview(target, texts[0], mask))
        found = run.value(head_views(target, texts[0], mask, heads))
        views = {head: found[head] for head in heads}
        pattern = np.mean([view.pattern for view in views.values()], axis=0)
        fields = {"heads": names, "n_tokens": len(seen.token_ids), "n_left_out": seen.n_left_out, "mask": mask.text(),
                  "out": self.out}  # fmt: skip
        files = file_of(self.out, lambda suffix: attention_file(suffix, seen, views))
        return Result(views, fields, attention_view(names, seen.pieces, pattern, seen.n_left_out), files)


@dataclass(frozen=True, kw_only=True)
class MeasureLens(OfTexts):
    """Show the next token that the model would guess after each layer (logit lens). The value is a LogitLens."""

    command: ClassVar[str] = "lens"
    group: ClassVar[str] = "Text"
    out: str | None = output(TABLES)

    def measure(self, run: RequestRun) -> Result:
        target = self.target(run.session)
        mask, texts = self.mask_in(target), self.contents(run, self.texts)
        if len(texts) > 1:
            raise UsageError("the lens reads one text; leave out --texts and --from-task")
        found = run.value(logit_lens(target, texts[0], mask))
        frame = lens_rows(found)
        shares = [float((of_layer[:-1] == 1).mean()) for of_layer in found.next_rank]
        fields = {"n_tokens": len(found.token_ids), "n_left_out": found.n_left_out, "mask": mask.text(),
                  "right_by_layer": shares, "out": self.out}  # fmt: skip
        files = file_of(self.out, lambda suffix: table_file(suffix, frame))
        view = lens_view(found.names, shares, len(found.token_ids), found.n_left_out)
        return Result(found, fields, view, files)


def lens_rows(found: LogitLens) -> Any:
    """A DataFrame with one row for each layer and token: the likeliest next token, its probability, the probability of
    the actual next token, and its rank."""
    import pandas as pd

    layers, tokens = found.next_p.shape
    guess = [_one_line(found.guesses[each]) for each in found.guess_ids[..., 0].ravel().tolist()]
    return pd.DataFrame({
        "after": np.repeat(found.names, tokens), "index": np.tile(np.arange(tokens), layers),
        "token": [_one_line(piece) for piece in found.pieces] * layers, "guess": guess,
        "guess_p": found.guess_p[..., 0].ravel(), "next_p": found.next_p.ravel(),
        "next_rank": found.next_rank.ravel(),
    })  # fmt: skip


def _one_line(token: str) -> str:
    """A token as a cell of a table, with control characters as in "\\n"."""
    return repr(token)[1:-1]


def attention_file(suffix: str, seen: "Overview", views: "Mapping[Head, HeadView]") -> bytes:
    """The patterns and what they raise by head, as arrays or as a table of all that is not 0."""
    import pandas as pd

    if suffix == ".npz":
        buffer = io.BytesIO()
        np.savez(buffer, heads=np.array([*views]), token_ids=seen.token_ids, tokens=np.array(seen.pieces),
                 pattern=np.stack([view.pattern for view in views.values()]),
                 raised_nats=np.stack([view.raised_nats for view in views.values()]))  # fmt: skip
        return buffer.getvalue()
    rows = []
    for (layer, head), view in views.items():
        destination, source = np.nonzero((view.pattern != 0) | (view.raised_nats != 0))
        rows.append(pd.DataFrame({"head": f"L{layer}H{head}", "destination": destination, "source": source,
                                  "attention": view.pattern[destination, source],
                                  "raised_nats": view.raised_nats[destination, source]}))  # fmt: skip
    return table_file(suffix, pd.concat(rows))


def continuation_table(said: Mapping[str, Continuation]) -> Any:
    """A DataFrame with a row a token: which model said it, its place, id, text and probability."""
    import pandas as pd

    frames = []
    for name, found in said.items():
        about = {"model": name, "index": range(1, 1 + len(found.pieces)), "token_id": found.token_ids}
        frames.append(pd.DataFrame(about | {"token": found.pieces, "p": np.exp(found.log_p.astype(float))}))
    return pd.concat(frames)


def built_in(title: str) -> str:
    """The text of a built-in passage; UsageError where none is called so."""
    by_title = {passage.title: passage.text for passage in passages(long=True)}
    if title not in by_title:
        raise UsageError(f"no built-in passage is called {title!r}; choose one of {', '.join(by_title)}")
    return by_title[title]


def read_text(file: str, most_bytes: int) -> str:
    """The text in the file that --text names; HeadroomError if it cannot be read or is not text."""
    try:
        raw = read_regular(named(file, "--text"), 2 * most_bytes)
    except OSError as error:
        raise HeadroomError(f"cannot read {file} ({error.strerror}); give another file") from error
    return decoded(raw, file, most_bytes)
