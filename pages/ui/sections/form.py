"""A request as a form: a control for each of its fields, as the field says, and the request that they make."""

from collections.abc import Collection, Mapping
from dataclasses import MISSING, Field
from functools import partial
from typing import Any

import streamlit as st

from engine.demo import passages
from engine.errors import UsageError
from engine.models.masks import parse_edits
from engine.models.session import Target
from engine.requests import Request
from engine.requests.base import OfModel, OnRay, WithData, gives
from engine.requests.fields import Option, options
from pages.ui.controls.controls import one_listed
from pages.ui.controls.first_views import first_tasks
from pages.ui.controls.many_tasks import local_tasks, several
from pages.ui.controls.study import Study
from pages.ui.downloads.origin import of_model
from pages.ui.page.address import flag, number_field, put_right
from pages.ui.page.defaults import LEVELS
from pages.ui.page.runtime import show_error
from pages.ui.page.streamlit_internals import DeltaGenerator
from pages.ui.page.widget_writes import hold

# of the bar, of the command line alone, or of workers
HIDDEN = {each for kind in (OfModel, OnRay, WithData) for each in options(kind)}
LABELS = {
    "task": "Task",
    "limit": "Questions",
    "shots": "Examples (shots)",
    "mask": "Prune these",
    "prune_heads": "Heads pruned, %",
    "prune_ffns": "FFNs pruned, %",
    "prune_layers": "Layers dropped, %",
}
MASKS = ("mask", "base_mask", "second_mask")  # of the model, unless there is a second one
MOST_FIRST, IN_A_LINE, LAST = 6, 3, 3
NONE, DEFAULT, ON, OFF = "none", "default", "on", "off"
MORE = "More settings"
MEASUREMENT = "bench_measurement"  # the control that chooses a class of requests


def label_of(of: type[Request]) -> str:
    """Returns the name of a measurement on the bench."""
    return f"{of.group} · {of.command}: {gives(of)}"


def draw_form(of: type[Request], asks: Study, target: Target | None) -> Request | None:
    """Draws a form for requests of this class; returns the request, or None if it cannot be meant, which is said at the
    field (below the form, of one that is folded). `target`: the model, for requests of one."""
    fields = {name: each for name, each in options(of).items() if name not in HIDDEN and not each[1].is_output}
    rank = {name: _rank(of, name, *each) for name, each in fields.items()}
    ranked = sorted(fields, key=lambda name: rank[name])
    first = [name for name in ranked if rank[name] < LAST][:MOST_FIRST] or ranked[:MOST_FIRST]
    places: dict[str, DeltaGenerator] = {}
    values = _draw_fields(of, asks, {name: fields[name] for name in first}, places)
    if rest := {name: each for name, each in fields.items() if name not in first}:
        with st.expander(MORE):
            values |= _draw_fields(of, asks, rest, {})
    arguments: dict[str, Any] = values | {
        name: f"{of.command}{option.endings[0]}"
        for name, (_, option) in options(of).items()
        if option.is_output and option.is_required
    }
    if issubclass(of, OfModel) and target is not None:
        arguments |= of_model(target)
    if issubclass(of, WithData):
        arguments["task_data"] = asks.data_dir
    try:
        request = of(**arguments)
    except UsageError as error:
        at, line = next((name for name in places if f": {name} is " in str(error)), ""), str(error)
    else:
        at, line = _wrong_mask(arguments, target)
        if not line:
            return request
    with places.get(at) or st.container():
        show_error(line)
    return None


def _wrong_mask(given: Mapping[str, Any], target: Target | None) -> tuple[str, str]:
    """The first field whose mask does not fit the model, and why; ("", ""): none."""
    if target is None or given.get("other_model"):
        return "", ""
    for name in MASKS:
        try:
            parse_edits(given.get(name) or "", target.shape)
        except UsageError as error:
            return name, str(error)
    return "", ""


