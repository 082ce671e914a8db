"""What comes of pruning: `ExportModel`, a pruned model as a folder; `MeasureSpeed`, what pruning saves; and
`MeasurePerplexity`, the perplexity of a text by the standard recipe, of the full and of the pruned model.
"""

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from engine.errors import HeadroomError, UsageError
from engine.export.card import Exported
from engine.export.folders import named_folder, refuse_taken
from engine.export.forms import FORMS
from engine.models.masks import Mask
from engine.models.session import Session, Target
from engine.progress import Progress
from engine.questions.chats import chat_template
from engine.questions.rendering import TaskSpec
from engine.requests.base import OfModel, RequestRun, Result, WithData, WithPruning, mask_of, selected, task_named
from engine.requests.fields import argv, choice, flag, number, output, path, string
from engine.requests.output import TABLES, file_of, table_file
from engine.requests.shared_fields import AS_CHAT, MOST, SAME_EXAMPLES, examples_in_prompt, labels_of_examples
from engine.requests.texts import built_in, read_text, title_of_passage
from engine.views.pruned import exported_view, perplexity_view, speed_view

BETWEEN_ROWS = "\n\n"  # as the standard recipe joins the rows of a data set


@dataclass(frozen=True, kw_only=True)
class PrunedModel(WithPruning, WithData, OfModel):
    """A model and its pruning, by the order of a task if one is named."""

    task: str | None = string(
        None,
        "task for which the pruning order is computed; required with --prune-heads, --prune-ffns, and --prune-layers",
        what="task",
    )
    shots: int = examples_in_prompt()
    same_examples: bool = flag(SAME_EXAMPLES)
    labels: str = labels_of_examples()
    chat: bool = flag(AS_CHAT)

    def named(self, target: Target) -> TaskSpec | None:
        """The task as the engine names it; None where none is named."""
        task = task_named(self.task, self.shots, self.same_examples, self.labels)
        return replace(task, chat=chat_template(target.identity)) if task and self.chat else task

    def mask_in(self, run: RequestRun, target: Target) -> Mask:
        """The mask of the levels and the typed one. UsageError: levels without a task."""
        task = self.named(target)
        pruning = self.pruning(task or TaskSpec(""), target)
        if pruning.by_level and task is None:
            raise UsageError("--prune-heads, --prune-ffns and --prune-layers need an order; name its task with --task")
        return mask_of(run, target, pruning, self.data_dir)


@dataclass(frozen=True, kw_only=True)
class ExportModel(PrunedModel):
    """Write a pruned model to a folder that transformers can load. The value is Exported."""

    command: ClassVar[str] = "export"
    out: str = path("", "folder to create; it must not exist yet", is_required=True, metavar="DIR")
    form: str = choice(
        "masked",
        FORMS,
        "masked (default): stock architecture with zeros in place of pruned components; small: pruned "
        "components removed, with a modeling file; even: whole layers, or the same number of heads in "
        "every layer, removed; stock architecture",
    )
    task: str | None = string(None, "task to evaluate; --prune-heads and --prune-ffns use its pruning order")
    limit: int | None = number(None, (1, MOST), "number of questions of --task to evaluate (default: all)")
    sample: str = string(
        "first", "which questions --limit selects: the first, as the harness does, or a stratified sample"
    )

    def steps(self, session: Session, mask: Mask) -> Iterator[Progress[Exported]]:
        """Writes the folder of the model pruned by a mask, loads it back and compares."""
        from engine.export.exporting import Export, export

        questions = None
        target = self.target(session)
        if task := self.named(target):
            questions = selected(task, self.data_dir, session, self.limit, self.sample)
        command = shlex.join(["headroom", *argv(replace(self, json=False))])
        return export(session, target, Export(mask, self.out, self.form, command, questions))

    def measure(self, run: RequestRun) -> Result:
        refuse_taken(named_folder(self.out))
        target = self.target(run.session)
        mask = self.mask_in(run, target)
        made = run.last(self.steps(run.session, mask))
        fields = made.fields() | {"heads_pruned": mask.n_heads_pruned, "ffns_pruned": mask.n_ffns_pruned,
                                  "model": target.identity.name}  # fmt: skip
        return Result(made, fields, exported_view(made, mask))


