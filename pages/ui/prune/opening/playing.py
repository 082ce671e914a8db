"""The opening story on the Prune screen: when it plays, and the three entrances that it leaves.

It plays in the browser, over the page, which is drawn and measured as usual below it. Any input stops it.
"""

from functools import partial
from pathlib import Path

import streamlit as st

from engine.models.loading import LoadSpec, known_ways
from engine.models.session import Target, target_of
from engine.questions.tasks import task_info
from pages.ui.controls.many_tasks import local_tasks
from pages.ui.controls.sidebar import Setup, identity_of
from pages.ui.page import first_visit
from pages.ui.page.address import as_written
from pages.ui.page.components import component_of
from pages.ui.page.marks import mark
from pages.ui.page.presentation import presenting
from pages.ui.page.runtime import session, store
from pages.ui.page.streamlit_internals import DeltaGenerator
from pages.ui.prune.opening.records import OpeningStory, component_data, read_story, story_task

HTML = """
<div class="opening" data-state="idle">
  <section class="stage" aria-label="Opening story">
    <header><b>Opening story</b><span class="title"></span></header>
    <div class="scene">
      <div class="picture">
        <figure class="map"><div class="grid"></div><figcaption></figcaption></figure>
        <div class="text"></div>
      </div>
      <div class="result">
        <div class="what"></div>
        <div class="value"></div>
        <div class="gauge"><i class="level"></i><i class="full"></i><i class="chance"></i></div>
        <div class="detail"></div>
      </div>
    </div>
    <p class="sentence"></p>
    <div class="time"><i></i></div>
  </section>
  <div class="entrances" role="group" aria-label="Where to begin">
    <button class="prune" type="button">Prune it yourself</button>
    <button class="learn" type="button">Watch one learn (1 min)</button>
    <button class="model" type="button">Open my model</button>
    <button class="again" type="button"></button>
    <button class="close" type="button" aria-label="Dismiss">×</button>
  </div>
  <div class="said unseen" role="status" aria-live="polite"></div>
</div>
"""
_COMPONENT = component_of("opening", HTML, Path(__file__).parent, "playing")
DEMO = LoadSpec("demo", "int8")
SHOWN = "opening shown"  # in the session: what the component plays, None if it does not
MISSING = "The opening story needs results of the demo model that are not on this computer."


def draw_opening(setup: Setup) -> None:
    """Draws the component of the story, if this session plays it: on a first visit until a control is changed, as that
    changes the address."""
    state = st.session_state
    is_asked = state.pop(first_visit.ASKED, False)
    if presenting():
        return
    if is_asked or SHOWN not in state:
        _decide(setup, is_asked)
    if state.get(first_visit.LEARNING):
        st.switch_page("pages/training.py", query_params={})
    data = state.get(SHOWN)
    if data is None or (not data["asked"] and as_written()):
        return
    with st.container(key="opening_place"):
        _COMPONENT(key="opening", data=data, on_learn_change=_learn)
    mark("opening", "shown", number=data["number"])


def draw_replay(where: DeltaGenerator) -> None:
    """Draws the button that plays the story again."""
    asks = partial(st.session_state.__setitem__, first_visit.ASKED, True)
    if where.button("Play the story", key="play_opening", icon=":material/replay:", type="tertiary", on_click=asks):
        st.rerun()


def _decide(setup: Setup, is_asked: bool) -> None:
    """Notes in the session whether the story plays, and what; nothing as long as the model's files are being read."""
    state = st.session_state
    if not is_asked and not _is_first_visit(setup):
        state[SHOWN] = None
        return
    if (target := _target()) is None:
        return
    story = _read(target, setup.data_dir)
    if story is None:
        state[SHOWN] = None
        if is_asked:
            st.toast(MISSING, icon=":material/info:")
        return
    first_visit.set_plays_next(False, store())
    state[first_visit.PLAYED] = state.get(first_visit.PLAYED, 0) + 1
    state[SHOWN] = component_data(story) | {"number": state[first_visit.PLAYED], "asked": is_asked}


def _is_first_visit(setup: Setup) -> bool:
    is_default = setup.spec == DEMO and setup.bos is None
    return is_default and first_visit.opened_plainly("Prune") and first_visit.plays_next(store())


def _target() -> Target | None:
    """Returns the demo model in its default precision; None until its files are read."""
    identity = identity_of(DEMO).value()
    ways = None if identity is None else known_ways(DEMO, identity, store())
    return None if identity is None or ways is None else target_of(DEMO, identity, None, ways)


def _read(target: Target, data_dir: str | None) -> OpeningStory | None:
    names = [name for name in local_tasks(data_dir) if name.startswith("demo_")]
    tasks = story_task({name: task_info(name).needs for name in names})
    return None if tasks is None else read_story(target, tasks, data_dir, session())


def _learn() -> None:
    st.session_state[first_visit.LEARNING] = True
