"""What a lower precision disturbs: `ComparePrecisions`."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from engine.demo import LONG_PASSAGE
from engine.errors import UsageError
from engine.measurement import Measurement
from engine.models.loading import PRECISIONS, LoadSpec
from engine.models.session import Session
from engine.requests.base import OfTask, RequestRun, Result, selected
from engine.requests.fields import choice, names_of, output, path, string
from engine.requests.output import TABLES, file_of, table_file
from engine.requests.pruned import content_of
from engine.requests.shared_fields import MOST, training_questions
from engine.studies.precision import PrecisionEffects, precision_effects
from engine.views.importance import components, precision_view


@dataclass(frozen=True, kw_only=True)
class ComparePrecisions(OfTask):
    """Measure how far a precision changes the output of each head and FFN, and what accuracy and perplexity lose. The
    value is PrecisionEffects."""

    command: ClassVar[str] = "precision"
    group: ClassVar[str] = "Scores"
    reference: str = choice("fp32", PRECISIONS[1:], "precision to compare with (default: fp32)")
    also: str = string(
        "0,bf16",
        "comma-separated further precisions, or int8 by its outlier threshold, such as 0 for no outliers "
        "(default: 0,bf16)",
    )
    order_questions: int = training_questions()
    text: str | None = path(None, "UTF-8 text file, or .jsonl file with texts, to read in place of --passage")
    passage: str = string(
        LONG_PASSAGE,
        f"title of the included passage that is read (default: {LONG_PASSAGE})",
        what="passage",
        example=LONG_PASSAGE,
    )
    out: str | None = output(TABLES)

    @property
    def specs(self) -> list[LoadSpec]:
        """The model in the reference precision, as it is asked for, and in the others. UsageError: invalid ones."""
        if self.precision == self.reference:
            raise UsageError(f"{self.precision} is compared with itself; choose another --precision or --reference")
        found = [self.spec, *map(self._also, names_of(self.also, ()))]
        others = [each for each in dict.fromkeys(found) if each.precision != self.reference]
        return [replace(self.spec, precision=self.reference), *others]

    def _also(self, name: str) -> LoadSpec:
        if name in PRECISIONS:
            return replace(self.spec, precision=name)
        threshold = float(name) if name.replace(".", "", 1).isdecimal() else -1.0
        if not 0 <= threshold <= MOST:
            words = f"--also {name!r} is neither a precision nor an outlier threshold of int8; write it like 0,bf16"
            raise UsageError(words)
        return replace(self.spec, precision="int8", int8_threshold=threshold)

    def measurement(self, session: Session) -> Measurement[PrecisionEffects]:
        targets = [session.target(spec, self.bos) for spec in self.specs]
        text = content_of(self.text, None if self.text else self.passage)
        ranking = selected(self.task_spec(session, "train"), self.data_dir, session, self.order_questions)
        return precision_effects(targets, text, self.questions(session, "validation"), ranking)

    def measure(self, run: RequestRun) -> Result:
        import pandas as pd

        found = run.value(self.measurement(run.session))
        rows = [row for spec in found.disturbed for row in components(found, spec)]
        fields: dict[str, Any] = {
            "task": self.task, "shots": self.shots, "reference": self.reference,
            "acc_reference": float(found.answers[found.reference].correct.mean()),
            "perplexity_reference": found.perplexity[found.reference].a_token,
            "models": [found.row(spec) for spec in found.disturbed], "components": rows, "out": self.out,
        }  # fmt: skip
        files = file_of(self.out, lambda suffix: table_file(suffix, pd.DataFrame(rows)))
        return Result(found, fields, precision_view(found, self.task), files)
