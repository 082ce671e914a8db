"""Saved views are kept in order; a slide shows the same numbers."""

import json
import re

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from cache import Store
from pages.ui.figures.drawing import TYPE
from pages.ui.page import presentation, runtime
from pages.ui.page import saved_views as views
from pages.ui.page.saved_views import SavedView
from pages.ui.page.tables import plain
from tests.conftest import HANG_S
from tests.pages.conftest import button, charts_of, components, figure

THREE = tuple(SavedView(name, f"/?heads={name}0") for name in "123")


def test_views_are_kept_in_order(tmp_path):
    store = Store(tmp_path)
    assert views.saved(store) == () and views.save(THREE, store) and views.saved(store) == THREE
    for other in (b"{}", b"[" * 150_000, b'[{"name": 3, "link": "/"}]'):
        store.put(views.KEY, other)
        assert views.saved(store) == ()
    store.close()


def test_a_link_holds_no_more_than_the_controls():
    assert views.link_of("", {"heads": ["30"], "present": ["1"], "empty": [""]}) == "/?heads=30"
    assert views.link_of("/heads", {"heads_tasks": ["a", "b"]}) == "/heads?heads_tasks=a&heads_tasks=b"


def test_a_name_is_never_markup():
    assert plain("![x](https://example.org/a.png)") == r"\!\[x\]\(https://example.org/a.png\)"


def test_a_slide_shows_the_same_figure_in_larger_type(open_app):
    page, slide = open_app(heads="40"), open_app(heads="40", present="1")
    assert figure(slide) == figure(page)
    [stage] = [data for data in components(slide) if "presenting" in data]
    assert stage["presenting"] and stage["views"] == []
    for shown, on_page in zip(charts_of(slide), charts_of(page), strict=True):
        assert shown["config"] == on_page["config"] | TYPE and shown["height"] > on_page["height"]
        bare = [re.sub(r'"fontSize": [\d.]+', "", json.dumps(each | {"config": 0, "height": 0}, sort_keys=True))
                for each in (shown, on_page)]  # fmt: skip
        assert bare[0] == bare[1], "only the type is larger"
    assert slide.code[0].value == page.code[0].value, "it is there, and not to be seen"


def headings_of(at):
    """The headings of the page as HTML."""
    return [each.proto.body for each in at.get("html") if "<h1>" in each.proto.body]


@pytest.mark.parametrize(("named", "title"), [("All heads <b>", "All heads &lt;b&gt;"), ("a\n", "Prune")])
def test_a_slide_has_the_name_of_its_view_as_its_title(open_app, named, title):
    [heading] = headings_of(open_app(present=named))
    assert f"<h1>{title}</h1>" in heading and ("heading named" in heading) == (title != "Prune")


@pytest.fixture
def stage(monkeypatch, tmp_path):
    """The views and the buttons next to them, the popover open."""
    monkeypatch.setenv("HEADROOM_CACHE", str(tmp_path / "results"))
    st.cache_resource.clear()

    def screen():
        from pages.ui.page.presentation import draw_stage

        draw_stage("Prune")

    at = AppTest.from_function(screen, default_timeout=HANG_S)
    at.session_state["views"] = True
    yield at
    runtime.store().close()
    st.cache_resource.clear()


def test_a_view_without_a_typed_name_is_saved_under_the_proposed_one(stage):
    for model in ("demo", "demo", "/models/gpt2"):
        stage.session_state["model"] = stage.query_params["model"] = model
        button(stage.run(), "Save").click().run()
    assert not stage.error
    names = [view.name for view in views.saved(runtime.store())]
    assert names == ["Prune", "Prune, gpt2"], "the same page once"
    assert stage.text_input[0].placeholder == "Prune, gpt2 2"
    stage.session_state[presentation.VIEW_NAME] = "Heads", "Heads: demo_pet"
    assert stage.run().text_input[0].placeholder == "Prune, gpt2 2", "the screen drawn before"


def test_a_proposed_name_is_short_enough_to_save():
    name = views.free_name("Text: " + 80 * "a" + "\n", "/models/gpt2", [])
    assert len(name) <= views.MAX_NAME and name.isprintable()
    assert views.free_name("Text: " + 80 * "a" + "\n", "/models/gpt2", [SavedView(name, "/")]) == f"{name} 2"


def test_a_view_is_of_the_screen_that_the_address_names_and_its_saving_is_confirmed(stage, monkeypatch):
    monkeypatch.setattr(presentation, "browser_address", lambda: "http://127.0.0.1:8501/heads")
    stage.run().text_input[0].set_value("a")
    told = button(stage, "Save").click().root.get_widget_states()
    stage._run(told)
    assert [each.value for each in stage.toast] == ["Saved as slide 1: a"]
    [name] = [widget for widget in told.widgets if widget.string_value == "a"]
    name.string_value = "b"
    stage._run(told)  # another name, with the button that the browser still shows: the server has replaced it
    assert [each.value for each in stage.toast] == ["Saved as slide 2: b"]
    stage.run()
    assert not stage.toast
    assert views.saved(runtime.store()) == (SavedView("a", "/heads"), SavedView("b", "/heads"))


def test_what_a_browser_tells_twice_is_done_once(stage):
    """Until it has heard of a run, a browser tells the same name again, with the run of a timer too."""
    at = stage.run()

    def told_twice(control):
        states = control.root.get_widget_states()
        at._run(states), at._run(states)
        assert not at.exception and not at.error, "a name and a click are taken"
        return "".join(view.name for view in views.saved(runtime.store()))

    for listed in ("4", "44"):  # the second time it is meant so
        at.text_input[0].set_value("4")
        assert told_twice(button(at, "Save").click()) == listed


def test_a_deleted_view_is_gone_and_one_that_another_tab_replaced_stays(stage):
    views.save(THREE, runtime.store())
    stage.run()
    views.save((THREE[0], *THREE), runtime.store())  # by another tab
    stage.button(key="delete view 1").click().run()
    assert views.saved(runtime.store()) == (THREE[0], *THREE)
    stage.button(key="delete view 1").click().run()
    assert views.saved(runtime.store()) == THREE
