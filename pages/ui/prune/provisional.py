"""The provisional order: it prunes as long as the order of choice is missing and takes long to measure.

A figure under it names it, and stays until the user asks for the order of choice: by measuring it, or by a button if it
was measured elsewhere. For an order that nobody clicked, nothing is measured that takes longer than the budget and the
answers.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import streamlit as st

from engine.importance.rankings_of import OF_ONE_TASK, RANKED, Evidence, Orders, Ranking, orders_of
from engine.measurement import Measurement
from engine.models.masks import Mask
from engine.progress import in_time
from pages.ui.page.defaults import RANKING_QUESTIONS
from pages.ui.page.marks import mark
from pages.ui.page.runtime import session, store
from pages.ui.page.streamlit_internals import DeltaGenerator
from pages.ui.page.tables import plain
from pages.ui.page.widget_writes import write
from pages.ui.page.work import ASKED, Work
from pages.ui.prune.experiment import Experiment
from pages.ui.prune.jobs import CHOICE, forecast, forecast_seconds, is_short

HELD = "prune provisional"  # in the session: by the order of choice, the one used in its place
WANTED = "prune order asked for"  # in the session: the orders of choice whose measurement was clicked
FEW_ROWS, FEW_QUESTIONS = 8, 25
# The first that is quick is used. Without 20% of its heads, SmolLM2-135M answers 88% of
# pairs_plural by gradients on a few rows; nothing by weights, by activations on as many rows, or by prefix matching.
QUICK = {
    f"gradient on {FEW_ROWS} rows": Ranking("gradient", n_questions=FEW_ROWS),
    "weight magnitude": Ranking("weight", n_questions=RANKING_QUESTIONS),
}
LAYERS_BY = "last-first"  # the order of layers that needs no measurement
FASTER_HELP = "Each shows its time here until the figure is complete."
USE_HELP = "Prunes by the order that you chose, which is measured now."
MEASURE_HELP = "In the background. The figure then changes to the new order."


@dataclass(frozen=True)
class Provisional:
    """An experiment under a provisional order (`shown`), and the `wanted` one under the order of choice."""

    wanted: Experiment
    shown: Experiment

    @property
    def order(self) -> str:
        """Returns the name of the order of heads and FFNs in use, or "" if it is the chosen one."""
        chosen, instead = _scores(self.wanted.pruning.ranking), _scores(self.shown.pruning.ranking)
        return next((name for name, of in QUICK.items() if _scores(of) == instead != chosen), "")

    @property
    def words(self) -> str:
        """Returns text such as "Ordered by weight magnitude, provisional"."""
        chosen, instead = self.wanted.pruning.ranking, self.shown.pruning.ranking
        parts = [f"ordered by {self.order}"] if self.order else []
        parts += ["layers by depth"] if instead.layers_by != chosen.layers_by else []
        words = ", ".join([*parts, "provisional"])
        return words[:1].upper() + words[1:]


def held_back(x: Experiment) -> Provisional | None:
    """Returns the provisional experiment shown in place of `x`: if its order is missing and takes long, or was missing
    and has not been asked for since; else None."""
    held, key, ranking = st.session_state.setdefault(HELD, {}), _key(x), x.pruning.ranking
    if not x.pruning.by_level and key not in held:
        return None
    missing, instead = x.pruning.missing(x.known(session())), held.get(key)
    if not missing and key in st.session_state.get(WANTED, ()):
        held.pop(key, None)
        return None
    if missing and x.train is not None and takes_long(x):
        instead = instead or ranking
        if {*missing} - {"layers"} and _scores(instead) == _scores(ranking):
            each = [_with_order(instead, quick) for quick in QUICK.values()]
            instead = next((quick for quick in each if _is_quick(_under(x, quick))), each[-1])
        if "layers" in missing:
            instead = replace(instead, layers_by=LAYERS_BY)
        held[key] = instead
    return None if instead is None else Provisional(x, _under(x, instead))


def awaits_rows(x: Experiment, known: Evidence) -> bool:
    """Returns whether the order of `x` is missing, and nothing is known of its cost before the train questions are."""
    return x.train is None and not x.target.spec.is_demo and bool(x.pruning.missing(known))


def order_seconds(x: Experiment) -> float:
    """Returns the forecast seconds of what the levels of `x` need of its order."""
    return forecast_seconds(_order(x))


def takes_long(x: Experiment) -> bool:
    """Returns whether the missing order of `x` is to be measured only at a click."""
    known_s = _order(x).seconds(session())
    return not is_short(x.target, known_s if x.target.spec.is_demo else order_seconds(x))


def _is_quick(x: Experiment) -> bool:
    """Returns whether the missing order of `x` is measured without a click in place of a longer one."""
    return not takes_long(x) or order_seconds(x) <= x.workload(None).seconds_by_size(store(), x.target)


def order_work(x: Experiment) -> Work[Evidence]:
    """Returns the work that measures what the levels of `x` need of its order."""
    missing = x.pruning.missing(Evidence())
    title = f"Ranking {' and '.join(dict.fromkeys(RANKED[name] for name in missing))}"
    return Work(CHOICE, title, x.evidence(missing, x.pruning.n_layers_dropped), ASKED, takes=forecast(x))


def draw_order_in_use(where: DeltaGenerator, of: Provisional) -> None:
    """Draws the field of the order with the one in use, in place of the field with the chosen one (by the stylesheet).
    Another choice is written into that."""
    if not of.order:
        return
    chosen = of.wanted.pruning.ranking.name
    key, options = f"prune_order_in_use {chosen}", [of.order, *(each for each in OF_ONE_TASK if each != chosen)]
    help = f"Until {chosen} is measured: the button under the figure does that."
    where.selectbox("Provisional order", options, key=key, help=help, on_change=partial(_choose, key, of.order))


def _choose(key: str, used: str) -> None:
    if st.session_state[key] != used:
        write("prune_order", st.session_state[key])


def draw_provisional(of: Provisional, mask: Mask | None) -> None:
    """Draws which order is used, what that of choice costs, and what is faster; `mask`: of the figure."""
    x, name = of.wanted, of.wanted.pruning.ranking.name
    mark("order", "provisional", of=of.shown.pruning.ranking.name, wanted=name)
    work = order_work(x)
    if not x.pruning.missing(x.known(session())):
        _draw_choice(f"Use {name} order", "use order", partial(_use, _key(x), None), type="primary", help=USE_HELP)
        return
    if work.line():
        return
    takes_s = order_seconds(x)
    with st.container(horizontal=True, gap="small"):
        look: dict[str, Any] = {"type": "primary", "icon": ":material/timer:", "help": MEASURE_HELP}
        _draw_choice(
            f"Measure {plain(name)} order, {_about(takes_s)}", f"offer {CHOICE}", partial(_measure, of), **look
        )
        with st.popover("Faster", type="tertiary", help=FASTER_HELP):
            _draw_faster(of, mask)


def _draw_faster(of: Provisional, mask: Mask | None) -> None:
    x = of.shown
    answers_s = x.workload(mask).seconds_by_size(store(), x.target)
    for name, ranking in QUICK.items():
        other = _under(of.wanted, _with_order(x.pruning.ranking, ranking))
        if other.pruning.ranking != x.pruning.ranking:
            takes_s = order_seconds(other) + answers_s
            click = partial(_use, _key(of.wanted), other.pruning.ranking)
            _draw_choice(f"Order by {name}, {_about(takes_s)}", f"order by {name}", click)
    if x.questions.n > FEW_QUESTIONS:
        takes_s = answers_s * FEW_QUESTIONS / x.questions.n
        click = partial(write, "prune_limit", FEW_QUESTIONS)
        _draw_choice(f"Ask {FEW_QUESTIONS} questions, {_about(takes_s)}", "ask fewer", click)
    if x.task.shots:
        takes_s = 2 * answers_s * _own_share(x)  # the full model too
        click = partial(write, "prune_shots", 0)
        _draw_choice(f"Use 0 examples, {_about(takes_s)}", "use 0 examples", click)


def _draw_choice(label: str, key: str, click: Callable[[], None], **look: Any) -> None:
    """Draws a button that sets controls of the page, which this part does not run."""
    if st.button(label, key=key, on_click=click, **look):
        st.rerun()


def _own_share(x: Experiment) -> float:
    """Returns about what share of the prompts is left without the examples."""
    asked = x.questions.at(x.questions.order[:32])
    texts = [question.contexts[question.golds[0]] for question in asked]
    own = sum(len(text.rstrip().split("\n\n")[-1]) for text in texts)
    return own / max(1, sum(map(len, texts)))


def _order(x: Experiment) -> Measurement[Orders]:
    return orders_of(x.target, x.pruning, x.data_dir, x.train)


def _about(seconds: float) -> str:
    return f"about {in_time(seconds)} here" if seconds >= 1 else "at once"


def _under(x: Experiment, ranking: Ranking) -> Experiment:
    return replace(x, pruning=replace(x.pruning, ranking=ranking))


def _scores(of: Ranking) -> tuple[str, int | None]:
    return of.name, of.n_questions


def _with_order(of: Ranking, order: Ranking) -> Ranking:
    return replace(of, name=order.name, n_questions=order.n_questions)


def _key(x: Experiment) -> str:
    ranking = x.pruning.ranking
    return f"{x.base_key} {ranking.name} {ranking.layers_by} {x.pruning.ffns_permille > 0}"  # each FFN may cost a pass


def _measure(of: Provisional) -> None:
    st.session_state.setdefault(WANTED, set()).add(_key(of.wanted))
    order_work(of.wanted).restart()


def _use(key: str, ranking: Ranking | None) -> None:
    """Uses an order in place of that of choice, or that of choice (None)."""
    held = st.session_state.setdefault(HELD, {})
    if ranking is None:
        held.pop(key, None)
    else:
        held[key] = ranking
