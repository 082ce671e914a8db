"""Included data: a small OPT model, its tasks, and passages.

`model`: the model's checkpoint, with its card
`tasks`: the questions, a folder a task
`passages`: the built-in texts
`runs`: measured runs of training

`scripts/make_demo` makes all but the passages.
"""

import json
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
PASSAGE, LONG_PASSAGE = "Names that return", "The ferry"  # the first one, and the first of more than 512 tokens
# Two prompts that differ in two names: the model continues each with the name that it began with.
PROMPT, OTHER_PROMPT = (
    f"A letter came to the market for Jane {first}. The old woman asked in June about Charles {second}. "
    "A letter came to the market for Jane"
    for first, second in (("Merton", "Norwood"), ("Norwood", "Merton"))
)
RUN = "embedded"  # the run of training, among those that come with the app, whose last snapshot is the model


@dataclass(frozen=True, order=True)
class Landmark:
    """A notable place in a passage: the `occurrence`-th `text` (1 = the first), and a note on it."""

    text: str
    occurrence: int
    about: str

    def start(self, passage: str) -> int:
        """Where it begins in the passage, in characters; ValueError when it is not there."""
        at = -1
        for _ in range(self.occurrence):
            at = passage.index(self.text, at + 1)
        return at


@dataclass(frozen=True)
class Passage:
    """One built-in text; `source` says where it is from."""

    title: str
    about: str
    source: str
    text: str
    landmarks: tuple[Landmark, ...] = ()


def model_folder() -> Path:
    """Folder of the embedded model: a checkpoint like any other (config, tokenizer, safetensors)."""
    return FOLDER / "model"


def tasks_folder() -> Path:
    """Folder of the embedded questions: `catalogue.json` and one folder a task (YAML and JSON lines)."""
    return FOLDER / "tasks"


def runs_folder() -> Path:
    """Folder of the embedded runs of training; it may be missing."""
    return FOLDER / "runs"


def run_records() -> list[Path]:
    """The measurements of the training runs that come with Headroom, a file each, by name."""
    return sorted(runs_folder().glob("*.safetensors"))


def passages(long: bool = False) -> list[Passage]:
    """The built-in passages, in the order in which they are offered; with `long` also those made to be cut into
    windows, which are too long to be read as one."""
    folder = FOLDER / "passages"
    entries = json.loads((folder / "catalogue.json").read_text(encoding="utf-8"))
    return [
        Passage(
            entry["title"], entry["about"], entry["source"], (folder / entry["file"]).read_text("utf-8").strip(),
            tuple(Landmark(**landmark) for landmark in entry.get("landmarks", ())),
        )
        for entry in entries if long or not entry.get("long")
    ]  # fmt: skip


def story() -> str:
    """The longest built-in passage: natural text that every model can be asked about."""
    return max((passage.text for passage in passages()), key=len)
