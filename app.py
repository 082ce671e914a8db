"""The router: page config, navigation, sidebar. Pages are in pages/, what they share in pages/ui/."""

import streamlit as st

from pages.ui.shared.runtime import begin_run, ended_early
from pages.ui.shared.sidebar import draw_sidebar

st.set_page_config(page_title="Headroom", page_icon="✂️", layout="wide")
begin_run()
st.session_state.framed = True
page = st.navigation(
    [
        st.Page(
            "pages/prune.py",
            title="Prune",
            icon=":material/content_cut:",
            default=True,
            help="Remove heads and FFNs and watch the accuracy",
        ),
        st.Page(
            "pages/importance.py",
            title="Importance",
            icon=":material/insights:",
            help="Which heads and FFNs matter, for every task",
        ),
        st.Page(
            "pages/induction.py",
            title="Induction",
            icon=":material/repeat:",
            help="Which heads match prefixes and copy",
        ),
        st.Page(
            "pages/passage.py",
            title="Passage",
            icon=":material/format_ink_highlighter:",
            help="A text, token by token, before and after pruning",
        ),
        st.Page(
            "pages/attention.py",
            title="Attention",
            icon=":material/visibility:",
            help="Where heads look in a text, and which token's logit that raises",
        ),
        st.Page(
            "pages/in_context.py",
            title="In context",
            icon=":material/trending_down:",
            help="How much better later tokens are predicted, and which heads make it",
        ),
        st.Page(
            "pages/correlations.py",
            title="Correlations",
            icon=":material/grid_on:",
            help="How much the rankings of tasks and shot counts agree",
        ),
        st.Page(
            "pages/sweeps.py",
            title="Sweeps",
            icon=":material/timeline:",
            help="Accuracy over many tasks, levels and rankings",
        ),
    ]
)
# A page opened directly on a fresh server runs without this file; require_frame sends it here and says where to go on.
if goto := st.session_state.pop("goto", None):
    st.switch_page(goto, query_params=st.query_params.to_dict())
draw_sidebar()
with ended_early():
    page.run()
