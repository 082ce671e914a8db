"""Perplexity of a text by the standard recipe, of the full and of the pruned model: `MeasurePerplexity`."""

import json
from dataclasses import dataclass
from typing import Any, ClassVar

from engine.errors import HeadroomError, UsageError
from engine.models.masks import Mask
from engine.questions.requests import MAX_SHOTS
from engine.requests.base import MOST, PrunedModel, RequestRun, Result, task_named
from engine.requests.fields import flag, number, path, string
from engine.requests.texts import built_in, read_text

BETWEEN_ROWS = "\n\n"  # as the standard recipe joins the rows of a data set


@dataclass(frozen=True, kw_only=True)
class MeasurePerplexity(PrunedModel):
    """Measure the perplexity of a text with the full and the pruned model, as published tables do. The value is
    Perplexity by side."""

    command: ClassVar[str] = "perplexity"
    text: str | None = path(None, 'UTF-8 text file, or a .jsonl file whose "text" fields are joined by blank lines')
    passage: str | None = string(None, "title of an included passage")
    window: int = number(0, (0, MOST), "tokens per window (default: the model's context)")
    task: str | None = string(
        None,
        ("task for which the pruning order is computed; required with --prune-heads, --prune-ffns and --prune-layers"),
    )
    shots: int = number(0, (0, MAX_SHOTS), "number of examples in the prompt of that task (default: 0)")
    same_examples: bool = flag("use the same examples for every question")

    def measure(self, run: RequestRun) -> Result:
        from engine.texts.perplexity import change, perplexity

        content, target = self._content(), self.target(run.session)
        mask = self.mask_in(run, target, task_named(self.task, self.shots, self.same_examples))
        full = Mask.full(target.shape)
        sides = {"full": full} if mask.is_full else {"full": full, "pruned": mask}
        found = {name: run.value(perplexity(target, content, side, self.window)) for name, side in sides.items()}
        lines = [f"{name}: perplexity {side.a_token:.2f} a token, {side.a_word:.2f} a word, {side.a_byte:.3f} a byte"
                 for name, side in found.items()]  # fmt: skip
        first, fields = found["full"], dict[str, Any]({name: _fields(side) for name, side in found.items()})
        if "pruned" in found:
            difference = change(first, found["pruned"])
            low, high = difference.low, difference.high
            fields["change"] = {"nats": difference.nats, "ci95": [low, high]}
            interval = f" (95 % {low:+.4f} to {high:+.4f})" if low == low else ""
            lines.append(f"change: {difference.nats:+.4f} nats a token{interval}")
        lines.append(f"{len(first):,} of {first.n_tokens:,} tokens scored, in windows of {first.window:,}")
        return Result(found, {
            **fields, "n_scored": len(first), "n_tokens": first.n_tokens, "n_words": first.n_words,
            "n_bytes": first.n_bytes, "window": first.window, "bos": first.bos, "mask": mask.text(),
            "heads_pruned": mask.n_heads_pruned, "ffns_pruned": mask.n_ffns_pruned, "model": target.identity.name,
            "precision": self.precision,
        }, "\n".join(lines))  # fmt: skip

    def _content(self) -> str:
        """The text that is named, checked."""
        from engine.texts.perplexity import MOST_BYTES

        if bool(self.text) == bool(self.passage):
            raise UsageError("give exactly one of --text FILE and --passage TITLE")
        if self.passage:
            return built_in(self.passage)
        assert self.text is not None
        content = read_text(self.text, MOST_BYTES)
        return BETWEEN_ROWS.join(_rows(self.text, content)) if self.text.endswith(".jsonl") else content


def _rows(name: str, text: str) -> list[str]:
    """The "text" of every row of a JSON Lines file; HeadroomError names the row that has none."""
    found = []
    for at, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise HeadroomError(f"{name}, row {at}: is not valid JSON; write one object a line") from error
        if not isinstance(row, dict) or not isinstance(row.get("text"), str):
            raise HeadroomError(f'{name}, row {at}: has no text in its column "text"; add it to the row')
        found.append(row["text"])
    return found


def _fields(side: Any) -> dict[str, Any]:
    return {"perplexity": side.a_token, "word_perplexity": side.a_word, "byte_perplexity": side.a_byte,
            "nats": side.nats}  # fmt: skip
