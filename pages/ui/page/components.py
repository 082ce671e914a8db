"""The app's own components: HTML, with stylesheets and scripts from files."""

from pathlib import Path
from typing import Any

from streamlit.components.v2 import component

HERE = Path(__file__).parent


def component_of(name: str, html: str, folder: Path, *parts: str) -> Any:
    """The component `name` whose stylesheets and scripts are called `parts` in a folder, where a part may lack either;
    in front of them stand those that all such components share."""
    return component(f"headroom_{name}", html=html, css=_joined(folder, parts, "css"), js=_joined(folder, parts, "js"))


def _joined(folder: Path, parts: tuple[str, ...], kind: str) -> str:
    files = [HERE / f"base.{kind}", *(folder / f"{part}.{kind}" for part in parts)]
    return "\n".join(file.read_text(encoding="utf-8") for file in files if file.exists())
