"""The fields of a checkpoint's config.json that are used, by family. All others are ignored: among them are those that
choose an attention implementation, a kernel or code of the checkpoint, which transformers would download and import.
"""

from collections.abc import Mapping
from typing import Any

from engine.architecture.families.definition import ABOUT, COMMON
from engine.architecture.family import family_of


def known_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are used. HeadroomError: the architecture is not supported."""
    used = COMMON | family_of(config).fields
    return {name: value for name, value in config.items() if name in used}


def model_fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """Those of them that the model itself is built from, without the ones that only say where it comes from. Attention
    is built without its window: within the context, which the window limits, it is the same."""
    found = {name: value for name, value in known_fields(config).items() if name not in ABOUT}
    return found | ({} if family_of(config).window is None else {"sliding_window": None})
