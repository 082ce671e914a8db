"""SQuAD's two answer metrics (Rajpurkar et al. 2016), on text normalised by case, punctuation and articles."""

import re
import string
from collections import Counter

PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalised(answer: str) -> str:
    """The answer in lower case without punctuation, articles and repeated blanks."""
    return " ".join(re.sub(r"\b(?:a|an|the)\b", " ", answer.lower().translate(PUNCTUATION)).split())


def compute_exact(gold: str, prediction: str) -> int:
    """1 when both answers are equal once normalised, else 0."""
    return int(normalised(gold) == normalised(prediction))


def compute_f1(gold: str, prediction: str) -> float:
    """Harmonic mean of word precision and recall; two empty answers agree fully."""
    gold_words, predicted_words = normalised(gold).split(), normalised(prediction).split()
    if not gold_words or not predicted_words:
        return float(gold_words == predicted_words)
    shared = sum((Counter(gold_words) & Counter(predicted_words)).values())
    return 2 * shared / (len(gold_words) + len(predicted_words))
