"""Headroom's Prune screen against a plain Streamlit app, both in Chromium: from the slider's release to the figure.

The plain app is what one writes in an hour: a `st.slider`, hooks that zero the heads, lm-eval's own HFLM over every
choice of every question, a `st.metric`. Model (embedded, fp32), questions, order of heads and levels are the same, and
no level was measured before.
"""

import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine.demo import model_folder
from engine.importance.rankings import random_order
from engine.models.loading import LoadSpec, identify
from engine.questions.rendering import TaskSpec, render_questions, select
from tests.benchmarks.browser import served, tab
from tests.benchmarks.measure import REPOSITORY, Comparison

TASK, SHOTS, N_QUESTIONS = "demo_outfit", 5, 200
LEVELS = (65, 35, 85, 25, 45, 55, 15, 75)
FAMILY = "A slider let go against a plain Streamlit app"
PLAIN = """
import json
import streamlit as st

@st.cache_resource
def everything():
    from lm_eval.models.huggingface import HFLM
    from transformers import AutoModelForCausalLM, AutoTokenizer
    given = json.load(open("given.json"))
    model = AutoModelForCausalLM.from_pretrained(given["folder"]).eval()
    tokenizer = AutoTokenizer.from_pretrained(given["folder"])
    return given, model, HFLM(pretrained=model, tokenizer=tokenizer, add_bos_token=True, batch_size=16)

def zeroed(heads, d_head):
    def hook(module, args):
        z = args[0].clone()
        for head in heads:
            z[..., head * d_head : (head + 1) * d_head] = 0
        return (z, *args[1:])
    return hook

def accuracy(percent):
    from lm_eval.api.instance import Instance
    given, model, lm = everything()
    gone = given["order"][: percent * len(given["order"]) // 100]
    layers, hooks = model.model.decoder.layers, []
    for number, layer in enumerate(layers):
        heads = [head % given["n_heads"] for head in gone if head // given["n_heads"] == number]
        hooks.append(layer.self_attn.out_proj.register_forward_pre_hook(zeroed(heads, given["d_head"])))
    asked = [(context, choice) for question in given["questions"] for context, choice in question["pairs"]]
    found = iter(lm.loglikelihood([Instance("loglikelihood", {}, pair, 0) for pair in asked], disable_tqdm=True))
    for hook in hooks:
        hook.remove()
    right = 0
    for question in given["questions"]:
        scores = [next(found)[0] for _ in question["pairs"]]
        right += scores.index(max(scores)) in question["golds"]
    return right / len(given["questions"])

percent = st.slider("Heads pruned", 0, 100, 0, 5)
st.metric(f"Right with {percent}% pruned", f"{100 * accuracy(percent):.1f}%")
"""
# Every text of the block that holds the large figure, with its time and the mark of the figure, which need not stand in
# that block (pages/ui/page/marks.py).
WATCH = """() => {
  window.seen = []
  setInterval(() => {
    const block = document.querySelector("[data-testid=stMetric]")?.closest("[data-testid=stVerticalBlock]")
    const text = block?.innerText, mark = { ...document.querySelector("[data-mark=figure]")?.dataset }
    const last = window.seen.at(-1)
    if (text && (text !== last?.[1] || JSON.stringify(mark) !== JSON.stringify(last?.[2])))
      window.seen.push([performance.now(), text, mark])
  }, 10)
}"""
# Whether the figure is one of so many heads that was measured on at least so many questions.
MEASURED = """([at, text, mark], heads, questions) =>
  ["measuring", "measured"].includes(mark.state) && +mark.heads === heads && +mark.questions >= questions"""


def compare(quick: bool) -> Iterator[Comparison]:
    """Seconds from release to the first figure and to that of all questions, level by level."""
    levels = LEVELS[:3] if quick else LEVELS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_plain(folder)
        environment = {"HEADROOM_CACHE": f"{name}/results", "HEADROOM_IDLE_SECONDS": "1000"}
        with served(REPOSITORY / "app.py", REPOSITORY, **environment) as address, tab(1280, 900) as page:
            ours = headroom(page, address, levels)
        with served(folder / "plain.py", folder) as address, tab(1280, 900) as page:
            usual = plain(page, address, levels)
    firsts, wholes, _, changes = zip(*ours, strict=True)
    theirs = tuple(each[1] for each in usual)
    apart = max(abs(a[2] - b[2]) for a, b in zip(ours, usual, strict=True))
    hand = f"ours follows the hand at {min(changes):.1f} to {max(changes):.1f} figures a second, the other not at all"
    same = f"accuracies differ by {apart:.1f} points at most"
    for what, mine, said in (("first measured figure", firsts, hand), (f"all {N_QUESTIONS} questions", wholes, same)):
        name = f"demo model, fp32, {TASK}, {SHOTS} shots, {what}"
        yield Comparison(FAMILY, name, "s", mine, theirs, f"{len(levels)} levels", difference=said)


