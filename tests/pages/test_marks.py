"""Marks for tests and scripts: what they say, and that whatever is in them stays an attribute."""

from streamlit.testing.v1 import AppTest


def test_a_mark_says_its_state_and_facts_as_attributes():
    def script():
        from pages.ui.page.marks import counts, mark

        mark("figure", "measured", questions=3, model='"><b>', **counts(None))

    [drawn] = AppTest.from_function(script).run().get("html")
    facts = 'data-questions="3" data-model="&quot;&gt;&lt;b&gt;" data-heads="" data-ffns=""'
    assert drawn.proto.body == f'<span data-mark="figure" data-state="measured" {facts}></span>'
