"""The setting of the Text screen, as its controls have it: the text, the models that read it, and what is pruned."""

import streamlit as st

from engine.heads.induction import induction
from engine.models.masks import Mask
from engine.texts.passages import as_chat
from pages.ui.controls.model import wait_for_model
from pages.ui.controls.study import Study
from pages.ui.controls.texts import Chosen
from pages.ui.page.marks import mark
from pages.ui.page.runtime import end_run, errors_shown, session
from pages.ui.page.streamlit_internals import DeltaGenerator
from pages.ui.page.tables import plain
from pages.ui.text.looks import choose_heads
from pages.ui.text.reading import Side, TextState
from pages.ui.text.view import ALONE, DRAWN

OTHER_TOKENS = "{} has another tokenizer: no token pairs to compare. Below is {} alone."


def await_text(text: Chosen | None, at: DeltaGenerator) -> Chosen:
    """Returns the chosen text. While it is measured, what still shows the text before is dimmed; the run ends without
    one."""
    if text is None:
        st.info("This text was deleted; choose another.", icon=":material/notes:")
        end_run()
    if st.session_state.get(DRAWN) not in (None, (text.name, text.text)):
        at.container(key="text_awaits").caption(f"Measuring “{plain(text.name)}” …")
    return text


def read_setting(of: Study, text: Chosen, shade: str, pruning_at: DeltaGenerator) -> TextState:
    """Returns the setting once the models are known, and draws what prunes heads in its place."""
    other, target = of.second, wait_for_model(of)
    full_target = target if other is None else wait_for_model(of, other)
    known = induction(target).stored(session())
    with errors_shown():
        pruning, is_chat = of.pruning(target), of.is_chat
        for each in (target, full_target) if is_chat else ():
            as_chat(each, text.text)  # so that an error is shown here
        heads = choose_heads(pruning_at, target, known)
    whole, full = Side(target, Mask.full(target.shape)), Side(full_target, Mask.full(full_target.shape))
    x = TextState(
        name=text.name, text=text.text, landmarks=() if is_chat else text.landmarks, named=text.named, is_chat=is_chat,
        data_dir=of.data_dir, full=full, whole=whole, pruning=pruning, known=known, heads=tuple(heads),
        shade=shade,
    )  # fmt: skip
    if st.session_state.get(ALONE) != x.models:
        return x
    names = (plain(each.target.spec.in_words) for each in (full, whole))
    st.info(OTHER_TOKENS.format(*names), icon=":material/info:")
    mark("comparison", "other tokens")
    return x.alone
