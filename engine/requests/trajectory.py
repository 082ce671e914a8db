"""What was learnt at every snapshot of a run or of a published series: `MeasureTrajectory`."""

from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from engine.errors import HeadroomError
from engine.files import named, read_regular
from engine.requests.base import MOST, Request, RequestRun, Result
from engine.requests.fields import flag, names_of, number, path, string
from engine.requests.output import TABLES, check_out, file_of, table_file
from engine.requests.texts import read_text
from engine.training.measuring import N_ABLATED, N_ABLATED_TEXTS, N_TEXTS, QUANTITIES, WITHOUT_ABLATIONS, TrajectoryPlan
from engine.training.trajectory import Trajectory, decode, encode

MOST_BYTES = 20_000_000  # of a text
RECORD = ".safetensors"
SHORTER = "of 512 tokens, the same share of a shorter context"


@dataclass(frozen=True, kw_only=True)
class MeasureTrajectory(Request):
    """What was learnt at each snapshot; the value is a Trajectory."""

    command: ClassVar[str] = "trajectory"
    gives: ClassVar[str] = "what a run or a published series had learnt at each of its snapshots"
    precision: ClassVar[str] = "fp32"

    series: str = string(
        "folder of a run, RUN@step{0,512}, or a series such as EleutherAI/pythia-70m@step{0,512,1000}; or the record "
        "that --save wrote of one, of which nothing is measured",
        default=MISSING,
        is_position=True,
        metavar="SERIES",
    )
    what: str | None = string(
        "what is measured, separated by commas (default: all but ablations, which take longest; of "
        f"{', '.join(QUANTITIES)})"
    )
    texts: int = number((1, MOST), f"of held-out texts (default: {N_TEXTS}, or what there is)", default=N_TEXTS)
    ablation_texts: int = number(
        (1, MOST), f"of them with each head ablated (default: {N_ABLATED_TEXTS})", default=N_ABLATED_TEXTS
    )
    ablation_snapshots: int = number(
        (1, MOST),
        f"snapshots at which heads are ablated, most of them in the window of the phase change (default: {N_ABLATED})",
        default=N_ABLATED,
    )
    early: int | None = number((1, MOST), f"token index that the in-context score begins at (default: 50 {SHORTER})")
    late: int | None = number((1, MOST), f"and ends at (default: 500 {SHORTER})")
    around: int = number((0, MOST), "tokens on either side of both (default: 0, as defined)", default=0)
    text: str | None = path("a UTF-8 text file to measure on, in place of held-out text or passages")
    step_tokens: int | None = number((1, 10**9), "tokens of a step of a published series (default: known for Pythia)")
    out: str | None = path("file to write: .csv or .parquet", is_output=True)
    save: str | None = path("file to write the whole record to: .safetensors", is_output=True)
    download: bool = flag("fetch snapshots from the hub that are not on this computer")

    @property
    def quantities(self) -> tuple[str, ...]:
        """What is measured."""
        return tuple(names_of(self.what, WITHOUT_ABLATIONS))

    def measure(self, run: RequestRun) -> Result:
        from engine.training.phase_change import window

        check_out(self.out, TABLES)
        check_out(self.save, (RECORD,), "--save")
        found = self._record() if self.series.endswith(RECORD) else self._measured(run)
        where = window(found.tokens, found.icl)
        fields: dict[str, Any] = {
            "name": found.name, "label": found.label, "recipe": found.recipe, "about": dict(found.about),
            "steps": found.steps.tolist(), "tokens": found.tokens.tolist(), "ablated": found.ablated.tolist(),
            "loss": found.loss, "icl": found.icl, "best_prefix_matching": found.best("prefix_matching"),
            "window": where and {"start_tokens": where.start, "end_tokens": where.end, "share": where.share,
                                 "steepest_tokens": int(found.tokens[where.steepest]), "smoothed": where.smoothed},
            "out": self.out, "save": self.save,
        }  # fmt: skip
        files = file_of(self.out, lambda suffix: table_file(suffix, table(found, self.quantities)))
        files |= file_of(self.save, lambda suffix: encode(found))
        return Result(found, fields, "\n".join(_lines(found, where)), files)

    def _measured(self, run: RequestRun) -> Trajectory:
        from engine.training.measuring import target_at, trajectory
        from engine.training.series import series_of

        text = read_text(self.text, MOST_BYTES) if self.text else ""
        plan = TrajectoryPlan(
            self.quantities, self.texts, self.ablation_texts, self.ablation_snapshots, self.early or 0, self.late or 0,
            self.around, text, Path(self.text).name if self.text else "",
        )  # fmt: skip
        series = series_of(self.series, self.step_tokens)
        return run.value(trajectory(target_at(run.session, series), series, plan))

    def _record(self) -> Trajectory:
        """The trajectory in a record; HeadroomError: it cannot be read."""
        try:
            return decode(read_regular(named(self.series, "SERIES")))
        except OSError as error:
            raise HeadroomError(f"cannot read {self.series} ({error.strerror}); give another record") from error


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
        for axis, name in enumerate(("layer", "head"), 1):
            columns[name] += places[:, axis].tolist() if values.ndim == 3 else [None] * len(places)
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


def _lines(found: Trajectory, where: Any) -> list[str]:
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
    return lines
