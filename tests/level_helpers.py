"""The sliders for pruning levels, as a browser would move them."""

import json
from itertools import count

NUMBERS = count(1)


def slide(at, key, percent, moving=False):
    """What the browser reports when the hand is at `percent`: still moving, or letting go. Run the page afterwards."""
    at.session_state[f"{key} drag"] = {"hand": {"percent": percent, "moving": moving, "number": next(NUMBERS)}}
    return at


def level(at, key):
    """The level that is set, in percent."""
    return at.number_input(key=key).value


def sent(at, key):
    """What the slider was sent."""
    [data] = [data for data in components(at) if data.get("label") == at.number_input(key=key).label]
    return data


def components(at):
    """What each component on the page was sent."""
    return [json.loads(each.proto.json) for each in at.get("bidi_component") if each.proto.json]
