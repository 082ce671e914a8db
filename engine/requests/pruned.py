"""What comes of pruning: `ExportModel`, a pruned model as a folder, and `MeasureSpeed`, what pruning saves."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from engine.export.card import Exported
from engine.export.folders import named_folder, refuse_taken
from engine.export.forms import FORMS
from engine.heads.ablation import FILLS
from engine.models.masks import Mask
from engine.models.session import Session
from engine.progress import Progress
from engine.questions.requests import MAX_SHOTS
from engine.requests.base import MOST, PrunedModel, RequestRun, Result, selected, task_named
from engine.requests.fields import choice, flag, number, path, string
from engine.requests.output import TABLES, check_out, file_of, table_file
from engine.requests.words import argv


@dataclass(frozen=True, kw_only=True)
class ExportModel(PrunedModel):
    """Write a pruned model to a folder that transformers can load. The value is Exported."""

    command: ClassVar[str] = "export"
    out: str = path("", "folder to create; it must not exist", is_required=True, metavar="DIR")
    form: str = choice(
        "masked",
        FORMS,
        "masked (default): stock architecture with zeros in place of pruned components; small: pruned "
        "components removed, with a modeling file; even: whole layers, or the same number of heads in "
        "every layer, removed; stock architecture",
    )
    fill: str = choice(
        "zero",
        FILLS,
        ("what replaces the output of pruned components: zero (default), or its mean, folded into output biases"),
    )
    task: str | None = string(None, "task to evaluate; --prune-heads and --prune-ffns use its pruning order")
    shots: int = number(0, (0, MAX_SHOTS), "number of examples in the prompt of that task (default: 0)")
    same_examples: bool = flag("use the same examples for every question")
    limit: int | None = number(None, (1, MOST), "number of questions of the task (default: all)")
    sample: str = string(
        "first", "which questions --limit selects: the first, as the harness does, or a stratified sample"
    )

    def steps(self, session: Session, mask: Mask) -> Iterator[Progress[Exported]]:
        """Writes the folder of the model pruned by a mask, loads it back and compares."""
        from engine.export.exporting import Export, export

        questions = train = None
        if task := task_named(self.task, self.shots, self.same_examples):
            questions = selected(task, self.data_dir, session, self.limit, self.sample)
            if self.fill == "mean":
                train = selected(replace(task, split="train"), self.data_dir, session, None)
        command = shlex.join(["headroom", *argv(replace(self, json=False))])
        asked = Export(mask, self.out, self.form, self.fill, command, questions, train)
        return export(session, self.target(session), asked)

    def measure(self, run: RequestRun) -> Result:
        refuse_taken(named_folder(self.out))
        target = self.target(run.session)
        mask = self.mask_in(run, target, task_named(self.task, self.shots, self.same_examples))
        made = run.last(self.steps(run.session, mask))
        (params_before, params), (bytes_before, n_bytes) = made.n_params, made.n_bytes
        lines = [f"{made.folder}: {mask.n_heads_pruned} heads and {mask.n_ffns_pruned} FFNs pruned, form {made.form}",
                 f"{params:,} of {params_before:,} parameters, {n_bytes / 1e6:,.1f} of {bytes_before / 1e6:,.1f} MB",
                 f"largest logit difference from the masked model: {made.checked.difference:.3g} on "
                 f"{made.checked.n_tokens} tokens, {made.checked.precision}", *made.says]  # fmt: skip
        if made.judged is not None:
            fields = made.judged.fields()
            each = [f"{name} {fields[name]['acc']:.4f}" for name in ("full", "pruned", "mean_filled") if name in fields]
            lines.append(f"accuracy on {fields['task']}: {', '.join(each)}, n {fields['n']}")
        fields = made.fields() | {"heads_pruned": mask.n_heads_pruned, "ffns_pruned": mask.n_ffns_pruned,
                                  "model": target.identity.name}  # fmt: skip
        return Result(made, fields, "\n".join([*lines, made.to_load]))


@dataclass(frozen=True, kw_only=True)
class MeasureSpeed(PrunedModel):
    """Measure the effect of pruning on tokens per second and on the memory of weights and KV cache. The value is
    Speed."""

    command: ClassVar[str] = "speed"
    task: str | None = string(
        None, ("task for which the pruning order is computed; required with --prune-heads and --prune-ffns")
    )
    shots: int = number(0, (0, MAX_SHOTS), "number of examples in the prompt of that task (default: 0)")
    same_examples: bool = flag("use the same examples for every question")
    remeasure: bool = flag("measure again, even if results are stored", aliases=("--again",))
    out: str | None = path(None, "output file: .csv or .parquet", is_output=True)

    def measure(self, run: RequestRun) -> Result:
        from engine.accuracy.costs import speed

        check_out(self.out, TABLES)
        target = self.target(run.session)
        mask = self.mask_in(run, target, task_named(self.task, self.shots, self.same_examples))
        found = run.value(speed(target, mask, self.remeasure))
        rows, rounds = found.rows(), len(found.prompt["full"])
        fields = {
            "rows": rows, "n_prompt": found.n_prompt, "n_new": found.n_new, "load": found.load,
            "n_cpus": found.n_cpus, "rounds": rounds, "mask": mask.text(), "heads_pruned": mask.n_heads_pruned,
            "ffns_pruned": mask.n_ffns_pruned, "model": target.identity.name, "precision": self.precision,
            "out": self.out,
        }  # fmt: skip
        how = f"a prompt of {found.n_prompt} tokens and {found.n_new} behind it, medians (range) of {rounds} turns each"
        lines = [*map(_line, rows), f"{how}; the machine's load was {found.load:.1f} on {found.n_cpus} cores"]
        files = file_of(self.out, lambda suffix: table_file(suffix, found.frame()))
        return Result(found, fields, "\n".join(lines), files)


def _line(row: dict[str, Any]) -> str:
    sides = [f"{way} {row[way]:,.0f}" + (f" ({row[f'{way}_low']:,.0f} to {row[f'{way}_high']:,.0f})"
                                         if f"{way}_low" in row else "") for way in ("full", "pruned")]  # fmt: skip
    return f"{row['quantity']:<16}{row['unit']:<12}{sides[0]:<32}{sides[1]:<32}x{row['ratio']:.2f}"
