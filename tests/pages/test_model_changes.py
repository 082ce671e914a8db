"""What follows the model when another one is chosen: first tasks and pruning, not what the user set."""

from functools import partial

import pytest

OPT, OTHER_OPT = "facebook/opt-125m", "facebook/opt-350m"  # neither needs to be on this computer


def controls():
    import streamlit as st

    from pages.ui.controls.controls import one_listed
    from pages.ui.controls.many_tasks import choose_tasks
    from pages.ui.controls.study import study
    from pages.ui.controls.study_bar import draw_bar

    st.set_page_config()
    draw_bar("study")
    if st.query_params.get("screen") == "another":
        st.stop()
    is_demo, here = study().spec.is_demo, st.container()
    names = ["demo_cloze", "demo_copy", "demo_outfit"] if is_demo else ["pairs_plural", "pairs_past", "demo_outfit"]
    choose_tasks(here, study())
    one_listed(here, "Task", names, "bench_evaluate_task", index=1)


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
    assert of_demo[1:] == ("demo_outfit", "demo_copy") and all(name.startswith("demo_") for name in of_demo[0])
    at.query_params["screen"] = "another"
    change_model(ran(at), OPT)
    del at.query_params["screen"]
    pairs, *others = tasks(ran(at))
    assert all(name.startswith("pairs_") for name in pairs) and others == ["pairs_plural", "pairs_past"]
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
    assert {at.number_input(key=axis).value for axis in ("heads", "ffns", "layers")} == {0}
    assert not at.text_input(key="mask").value
