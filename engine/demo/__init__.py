"""What comes with the app: a small OPT model, its question families, passages, and the code that made the first two."""

import json
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Passage:
    """One built-in text; `source` says where it is from."""

    title: str
    about: str
    source: str
    text: str


def model_folder() -> Path:
    """Folder of the embedded model: a checkpoint like any other (config, tokenizer, safetensors)."""
    return FOLDER / "model"


def tasks_folder() -> Path:
    """Folder of the embedded questions: `catalogue.json` and one folder a task (YAML and JSON lines)."""
    return FOLDER / "tasks"


def passages() -> list[Passage]:
    """The built-in passages, in the order in which they are offered."""
    folder = FOLDER / "passages"
    entries = json.loads((folder / "catalogue.json").read_text(encoding="utf-8"))
    return [
        Passage(entry["title"], entry["about"], entry["source"], (folder / entry["file"]).read_text("utf-8").strip())
        for entry in entries
    ]
