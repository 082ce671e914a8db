"""Routes requests to screens: page config, navigation, sidebar, and the bar of the study."""

import streamlit as st

from pages.ui.page.screens import draw_heading, navigation, screen_of
from pages.ui.page.streamlit_internals import end_back_or_forward, resume_back_or_forward


def draw_page(page: st.Page) -> None:
    """Draws the open page below its heading. In the first run of a server these imports take a second, in which the
    heading is on its way."""
    from pages.ui.controls.sidebar import draw_sidebar
    from pages.ui.controls.study_bar import draw_bar
    from pages.ui.page.address import as_written, draw_notes
    from pages.ui.page.runtime import begin_run, ended_early, faults_shown

    begin_run()
    # A page opened directly on a fresh server runs without this file; require_frame sends it here and names the page.
    if goto := st.session_state.pop("goto", None):
        st.switch_page(goto, query_params=as_written())
    notes_at = st.container()
    try:
        with faults_shown(), ended_early():
            draw_sidebar(screen_of(page.title).file == "training")
            draw_bar(screen_of(page.title).bar)
            from pages.ui.downloads.present import draw_present

            draw_present()
            page.run()
    finally:
        draw_notes(notes_at)


st.set_page_config(page_icon="✂️", layout="wide")
resume_back_or_forward()
st.session_state.framed = True
shown = navigation()
if "goto" not in st.session_state:
    draw_heading(shown)
draw_page(shown)
end_back_or_forward()  # not reached by a run that is replaced