@dataclass(frozen=True, kw_only=True)
class MeasureSpeed(PrunedModel):
    """Measure the effect of pruning on tokens per second and on the memory of weights and KV cache. The value is
    Speed."""

    command: ClassVar[str] = "speed"
    group: ClassVar[str] = "Pruning"
    remeasure: bool = flag("measure again, even if results are stored")
    out: str | None = output(TABLES)

    def measure(self, run: RequestRun) -> Result:
        from engine.accuracy.speed import speed

        target = self.target(run.session)
        mask = self.mask_in(run, target)
        found = run.value(speed(target, mask, self.remeasure))
        rows, rounds = found.rows(), len(found.prompt["full"])
        fields = {
            "rows": rows, "n_prompt": found.n_prompt, "n_new": found.n_new, "load": found.load,
            "n_cpus": found.n_cpus, "rounds": rounds, "mask": mask.text(), "heads_pruned": mask.n_heads_pruned,
            "ffns_pruned": mask.n_ffns_pruned, "model": target.identity.name, "precision": self.precision,
            "out": self.out,
        }  # fmt: skip
        files = file_of(self.out, lambda suffix: table_file(suffix, found.frame()))
        return Result(found, fields, speed_view(found, mask), files)


@dataclass(frozen=True, kw_only=True)
class MeasurePerplexity(PrunedModel):
    """Measure the perplexity of a text, in consecutive windows, with the full and the pruned model. The value is
    Perplexity by side."""

    command: ClassVar[str] = "perplexity"
    group: ClassVar[str] = "Pruning"
    text: str | None = path(None, 'UTF-8 text file, or a .jsonl file whose "text" fields are joined by blank lines')
    passage: str | None = title_of_passage()
    window: int = number(0, (0, MOST), "tokens per window (default: the model's context)")

    def measure(self, run: RequestRun) -> Result:
        from engine.texts.perplexity import change, perplexity

        content, target = content_of(self.text, self.passage), self.target(run.session)
        mask = self.mask_in(run, target)
        full = Mask.full(target.shape)
        sides = {"full": full} if mask.is_full else {"full": full, "pruned": mask}
        found = {name: run.value(perplexity(target, content, side, self.window)) for name, side in sides.items()}
        first, fields = found["full"], dict[str, Any]({name: _fields(side) for name, side in found.items()})
        rows = [{"model": name, **side} for name, side in fields.items()]
        difference = change(first, found["pruned"]) if "pruned" in found else None
        if difference is not None:
            fields["change"] = {"nats": difference.nats, "ci95": [difference.low, difference.high]}
        return Result(found, {
            **fields, "n_scored": len(first), "n_tokens": first.n_tokens, "n_words": first.n_words,
            "n_bytes": first.n_bytes, "window": first.window, "bos": first.bos, "mask": mask.text(),
            "heads_pruned": mask.n_heads_pruned, "ffns_pruned": mask.n_ffns_pruned, "model": target.identity.name,
            "precision": self.precision,
        }, perplexity_view(found, rows, difference))  # fmt: skip


def content_of(text: str | None, passage: str | None) -> str:
    """The text that is named, by its file or as a passage, checked."""
    from engine.texts.perplexity import MOST_BYTES

    if bool(text) == bool(passage):
        raise UsageError("give exactly one of --text FILE and --passage TITLE")
    if passage:
        return built_in(passage)
    assert text is not None
    content = read_text(text, MOST_BYTES)
    return BETWEEN_ROWS.join(_rows(text, content)) if text.endswith(".jsonl") else content


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
