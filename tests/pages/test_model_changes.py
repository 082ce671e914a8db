"""What follows the model when another one is chosen in the sidebar: first tasks and pruning, not what the user set."""

from functools import partial

import pytest

OPT, OTHER_OPT = "facebook/opt-125m", "facebook/opt-350m"  # neither needs to be on this computer


def controls():
    import streamlit as st

    from engine.questions.requests import TaskSpec
    from pages.ui.controls.controls import one_listed
    from pages.ui.controls.many_tasks import choose_tasks
    from pages.ui.controls.sidebar import draw_sidebar
    from pages.ui.controls.study import apply_settings, chosen
    from pages.ui.controls.task_box import task_box
    from pages.ui.page.address import number_field
    from pages.ui.page.defaults import AXES
    from pages.ui.page.widget_writes import hold

    st.set_page_config()
    draw_sidebar(compares=False)
    apply_settings()
    if st.query_params.get("screen") == "another":
        st.stop()
    is_demo, here = chosen().spec.is_demo, st.container()
    names = ["demo_cloze", "demo_copy", "demo_outfit"] if is_demo else ["pairs_plural", "pairs_past", "demo_outfit"]
    choose_tasks(here, chosen(), TaskSpec("demo_copy" if is_demo else "pairs_plural", 5))
    task_box(here, "Task", names, "task")
    one_listed(here, "Task", names, "bench_evaluate_task", index=1)
    for axis in AXES:
        number_field(here, axis, (0, 100), axis, value=0)
    hold("mask")
    here.text_input("Mask", key="mask", bind="query-params")


@pytest.fixture
def drawn(open_part):
    return partial(open_part, controls)


def ran(at):
    at.run()
    assert not at.exception, at.exception
    return at


def change_model(at, name):
    at.selectbox(key="model").set_value(name)
    return ran(at)


def tasks(at):
    return at.multiselect[0].value, at.selectbox(key="task").value, at.selectbox(key="bench_evaluate_task").value


def test_first_tasks_follow_the_model_even_while_another_screen_is_open(drawn):
    at = drawn()
    of_demo = tasks(at)
    assert of_demo[1:] == ("demo_cloze", "demo_copy") and all(name.startswith("demo_") for name in of_demo[0])
    at.query_params["screen"] = "another"
    change_model(ran(at), OPT)
    del at.query_params["screen"]
    pairs, *others = tasks(ran(at))
    assert (
        len(pairs) == 6
        and all(name.startswith("pairs_") for name in pairs)
        and others == ["pairs_plural", "pairs_past"]
    )
    assert tasks(change_model(at, "demo")) == of_demo


def test_tasks_that_the_user_or_an_address_chose_stay(drawn):
    at = drawn(task="demo_copy", bench_evaluate_task="demo_outfit")
    at.multiselect[0].set_value(["demo_copy"])
    assert tasks(change_model(ran(at), OPT)) == (["demo_copy"], "demo_copy", "demo_outfit")
    linked = drawn(model=OPT, heads_tasks="demo_copy", task="demo_cloze")
    assert tasks(linked)[:2] == (["demo_copy"], "demo_cloze"), "of another model, in a link"


def test_another_kind_of_model_opens_unpruned_unless_the_address_prunes(drawn):
    at = drawn(model=OPT, heads="90", mask="F0")
    assert (at.number_input(key="heads").value, at.text_input(key="mask").value) == (90, "F0")
    assert change_model(at, OTHER_OPT).number_input(key="heads").value == 90, "of the same kind"
    change_model(at, "demo")
    assert {each.value for each in at.number_input} == {0} and not any(each.value for each in at.text_input[:6])
