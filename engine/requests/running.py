"""How a request is run from Python (its store, opened and closed again, its progress, and without measuring), and its
`Result`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from html import escape
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar
from warnings import catch_warnings, simplefilter

from cache import open_store
from engine.errors import UsageError
from engine.measurement import Measurement
from engine.models.loading import Loaded
from engine.models.session import Session, Target
from engine.placement.placement import PLACE, places
from engine.progress import Progress, TimeLeft, in_time
from engine.receipts import is_readable
from engine.views.pictures import file_spec
from engine.views.view import View, as_text

if TYPE_CHECKING:
    import pandas as pd

    from engine.distributed.driver import Workers

T = TypeVar("T")

Report = Callable[[int, int, str, float | None], None]  # done, total, message, seconds left


@dataclass(frozen=True)
class Result:
    """What a request gives.

    `value`: the engine's own value
    `fields`: the object that `--json` prints
    `view`: how it is presented: on the command line, on screens, in notebooks and files
    `files`: what makes the content of each file that `run` writes, by path
    `agrees`: whether the exit code of the command is 0
    `failure`: why nothing could be measured; "" where something could
    `report_folder`: the folder that a report on `value`, a paper study, is drawn in
    `table`: makes the table of `frame`, if the view has none
    `receipts`: how each stored record was measured that the result was read from: model, versions, machine, time
    `taken`: how long it took, or that it was stored, as a line
    """

    value: Any
    fields: Mapping[str, Any]
    view: View
    files: Mapping[str, Callable[[], bytes]] = field(default_factory=dict)
    agrees: bool = True
    failure: str = ""
    report_folder: str = ""
    receipts: tuple[Mapping[str, Any], ...] = ()
    table: Callable[[], pd.DataFrame] | None = None
    taken: str = ""

    @property
    def text(self) -> str:
        """Its view as lines."""
        return as_text(self.view)

    def __str__(self) -> str:
        """The lines that the command line prints: its view, and how long it took."""
        return "\n".join([self.text, *([self.taken] if self.taken else [])])

    def frame(self) -> pd.DataFrame:
        """The result as a table: its list of rows, such as one per head or task, or one row of its single values."""
        import pandas as pd

        if self.table is not None:
            return self.table()
        if with_rows := [part for part in self.view.parts if part.rows]:
            return with_rows[0].frame()
        for rows in self.fields.values():
            if isinstance(rows, list) and rows and all(isinstance(row, Mapping) for row in rows):
                return pd.DataFrame(rows)
        return pd.DataFrame([{name: each for name, each in self.fields.items() if not isinstance(each, Mapping)}])

    def chart(self) -> Any:
        """The result as an Altair chart, such as a map of scores or a curve of accuracies."""
        for part in self.view.parts:
            if (drawn := part.picture()) is not None:
                import altair as alt

                return alt.Chart.from_dict(file_spec(drawn, part.title, part.caption))
        raise UsageError("this result has no chart; .frame() gives its table")

    def _repr_html_(self) -> str:
        """What a notebook shows: the lines, and the table below them."""
        return f"<pre>{escape(str(self))}</pre>{self.frame().to_html(index=False, max_rows=20)}"


class NotStored(Exception):
    """A record is missing, and nothing is to be measured. `part`: the measurement that lacks it, if it is known."""

    def __init__(self, part: Measurement[Any] | None = None) -> None:
        super().__init__("not stored")
        self.part = part


class StoredOnly(Session):
    """A session that reads what is stored, and loads no model."""

    def loaded(self, target: Target, done: int = 0, total: int = 1) -> Generator[Progress[Any], None, Loaded]:
        """Raises NotStored."""
        raise NotStored


@dataclass
class RequestRun:
    """One run of a request: where it reads and measures, to whom it reports, and whether all was stored so far."""

    session: Session
    report: Report
    workers: Workers | None = None
    cached: bool = True
    started_s: float = field(default_factory=time.monotonic)

    def value(self, measurement: Measurement[T]) -> T:
        """The value of a measurement; missing records are measured, by the workers of Ray where there are any."""
        if self.workers is not None and self.workers.measure(measurement, self.session, self.report):
            self.cached = False
        return self.last(measurement.run(self.session))

    def last(self, steps: Iterator[Progress[T]]) -> T:
        """The last value of these steps; progress is reported where something is measured."""
        time_left, value, cached = TimeLeft(time.monotonic()), None, True
        for step in steps:
            value, cached = step.value, step.cached
            time_left.told(now_s := time.monotonic(), step)
            if not cached:
                self.report(step.done, step.total, step.message, time_left.left_s(now_s))
        assert value is not None
        self.cached &= cached
        return value

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started_s


class StoredRun(RequestRun):
    """A run that measures nothing."""

    def value(self, measurement: Measurement[T]) -> T:
        """The value of a measurement; NotStored if a record is missing."""
        known = measurement.stored_part(self.session)
        if known.is_complete and known.value is not None:
            return known.value
        raise NotStored(measurement)


class ProgressBar:
    """Reports progress as a bar of tqdm: in a notebook its widget, in a terminal a line on standard error."""

    def __init__(self) -> None:
        self._bar: Any = None

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.close()

    def __call__(self, done: int, total: int, message: str, left_s: float | None) -> None:
        """Shows how far a run is."""
        if self._bar is None:
            from tqdm import TqdmWarning

            with catch_warnings():
                simplefilter("ignore", TqdmWarning)  # a notebook without ipywidgets has a bar of text
                from tqdm.auto import tqdm

            bar_format = "{desc} {bar} {n_fmt}/{total_fmt}{postfix}"
            # disable=None: only in a terminal, or a notebook
            self._bar = tqdm(total=total, disable=None, leave=False, bar_format=bar_format)
        bar, self._bar.total, self._bar.n = self._bar, total, done
        bar.set_description_str(message, refresh=False)
        bar.set_postfix_str("" if left_s is None else f"about {in_time(left_s)} left", refresh=False)
        bar.refresh()


def silent(done: int, total: int, message: str, left_s: float | None) -> None:
    """Reports nothing."""


@contextmanager
def opened(request: Any) -> Iterator[Session]:
    """While open, a session of the store that a request names."""
    apply_settings(request)
    with closing(open_store(request.cache, is_readable)) as store:
        yield Session(store)


def apply_settings(request: Any) -> None:
    """Sets for this process where layers are placed and how many threads compute, as far as a request says so."""
    if (threads := getattr(request, "threads", None)) is not None:
        os.environ["OMP_NUM_THREADS"] = str(threads)  # read when torch is imported, which has not happened yet
    if place := getattr(request, "place", None):
        places(place)  # rejects an invalid placement before anything is read
        os.environ[PLACE] = place
