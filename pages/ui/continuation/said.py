"""The component that shows a prompt and a model's continuation of it, token by token as they come."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pages.ui.page.components import component_of

HTML = """
<div class="said">
  <div class="text" role="region" tabindex="0"></div>
  <div class="note"></div>
</div>
"""
_COMPONENT = component_of("said", HTML, Path(__file__).parent, "said")


def said(key: str, data: Mapping[str, Any]) -> None:
    """Draws `data`: who, prompt, pieces of the continuation with `p` of each, `parts` (the first piece that differs
    from the other model's, or none) and a note."""
    _COMPONENT(key=key, data=dict(data))
