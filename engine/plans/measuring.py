"""The cells of a plan measured by one worker, each as the same sweep would without a plan: through the same functions,
so under the same keys.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from engine.errors import HeadroomError
from engine.kernels.kernel_choice import PINNED, pinned_as
from engine.models.session import Session
from engine.plans.cells import Cell, Group, Plan
from engine.plans.claims import Claims
from engine.plans.worker import Outcome, Tally, share, trouble_teller, work
from engine.progress import Progress
from engine.studies.surveys import StudySettings, in_words, survey
from engine.studies.sweeps import sweep

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Here:
    """What lies elsewhere on this machine than where the plan was written: the model, the folder of task data; None: it
    is where the plan says."""

    model: str | None = None
    data_dir: str | None = None

    def setting(self, group: Group) -> StudySettings:
        """The setting of a group, as it is here."""
        spec = group.setting.spec if self.model is None else replace(group.setting.spec, model=self.model)
        return replace(group.setting, spec=spec, data_dir=self.data_dir or group.setting.data_dir)


def measure_all(
    session: Session, plan: Plan, claims: Claims, here: Here, hear: Callable[[int, str], None], say: Tell
) -> Tally:
    """Measures every cell that no other worker takes, and shares the results. `hear` gets the number of finished cells
    and what this worker is at; `say` what keeps results from being stored or shared."""
    tell = trouble_teller(session.store, say)

    def measure(cell: Cell, n_settled: int) -> Outcome:
        hear(n_settled, str(cell))
        found = measured(session, plan, cell, here, partial(hear, n_settled))
        tell()
        return found

    tell()
    tally = work(plan, claims, measure)
    hear(len(claims.settled), "sharing what was measured")
    share(session.store)
    tell()
    return tally


def measured(session: Session, plan: Plan, cell: Cell, here: Here, tell: Tell) -> Outcome:
    """What became of a cell; `tell` hears of each step. HeadroomError: this worker cannot measure it, another may."""
    group = plan.groups[cell.group]
    setting = here.setting(group)
    target = session.target(setting.spec, setting.bos)
    (setting.ranked if cell.scores else setting.judged)(
        cell.task, session.store
    )  # it raises where rows are missing here
    if cell.scores:
        cached, found = _last(survey(target, setting, [cell.task], cell.scores).run(session), tell)
        failed = found.failed.get(cell.task, "")
    else:
        cached, found = _last(sweep(target, setting, cell.points, group.pool).run(session), tell)
        reasons = dict.fromkeys([*found.failed.values(), f"{in_words(cell.task)}: what ranks it is not known"])
        failed = "" if len(found.rows) == len(set(cell.points)) else next(iter(reasons))
    if failed:
        for _ in session.loaded(target):  # a model that cannot be loaded here is not a fault of the task
            pass
    if not session.store.on_disk:
        session.store.close()  # tries once more
        if not session.store.on_disk:
            raise HeadroomError(f"{session.store.notice}: other workers would not find them; this one ends")
    return Outcome(cached, failed)


def other_fields(session: Session, plan: Plan, here: Here) -> Mapping[str, tuple[Any, Any]]:
    """The fields of keys in which this machine differs from where the plan was written, there and here: results of such
    a worker are found where these are the same. HeadroomError where a model is another one or is not here."""
    found = {}
    for group in plan.groups:
        setting = here.setting(group)
        mine = session.target(setting.spec, setting.bos).key(gradients=True)
        if group.key.get("model", mine["model"]) != mine["model"]:
            there = "is another model here than where the plan was written"
            raise HeadroomError(f"{setting.spec.model} {there}; say with --model where that one is")
        for name in [*group.key, *(mine.keys() - group.key.keys())]:
            if group.key.get(name) != mine.get(name):
                found[name] = group.key.get(name), mine.get(name)
    return found


def in_line(others: Mapping[str, tuple[Any, Any]]) -> str:
    """What `other_fields` found, in one line; "" where that is nothing."""
    if not others:
        return ""
    names = "; ".join(f"{name} {there} there, {mine} here" for name, (there, mine) in others.items())
    what = "different from the machine that wrote the plan; results are found where it is the same"
    ways = others.get("products", ({}, None))[0]
    pin = f"; {PINNED}={pinned_as(ways)} uses the same kernels as there" if "products" in others else ""
    return f"{what}: {names}{pin}"


def _last(steps: Iterator[Progress[Any]], tell: Tell) -> tuple[bool, Any]:
    """Whether all of it was stored already, and what a measurement ends with."""
    value, cached = None, True
    for step in steps:
        value, cached = step.value if step.value is not None else value, step.cached
        if not cached and step.message:
            tell(step.message)
    assert value is not None
    return cached, value
