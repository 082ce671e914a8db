"""Numbers in words: a change with its interval, and what it says."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.statistics import Paired

if TYPE_CHECKING:
    from engine.importance.orders import Axis

NOUNS: "dict[Axis, str]" = {"heads": "heads", "ffns": "FFNs"}
FEW = 10  # questions: too few for any verdict
BLANKS = str.maketrans({" ": "␣", "\n": "↵", "\t": "⇥"})


def number(value: float, digits: int = 2, sign: bool = False) -> str:
    """Returns a number such as "−0.42", with a true minus and a zero without a sign; a dash if undefined."""
    if math.isnan(value):
        return "–"
    text = f"{value:+.{digits}f}" if sign else f"{value:.{digits}f}"
    return text.lstrip("+-") if float(text) == 0 else text.replace("-", "−")


def capitalized(words: str) -> str:
    """Returns words as they begin a sentence."""
    return words[:1].upper() + words[1:]


def percent(share: float, digits: int = 1) -> str:
    """Returns a share such as "41.2%"; a dash if undefined."""
    return f"{number(100 * share, digits)}%" if share == share else "–"


def with_interval(value: float, low: float, high: float, unit: str = "", digits: int = 2) -> str:
    """Returns a change with its 95% interval, such as "+0.42 nats (95% +0.10 to +0.74)"."""
    size = f"{number(value, digits, sign=True)} {unit}".rstrip()
    if math.isnan(low):
        return size
    return f"{size} (95% {number(low, digits, sign=True)} to {number(high, digits, sign=True)})"


def p_in_words(p: float) -> str:
    """Such as "p = 0.012"."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def counted(n: int, noun: str) -> str:
    """Such as "1 head" or "1,204 heads"."""
    return f"{n:,} {noun}" + "s" * (n != 1)


def listed(names: Sequence[str], most: int = 4) -> str:
    """Such as "L1H0, L1H1 and L3H5"; "L1H0, L1H1, L2H0 and 9 more" if they are more than `most`."""
    if len(names) > most:
        return f"{', '.join(names[: most - 1])} and {len(names) - most + 1} more"
    *first, last = names or [""]
    return f"{', '.join(first)} and {last}" if first else last


def not_measured(reasons: Mapping[str, str]) -> list[str]:
    """The note for each part that could not be measured, with its reason."""
    return [f"not measured: {name}: {reason}" for name, reason in reasons.items()]


def plain(text: object) -> str:
    """Returns the text such that Markdown shows it literally, in one line: text of a user, a file or a link is never
    markup. All such text in messages, labels and help goes through this."""
    line = " ".join(str(text).split())
    # a colon only where it may begin a directive or an emoji, an underscore only where it may begin an emphasis
    line = re.sub(r"([\\`*{}\[\]()#!|<>$~&^]|:(?=\w)|(?<![^\W_])_|_(?![^\W_]))", r"\\\1", line)
    return re.sub(r"^(\d*)([-+.=])", r"\1\\\2", line)


def visible(piece: str) -> str:
    """A token with its blanks to be seen."""
    return piece.translate(BLANKS)


@dataclass(frozen=True)
class Effect:
    """A loss with its 95% interval; a gain is a negative loss.

    `value`, `low`, `high`: in the `unit`
    `n`: the questions, texts or tokens that it comes from (0: unknown)
    `p`: of its test; without one, the interval decides whether it is clear
    """

    value: float
    low: float
    high: float
    n: int = 0
    unit: str = "points"
    digits: int = 0
    p: float = math.nan

    @classmethod
    def of_paired(cls, change: Paired) -> "Effect":
        """The loss of accuracy on the same questions, in points."""
        low, high = change.interval
        return cls(-100 * change.difference, -100 * high, -100 * low, change.n, digits=1, p=change.p_mcnemar)

    @property
    def is_clear(self) -> bool:
        """Whether it is more than noise."""
        if not math.isnan(self.p):
            return self.p < 0.05
        return self.low > 0 or self.high < 0

    @property
    def verdict(self) -> str:
        """ "clear", "within noise", or "too few questions"."""
        if self.n and self.n < FEW:
            return "too few questions"
        return "clear" if self.is_clear else "within noise"

    def in_words(self) -> str:
        """Such as "lost 12 points (95% 8 to 17)", "gained 0.3 nats (95% 0.1 to 0.5)", or "within noise: lost 1 point
        (95% −2 to 4)"."""
        if math.isnan(self.value):
            return "undefined"
        sign = -1 if self.value < 0 else 1
        low, high = sorted((sign * self.low, sign * self.high))
        words = f"{'gained' if sign < 0 else 'lost'} {self._size(sign * self.value)}"
        if not math.isnan(low):
            words += f" (95% {number(low, self.digits)} to {number(high, self.digits)})"
        return words if self.verdict == "clear" else f"{self.verdict}: {words}"

    def _size(self, value: float) -> str:
        size = number(value, self.digits)
        return f"{size} {self.unit.removesuffix('s') if size == '1' else self.unit}"