def write_plain(folder: Path) -> None:
    """The plain app and what it is given: questions in our order, the order of heads, the model's folder."""
    shape = identify(LoadSpec("demo", "fp32")).shape
    rendered = render_questions(TaskSpec(TASK, SHOTS))
    asked = [rendered.questions[at] for at in select(rendered, N_QUESTIONS, "stratified").order[:N_QUESTIONS]]
    questions = [{"pairs": list(zip(each.contexts, each.continuations, strict=True)), "golds": each.golds}
                 for each in asked]  # fmt: skip
    order = [int(head) for head in random_order(shape.n_heads_total, 0)]
    given = {"questions": questions, "order": order, "folder": str(model_folder()), "n_heads": shape.n_heads}
    (folder / "given.json").write_text(json.dumps(given | {"d_head": shape.d_head}))
    (folder / "plain.py").write_text(PLAIN)


Times = list[tuple[float, float, float, float]]


def headroom(page: Any, address: str, levels: tuple[int, ...]) -> Times:
    """Of each level: seconds to the first figure and to all questions, accuracy, figures a second on the way."""
    from playwright.sync_api import TimeoutError

    from tests.browser.conftest import await_mark
    from tests.browser.test_drag import grab
    from tests.embedded import n_at

    asked = f"task={TASK}&shots={SHOTS}&limit={N_QUESTIONS}"
    page.goto(f"{address}/?precision=fp32&order=random&{asked}")
    await_mark(page, "figure", "measured", questions=N_QUESTIONS)
    await_mark(page, "curve", "estimated")
    page.locator('[data-testid="stApp"][data-test-script-state="notRunning"]').wait_for()
    page.evaluate(WATCH)
    times = []
    for level in levels:
        x, y = grab(page)
        began = page.evaluate("performance.now()")
        for percent in (100, 0, level):
            page.mouse.move(x(percent), y, steps=20)
        released = page.evaluate("performance.now()")
        page.mouse.up()
        is_whole = f"each => ({MEASURED})(each, {n_at(level)}, {N_QUESTIONS})"
        is_first = f"each => ({MEASURED})(each, {n_at(level)}, 1)"
        try:
            page.wait_for_function(f"() => ({is_whole})(window.seen.at(-1))")
        except TimeoutError as error:
            raise RuntimeError(f"{level}%: the screen stays at {page.evaluate('window.seen.at(-1)')}") from error
        seen = page.evaluate("window.seen")
        first, whole = (
            page.evaluate(f"released => window.seen.find(each => each[0] > released && ({which})(each))", released)
            for which in (is_first, is_whole)
        )
        on_the_way = [text for at, text, _ in seen if began < at < released]
        times.append((*((at - released) / 1000 for at in (first[0], whole[0])), figure(whole[1]),
                      1000 * len(on_the_way) / (released - began)))  # fmt: skip
        page.wait_for_timeout(1500)  # a hand rests, too
    return times


def plain(page: Any, address: str, levels: tuple[int, ...]) -> Times:
    """As `headroom`, where the first figure is that of all questions."""
    page.goto(address)
    page.get_by_text("Right with 0% pruned").wait_for()
    page.evaluate(WATCH)
    times, thumb = [], page.get_by_test_id("stSliderThumbValue").locator("..")
    for level in levels:
        track, at_thumb = thumb.locator("..").bounding_box(), thumb.bounding_box()
        y = at_thumb["y"] + at_thumb["height"] / 2
        page.mouse.move(at_thumb["x"] + at_thumb["width"] / 2, y)
        page.mouse.down()
        began = page.evaluate("performance.now()")
        for percent in (100, 0, level):
            page.mouse.move(track["x"] + track["width"] * percent / 100, y, steps=20)
        there = int(page.get_by_role("slider").input_value())
        released = page.evaluate("performance.now()")
        page.mouse.up()
        page.get_by_text(f"Right with {there}% pruned").wait_for()
        assert there == level, "the thumb lies elsewhere than this thought"
        page.wait_for_timeout(200)
        seen = page.evaluate("window.seen")
        at, text = next((at, text) for at, text, _ in seen if at > released and f"with {level}%" in text)
        on_the_way = [text for at, text, _ in seen if began < at < released]
        seconds = (at - released) / 1000
        times.append((seconds, seconds, figure(text), 1000 * len(on_the_way) / (released - began)))
    return times


def figure(text: str) -> float:
    """The large figure, in percent."""
    return float(re.search(r"^([\d.]+)%$", text, re.MULTILINE)[1])
