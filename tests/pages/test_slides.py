"""Slides are kept in order, with what their screens showed; a talk is one page of them."""

import json

import pytest

from cache import Store
from pages.ui.downloads import actions, present, slides
from pages.ui.downloads.slides import Slide
from pages.ui.downloads.talk import to_talk
from pages.ui.page import runtime
from pages.ui.page.tables import plain
from tests.pages.conftest import button, components, figure, labels, opened

THREE = tuple(Slide(name, "a model", f"/?heads={name}0") for name in "123")


def test_slides_are_kept_in_order(tmp_path):
    store = Store(tmp_path)
    assert slides.saved(store) == () and slides.save(THREE, store) and slides.saved(store) == THREE
    for other in (b"{}", b"[" * 150_000, b'[{"title": 3, "link": "/"}]'):
        store.put(slides.KEY, other)
        assert slides.saved(store) == ()
    store.close()


def test_a_title_is_never_markup():
    assert plain("![x](https://example.org/a.png)") == r"\!\[x\]\(https://example.org/a.png\)"
    page = to_talk([Slide("<b>", "<i>", '/?"><script>', ('{"title": "</script>"}',), (("<u>",), ("<s>",)))]).decode()
    for each in ("<b>", "<i>", '"><script>', '</script>"}', "<u>", "<s>"):
        assert each not in page
    assert page.count("<section") == 1 and "<th>&lt;u&gt;</th>" in page and "\\u003c/script>" in page


def test_a_screen_becomes_a_slide_with_its_finding_and_the_data_of_its_charts(open_app, monkeypatch):
    sheets, make = [], actions.make_slide
    monkeypatch.setattr(actions, "make_slide", lambda of, *rest: sheets.append(of.sheet) or make(of, *rest))
    at = open_app(heads="40", order="random")
    assert not at.button(key="add_slide").value and slides.saved(runtime.store()) == ()
    button(at, "Add slide").click().run()
    at.button(key="add_slide").click().run()  # a browser repeats a click
    [slide] = slides.saved(runtime.store())
    assert figure(at)[0] in slide.title and "3 of 8 heads" in slide.about and "boats" in slide.about
    assert slide.link.startswith("/?") and "heads=40" in slide.link
    drawn = [json.loads(each) for each in slide.charts]
    assert [each["title"]["text"] for each in drawn] == ["Curve", "Heads and FFNs"]
    for each in drawn:
        assert each["datasets"] == sheets[-1].picture(each["title"]["text"]).datasets, "the numbers of the screen"


def test_a_removed_slide_is_gone_and_one_that_another_tab_replaced_stays(tmp_path):
    store = Store(tmp_path)
    slides.save(THREE, store)
    for number, link in ((1, "/?heads=30"), (3, "/?heads=30"), (None, None), ("1", "/?heads=20")):
        slides.remove(number, link, store)
        assert slides.saved(store) == THREE
    slides.remove(1, "/?heads=20", store)
    assert slides.saved(store) == (THREE[0], THREE[2]) and slides.are_saved(store)
    slides.remove(1, "/?heads=30", store)
    slides.remove(0, "/?heads=10", store)
    assert slides.saved(store) == () and not slides.are_saved(store)
    store.close()


def test_present_hands_the_slides_to_the_page_once(open_app):
    at = open_app(heads="40", order="random")
    assert "Present" not in labels(at), "without slides"
    slides.save(THREE, runtime.store())
    button(at.run(), "Present").click().run()
    assert stage(at)["talk"].count("<section") == 3 and stage(at)["number"] == 1
    assert stage(at.run()) == stage(at), "the browser has not opened it"
    at.session_state[present.TALK] = {}
    assert stage(at.run()) == {}


def stage(at):
    """What the component on every page was told."""
    [data] = [data for data in components(at) if data == {} or "talk" in data]
    return data


def test_there_is_a_most(open_app, monkeypatch):
    monkeypatch.setattr(slides, "MOST", 3)
    at = open_app(heads="40", order="random")
    slides.save(THREE, runtime.store())
    button(at, "Add slide").click().run()
    assert slides.saved(runtime.store()) == THREE


@pytest.mark.slow("opens a screen twice")
def test_nothing_is_read_for_export_until_it_is_opened(open_app, monkeypatch):
    read = []
    monkeypatch.setattr(slides, "saved", lambda store: read.append("slides") or ())
    monkeypatch.setattr(actions, "draw_measured", lambda *rest: read.append("receipts"))
    at = open_app(heads="40", order="random")
    assert not read and not [each for each in at.get("download_button")]
    at = opened(at, actions.EXPORT)
    assert {*read} == {"slides", "receipts"} and at.get("download_button")
