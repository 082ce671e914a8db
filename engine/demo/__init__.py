"""What comes with the app: a small OPT model, its question families, and the code that made both."""

from pathlib import Path

FOLDER = Path(__file__).parent


def model_folder() -> Path:
    """Folder of the embedded model: a checkpoint like any other (config, tokenizer, safetensors)."""
    return FOLDER / "model"


def tasks_folder() -> Path:
    """Folder of the embedded questions: `catalogue.json` and one folder a task (YAML and JSON lines)."""
    return FOLDER / "tasks"
