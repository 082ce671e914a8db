"""What a restless user does: one random action after another, whatever is on the screen just then."""

import re
from random import Random
from urllib.parse import urlsplit

from playwright.sync_api import Error, Locator, Page

from tests.browser.conftest import open_settings
from tests.conftest import HANG_S

SCREENS = ("Prune", "Text")  # those with figures that are recomputed; they come up most
OTHERS = ("Heads",)
KEYS = ("ArrowRight", "ArrowLeft", "ArrowUp", "ArrowDown", "PageUp", "PageDown", "Home", "End")
NUMBERS = {"Questions": (1, 8, 16, 24, 40)}
MASKS = ("", "L0H1", "F1", "L1H*", "L0H0-2 F0", "L1H0 L1H3", "F0-1", "L99H0", "nonsense", "<b>F1</b>")
BUTTONS = re.compile("^(Cancel|Resume|Retry|Measure|Ablate|Prune it|Restore|Prune the induction)")
PATIENCE_MS = 4000  # what is not there to be clicked by then is left alone
LONG_MS = 1000 * HANG_S


def act(page: Page, rng: Random, models: list[str]) -> str:
    """Does something that can be done on this screen; says what, and what kept it from it if the screen has changed."""
    actions, weights = zip(*ACTIONS.items(), strict=True)
    while True:
        action = rng.choices(actions, weights)[0]
        words = [action.__name__]
        page.set_default_timeout(PATIENCE_MS)
        try:
            action(page, rng, models, words)
        except LookupError:  # there is none of these here
            continue
        except Error as error:
            alerts = page.get_by_test_id("stAlert").all_inner_texts()
            words.append(f"(missed on {screen_of(page)}: {str(error).splitlines()[0]} {alerts})")
        finally:
            page.set_default_timeout(LONG_MS)
            page.mouse.up()
        return " ".join(map(str, words))


def main(page: Page) -> Locator:
    return page.get_by_test_id("stMain")


def any_of(rng: Random, found: Locator) -> Locator:
    if not (n := found.count()):
        raise LookupError("there is none")
    return found.nth(rng.randrange(n))


def screen_of(page: Page) -> str:
    """The name of the screen, as its link says it."""
    return urlsplit(page.url).path.strip("/").replace("_", " ").capitalize() or "Prune"


def drag(page, rng, models, words):
    slider = any_of(rng, main(page).locator("input[type=range]"))
    slider.scroll_into_view_if_needed()
    if (box := slider.bounding_box()) is None:
        raise LookupError("it was drawn anew meanwhile")
    words.append(slider.evaluate("input => input.labels[0].textContent"))
    thumb = 15 * slider.evaluate("input => parseFloat(getComputedStyle(input).getPropertyValue('--thumb'))")  # rem
    y = box["y"] + box["height"] / 2

    def x(percent):
        return box["x"] + thumb / 2 + (box["width"] - thumb) * percent / 100

    page.mouse.move(x(int(slider.input_value())), y)
    page.mouse.down()
    for _ in range(rng.randint(1, 4)):
        percent, steps, rest_ms = rng.randrange(101), rng.choice((1, 8, 40)), rng.choice((0, 0, 40, 200, 900))
        words.append(f"{percent}/{steps}/{rest_ms}ms")
        page.mouse.move(x(percent), y, steps=steps)
        page.wait_for_timeout(rest_ms)
    page.mouse.up()


def press_keys(page, rng, models, words):
    slider = any_of(rng, main(page).locator("input[type=range]"))
    slider.focus()
    words.append(slider.evaluate("input => input.labels[0].textContent"))
    rest_ms = rng.choice((0, 30, 150, 400))
    for key in rng.choices(KEYS, k=rng.randint(1, 8)):
        words.append(key)
        page.keyboard.press(key)
        page.wait_for_timeout(rest_ms)


def set_number(page, rng, models, words):
    field = any_of(rng, main(page).locator("input[type=number]"))
    name = field.get_attribute("aria-label")
    value = rng.choice(NUMBERS.get(name, (0, 13, 50, 87, 100)))
    words += [name, value]
    field.fill(str(value))
    field.press("Enter")


def set_mask(page, rng, models, words):
    open_settings(page)
    field = any_of(rng, page.get_by_role("textbox", name=re.compile("^Prune these as well$")))
    words.append(mask := rng.choice(MASKS))
    field.fill(mask)
    field.press("Enter")


def choose_one(page, rng, models, words):
    radio = any_of(rng, main(page).get_by_role("radio"))
    words.append(radio.inner_text())
    radio.click()


def tick(page, rng, models, words):
    box = any_of(rng, main(page).get_by_test_id("stCheckbox").locator("label"))
    words.append(box.inner_text())
    box.click()


def select(page, rng, models, words):
    box = any_of(rng, main(page).locator("[data-testid=stSelectbox]:not(.st-key-model *, .st-key-against *) input"))
    words.append(box.get_attribute("aria-label"))
    box.click()
    options = page.get_by_role("option").filter(has_not_text="facebook/")  # not on this computer
    options.first.wait_for()
    option = any_of(rng, options)
    words.append(option.inner_text())
    option.click()


def press_button(page, rng, models, words):
    button = any_of(rng, main(page).get_by_role("button", name=BUTTONS))
    words += [button.inner_text().splitlines()[-1], "on", screen_of(page)]
    button.click()


def expand(page, rng, models, words):
    any_of(rng, main(page).get_by_test_id("stExpander").locator("summary")).click()


def open_screen(page, rng, models, words):
    words.append(name := rng.choice((*SCREENS, *SCREENS, *OTHERS)))
    page.get_by_role("link", name=name).click()
    page.wait_for_timeout(rng.choice((0, 300, 1500)))


def set_precision(page, rng, models, words):
    words.append(name := rng.choice(("fp32", "fp32", "fp32", "bf16", "int8")))
    open_settings(page)
    page.get_by_role("radio", name=name, exact=True).click()


def set_model(page, rng, models, words):
    words.append(model := rng.choice(models))
    choose_model(page, model)


def choose_model(page, model):
    box = page.get_by_role("combobox", name="Model", exact=True)
    box.click()
    box.fill(model)
    page.get_by_role("option").first.wait_for()
    box.press("Enter")


def wait(page, rng, models, words):
    words.append(rest_ms := rng.choice((100, 500, 2000)))
    page.wait_for_timeout(rest_ms)


ACTIONS = {
    drag: 24, press_keys: 14, set_number: 8, set_mask: 6, choose_one: 8, tick: 2, select: 8, press_button: 10,
    expand: 3, open_screen: 10, set_precision: 3, set_model: 3, wait: 4,
}  # fmt: skip
