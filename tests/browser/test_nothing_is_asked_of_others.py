"""Whatever a user, a file or a link says is text: no picture, no link of it is fetched from anywhere."""

import json
import shutil
from urllib.parse import urlencode

from cache import open_store
from engine.texts import passages
from pages.ui.downloads import slides
from tests.browser.conftest import await_mark, keyed

IMAGE = "![x](http://192.0.2.1/a.png)"
HOSTILE = [IMAGE, "<img src=http://192.0.2.1/b.png>", "[![x](//192.0.2.1/c.png)](http://192.0.2.1)"]
READY = '[data-testid="stApp"][data-test-script-state="notRunning"]'


def visit(page, address, screen="", **parameters):
    """Opens a screen and waits for what it says."""
    page.goto(f"{address}/{screen}?{urlencode({'precision': 'fp32', 'order': 'random', **parameters})}")
    page.locator("h1").first.wait_for()
    await_mark(page, "sidebar", "drawn")
    page.locator(READY).wait_for()
    assert page.locator('img[src*="192.0.2"]').count() == 0


def test_hostile_text_is_shown_and_nothing_is_fetched(page, app_server, tmp_path, tiny_opt):
    store = open_store(tmp_path / "results")
    assert passages.remember(IMAGE[:80], "A text of some length, with " + " ".join(HOSTILE), store)
    slides.save([slides.Slide(IMAGE, HOSTILE[1], f"/?mask={IMAGE}", table=(tuple(HOSTILE),) * 2)], store)
    store.close()
    rows = [{"context": f"{text} {n}", "choices": [f" {text}", " no"], "gold": 0} for n, text in enumerate(HOSTILE * 3)]
    task = tmp_path / IMAGE / "own ![x](y).jsonl"  # its name holds folders
    task.parent.mkdir(parents=True)
    for file in (task, task.with_suffix(".train.jsonl")):
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    model = shutil.copytree(tiny_opt, tmp_path / f"model {IMAGE}")
    broken = shutil.copytree(tiny_opt, tmp_path / "broken")
    config = json.loads((broken / "config.json").read_text())
    (broken / "config.json").write_text(json.dumps(config | {"model_type": IMAGE, "architectures": HOSTILE}))

    address = app_server(tmp_path / "results", warm=True)[0]
    visit(page, address, model=str(broken))
    page.get_by_text("a.png").filter(visible=True).first.wait_for()
    visit(page, address, model=str(model), task=str(task), shots="0", prune_questions="true", prune_speed="true")
    keyed(page, "prune_example").wait_for()
    page.get_by_text("b.png").filter(visible=True).first.wait_for()
    page.get_by_role("button", name="Present", exact=True).click()
    talk = page.frame_locator("iframe[title=Slides]")
    talk.get_by_role("heading", name="a.png").wait_for()
    assert talk.locator('img[src*="192.0.2"]').count() == 0 and talk.get_by_text("c.png").count() == 2
    page.keyboard.press("Escape")
    for parameters in (
        {"model": IMAGE},
        {"data_dir": IMAGE},
        {"task": IMAGE},
        {"task": f"{IMAGE}.jsonl"},
        {"mask": IMAGE},
        {"limit": IMAGE, "shots": HOSTILE[1], "bos": HOSTILE[2]},
    ):
        visit(page, address, **parameters)
        page.get_by_test_id("stAlert").get_by_text("192.0.2.1").filter(visible=True).first.wait_for()
    visit(page, address, "text", text_text=IMAGE[:80])
    await_mark(page, "losses")
    visit(page, address, "text", text_head=IMAGE)
    page.get_by_test_id("stAlert").get_by_text("192.0.2.1").filter(visible=True).first.wait_for()
    visit(page, address, "text", text_text="Pasted text", text_own=" ".join(HOSTILE), model=str(model))
    page.locator(".written p").first.wait_for()