def _rank(of: type[Request], name: str, field: Field[Any], option: Option) -> int:
    """How late a field comes: what has to be given, what is named in `LABELS`, what this class alone can choose."""
    if field.default is MISSING or option.example:
        return 0
    is_own = name in vars(of).get("__annotations__", {})
    return 1 if name in LABELS or option.what else 2 if is_own and option.kind == "choice" else LAST


def _key(of: type[Request], name: str) -> str:
    return f"bench_{of.command}_{name}"


def _draw_fields(
    of: type[Request], asks: Study, shown: Mapping[str, tuple[Field[Any], Option]], places: dict[str, DeltaGenerator]
) -> dict[str, Any]:
    """Draws the controls of some fields, three in a line and prompts in lines of their own; returns their values, and
    notes their places."""
    values: dict[str, Any] = {}
    line: list[DeltaGenerator] = []
    for name, (field, option) in shown.items():
        if option.what == "prompt":
            places[name] = st.container()
        else:
            line = line or list(st.columns(IN_A_LINE, vertical_alignment="bottom"))
            places[name] = line.pop(0).container()
        values[name] = _draw_field(places[name], _key(of, name), name, field, option, asks)
    return values


def _of_study(asks: Study) -> dict[str, Any]:
    """Returns the fields that begin with the study's values."""
    levels = {f"prune_{axis}": asks.percent(axis) for axis in LEVELS}
    return {"task": asks.task.name, "shots": asks.task.shots, "mask": asks.typed, **levels}


def _draw_field(where: DeltaGenerator, key: str, name: str, field: Field[Any], option: Option, asks: Study) -> Any:
    """Draws the control of a field; returns its value."""
    label = LABELS.get(name) or name.replace("_", " ").capitalize()
    default = None if field.default is MISSING else field.default
    studied = _of_study(asks).get(name)
    if option.kind == "number":
        step = 1 if option.of is int else 0.1
        low, high = (option.of(end) for end in option.ends)
        value = default if studied is None else min(max(option.of(studied), low), high)
        return number_field(
            where, label, (low, high), key, value=value, step=step, placeholder=DEFAULT, help=option.help
        )
    if option.kind == "choice":
        return _one(where, label, list(option.names), key, default, option.help)
    if option.kind == "switch":
        return {ON: True, OFF: False}.get(one_listed(where, label, [DEFAULT, ON, OFF], key, help=option.help))
    if option.kind == "flag":
        put_right(key, label, flag)
        return where.toggle(label, key=key, bind="query-params", help=option.help)
    if option.what == "task":
        every = local_tasks(asks.data_dir)
        begin = (studied if studied in every else every[0]) if field.default is MISSING or default else None
        return _one(where, label, every, key, begin, option.help) or default
    if option.what == "tasks":
        every = local_tasks(asks.data_dir)
        first = first_tasks(every, asks.spec.is_demo, int(option.example or 0))
        box = partial(where.multiselect, label, every, filter_mode="contains", placeholder=DEFAULT, help=option.help)
        return ",".join(several(key, every, box, first)) or default
    if option.what == "passage":
        return _one(where, label, [each.title for each in passages(long=True)], key, option.example, option.help)
    hold(key)
    draw = partial(where.text_area, height=80) if option.what == "prompt" else where.text_input
    begin = str(studied or "") or option.example or ("" if default is None else option.write(default))
    empty = NONE if default == "" else DEFAULT
    text = str(draw(label, begin, key=key, bind="query-params", placeholder=empty, help=option.help) or "")
    return text if text.strip() else default


def _one(
    where: DeltaGenerator, label: str, names: Collection[str], key: str, begin: str | None, help: str
) -> str | None:
    """Draws a list of names that begins with one of them, or with none."""
    listed = [*names] if begin is not None else [NONE, *names]
    index = listed.index(begin) if begin in listed else 0
    found = one_listed(where, label, listed, key, index=index, help=help)
    return None if found == NONE and begin is None else found
