"""The continuation: how both models write on, in place of a token or at the end of the text."""

from typing import Any

from engine.requests import ContinuePrompt, Result
from engine.requests.texts import continuation_table
from pages.ui.downloads.origin import of_model
from pages.ui.figures.sheet import Sheet
from pages.ui.figures.token_text import written_data
from pages.ui.page.tables import plain
from pages.ui.sections.section import Section
from pages.ui.text.reading import Read

NAMES = {"full": "Full model", "masked": "Pruned model"}
SHOWS = "You will see how both models write on."
WRITTEN, MOST_PROMPT, LAST = 20, 512, 3  # tokens; tokens; words


def continued(read: Read) -> Section:
    """Returns the section that measures how both models write on; the text shows it."""
    target, prompt = read.side.target, prompt_of(read)
    request = ContinuePrompt(
        **of_model(target), prompt=prompt, tokens=WRITTEN, mask=read.side.mask.text(), chat=read.x.is_chat,
        out="continuation.csv",
    )  # fmt: skip
    return Section("Continuation", request, target, SHOWS, draw=_add)


def written(read: Read) -> dict[str, Any] | None:
    """Returns how both models write on, for the text's component; None until that is measured."""
    results = continued(read).work.results_so_far()
    if not results:
        return None
    after = " ".join(prompt_of(read).split()[-LAST:])
    return written_data(after, {NAMES[name]: each for name, each in results[-1].value.items()})


def prompt_of(read: Read) -> str:
    """Returns what they write on after: the text up to its token, or all of it if no token is locked and it ends in the
    middle of a sentence; of that the last tokens that fit the window."""
    full = read.full
    if read.x.is_chat:
        return read.x.text
    is_unfinished = not read.is_locked and full.text.rstrip()[-1:].isalnum()
    stop = (not is_unfinished and read.token) or len(full.ends)
    n = min(MOST_PROMPT, read.side.target.shape.n_ctx - WRITTEN - 2)
    start = int(full.ends[stop - n - 1]) if stop > n else 0
    return full.text[start : int(full.ends[stop - 1])]


def _add(result: Result, sheet: Sheet) -> None:
    texts = (f"{NAMES[name]}: “{plain(each.text.strip())}”" for name, each in result.value.items())
    sheet.says += [result.view.finding, *texts]
    sheet.tables["Continuation"] = continuation_table(result.value)
