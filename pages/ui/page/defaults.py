"""Words and numbers that screens share: the two axes, and the defaults of measuring.

No streamlit here: work in the measuring thread has the same defaults.
"""

import os

from engine.errors import UsageError
from engine.importance.orders import Axis
from engine.views.words import NOUNS as NOUNS

AXES: dict[Axis, str] = {"heads": "Attention heads pruned", "ffns": "FFNs pruned"}
# what Prune prunes by level: whole layers too
LEVELS: dict[Axis, str] = {**AXES, "layers": "Layers dropped"}
LEVEL_NOUNS: dict[Axis, str] = {**NOUNS, "layers": "layers"}
LEVEL_HELP = {
    "heads": "A pruned head gives 0 to its layer's output projection.",
    "ffns": "A pruned FFN adds nothing.",
    "layers": "Of a layer that is dropped all heads and the FFN are pruned: it is not run, and adds its attention's "
    "output bias alone, where it has one. The norms of OPT-350m, after each layer, stay.",
}
SHOT_COUNTS = (0, 1, 5)  # examples in the prompt
SHOTS = 5  # the default, and the count of screens without a control
RANKING_QUESTIONS = 64  # train questions of a ranking: in int8 on a CPU their gradients take half a second each
ORDER = "gradient"  # the pruning order: as the paper's, without the weight that its divisor gives the last layer
SAMPLE = "stratified"  # so that the figure over the first few questions is a fair preview
LABELS = {"true": "True", "shuffled": "Shuffled", "unrelated": "Unrelated"}
LABELS_HELP = (
    "The answers of the examples. Shuffled: each has another one's, so that they show the form but not what is right. "
    "Unrelated: one fixed word for each choice, also in the question; for questions that all have the same choices."
)
BUDGET_S = 10.0  # budget of background work; HEADROOM_IDLE_SECONDS sets another
FIRST_FIGURE = 6  # times that budget: of what a screen opens with, which is why it was opened


def idle_budget_s() -> float:
    """Returns the budget of background work, in forecast seconds (0: none is started). UsageError if the environment
    holds no number."""
    text = os.environ.get("HEADROOM_IDLE_SECONDS", "").strip()
    try:
        seconds = float(text) if text else BUDGET_S
    except ValueError:
        seconds = -1.0
    if not seconds >= 0:
        raise UsageError(f"HEADROOM_IDLE_SECONDS is {text!r}; give seconds, such as 10, or 0 for no work ahead")
    return seconds
