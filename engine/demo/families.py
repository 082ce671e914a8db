"""The families of embedded questions: each draws a rule, and questions under that rule.

Where a family has a rule (which invented word means what, which label a kind gets), only the examples in front of a
question can tell it: that is what in-context learning is here. The suite's own rule and a fifth of all combinations of
words are held out: training never sees them.
"""

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.demo import words

HELD_OUT_SHARE = 5  # one combination in so many is only ever a validation question
SUITE_RULE_SEED = "the rule of the suite"


@dataclass(frozen=True)
class Item:
    """One question; `combination` names the words it is made of."""

    context: str
    choices: tuple[str, ...]
    gold: int
    combination: str

    @property
    def solved(self) -> str:
        """The question with its answer, as the harness shows it among few-shot examples."""
        return f"{self.context} {self.choices[self.gold]}"

    @property
    def held_out(self) -> bool:
        return int(hashlib.blake2b(self.combination.encode(), digest_size=4).hexdigest(), 16) % HELD_OUT_SHARE == 0


@dataclass(frozen=True)
class Family:
    """One kind of question: `rule` draws what its examples teach (None: nothing), `ask` makes one question."""

    name: str
    title: str
    asks: str
    chance: float
    rule: Callable[[random.Random], Any]
    ask: Callable[[random.Random, Any], Item]


def draw(family: Family, rng: random.Random, rule: Any, held_out: bool | None) -> Item:
    """A question of `family` whose combination is held out, is not, or (None) either."""
    while True:
        item = family.ask(rng, rule)
        if held_out is None or item.held_out == held_out:
            return item


def suite_rule(family: Family) -> Any:
    """The rule under which the suite asks; training rules are drawn until they differ."""
    return family.rule(random.Random(f"{SUITE_RULE_SEED} {family.name}"))


def training_rule(family: Family, rng: random.Random) -> Any:
    """A rule for a training episode, never the suite's."""
    while True:
        rule = family.rule(rng)
        if rule is None or rule != suite_rule(family):
            return rule


def episode(family: Family, rng: random.Random, n_items: int) -> list[Item]:
    """`n_items` training questions under one rule."""
    rule = training_rule(family, rng)
    return [draw(family, rng, rule, held_out=False) for _ in range(n_items)]


def invented(rng: random.Random, n_syllables: int = 2) -> str:
    """A word that does not exist, such as `zolami`."""
    return "".join(rng.choice(words.SYLLABLES) for _ in range(n_syllables))


def _distinct(rng: random.Random, count: int, n_syllables: int = 2) -> list[str]:
    found: list[str] = []
    while len(found) < count:
        word = invented(rng, n_syllables)
        if word not in found:
            found.append(word)
    return found


def _no_rule(rng: random.Random) -> None:
    return None


def _item(rng: random.Random, context: str, right: str, wrong: list[str], combination: str) -> Item:
    choices = [right, *wrong]
    rng.shuffle(choices)
    return Item(context, tuple(choices), choices.index(right), combination)


def _ask_copy(rng: random.Random, rule: None) -> Item:
    code = rng.sample(words.ANIMALS + words.FRUITS + words.TOOLS, 5)
    context = f"The list is: {' '.join(code)}. Again: {' '.join(code[:-1])}"
    return _item(rng, context, code[-1], rng.sample(code[:-2], 3), " ".join(code))


def _translation_rule(rng: random.Random) -> tuple[dict[str, str], dict[str, str]]:
    new = _distinct(rng, 8)
    return dict(zip(words.COLOURS[:4], new[:4], strict=True)), dict(zip(words.ANIMALS[:4], new[4:], strict=True))


def _ask_translation(rng: random.Random, rule: tuple[dict[str, str], dict[str, str]]) -> Item:
    colours, animals = rule
    colour, animal = rng.choice(list(colours)), rng.choice(list(animals))
    opening = f"{rng.choice(words.NAMES)} saw {rng.choice(('a', 'the', 'one', 'my', 'our'))}"
    wrong = [f"{colours[c]} {animals[a]}" for c in colours for a in animals if (c == colour) != (a == animal)]
    right = f"{colours[colour]} {animals[animal]}"
    return _item(rng, f"{opening} {colour} {animal} ->", right, rng.sample(wrong, 3), f"{opening} {colour} {animal}")


def _label_rule(rng: random.Random) -> tuple[str, ...]:
    return tuple(_distinct(rng, 4))


def _ask_label(rng: random.Random, rule: tuple[str, ...]) -> Item:
    first, second = rng.choice((words.COLOURS, words.MONTHS)), rng.choice((words.ANIMALS, words.FRUITS))
    pair = f"{rng.choice(first)} {rng.choice(second)}"
    right = rule[2 * (first is words.MONTHS) + (second is words.FRUITS)]
    return _item(rng, f"{pair}:", right, [label for label in rule if label != right], pair)


def _sort_rule(rng: random.Random) -> tuple[str, str, str, str]:
    kinds = rng.sample(sorted(words.KINDS), 2)
    labels = _distinct(rng, 2)
    return kinds[0], kinds[1], labels[0], labels[1]


def _ask_sort(rng: random.Random, rule: tuple[str, str, str, str]) -> Item:
    which = rng.randrange(2)
    word = rng.choice(words.KINDS[rule[which]])
    context = f"The {rng.choice(words.ADJECTIVES)} {word} in the {rng.choice(words.PLACES)} is"
    return _item(rng, context, rule[2 + which], [rule[3 - which]], context)


def _lookup_rule(rng: random.Random) -> dict[str, str]:
    names = rng.sample(words.NAMES, 4)
    return dict(zip(names, rng.sample(words.THINGS, 4), strict=True))


def _ask_lookup(rng: random.Random, rule: dict[str, str]) -> Item:
    name, place, month = rng.choice(list(rule)), rng.choice(words.PLACES), rng.choice(words.MONTHS)
    wrong = [thing for owner, thing in rule.items() if owner != name]
    return _item(rng, f"{month}, in the {place}: {name} has the", rule[name], wrong, f"{name} {place} {month}")


def _ask_completion(rng: random.Random, rule: None) -> Item:
    action, right, wrong = rng.choice(words.USES)
    user = rng.choice(words.USERS)
    opening = rng.choice(("needs", "will use", "asked for", "bought"))
    article = "" if right.endswith("s") else " a" if right[0] not in "aeiou" else " an"
    return _item(rng, f"To {action}, {user} {opening}{article}", right, [wrong], f"{action} {user} {opening}")


def _ask_question(rng: random.Random, rule: None) -> Item:
    kind = rng.choice(sorted(words.KINDS))
    others = rng.sample([other for other in sorted(words.KINDS) if other != kind], 3)
    word = rng.choice(words.KINDS[kind])
    wrong = [rng.choice(words.KINDS[other]) for other in others]
    form = rng.choice(("Which word names a {}?", "What is the name of a {}?", "Which word is a kind of {}?"))
    asked = f"{rng.choice(words.NAMES)} asks: {form.format(kind).replace(' a animal', ' an animal')}"
    return _item(rng, f"Question: {asked}\nAnswer:", word, wrong, f"{asked} {word}")


def _ask_blank(rng: random.Random, rule: None) -> Item:
    giver, taker = rng.sample(words.NAMES, 2)
    thing = rng.choice(words.THINGS)
    verb = rng.choice(("gave", "sent", "sold", "lent"))
    asked, right = rng.choice((("who got", taker), ("who lost", giver)))
    context = f"{giver} {verb} the {thing} to {taker}. The one {asked} the {thing} was"
    return _item(rng, context, right, [giver if right == taker else taker], f"{giver} {taker} {thing} {asked}")


def _ask_yes_no(rng: random.Random, rule: None) -> Item:
    names, colours = rng.sample(words.NAMES, 2), rng.sample(words.COLOURS, 2)
    garment = rng.choice(words.CLOTHES)
    who, colour = rng.randrange(2), rng.randrange(2)
    context = (
        f"{names[0]} has a {colours[0]} {garment}. {names[1]} has a {colours[1]} {garment}.\n"
        f"Question: Does {names[who]} have a {colours[colour]} {garment}?\nAnswer:"
    )
    combination = f"{names[who]} {colours[colour]} {garment}"
    return Item(context, ("no", "yes"), int(who == colour), combination)


def _ask_entailment(rng: random.Random, rule: None) -> Item:
    animals, places = rng.sample(words.ANIMALS, 2), rng.sample(words.PLACES, 2)
    gold = rng.randrange(3)
    claim = (f"The {animals[0]} is in the {places[0]}", f"The {animals[0]} is in the {places[1]}",
             f"The {animals[1]} is in the {places[1]}")[gold]  # fmt: skip
    context = f"The {animals[0]} is in the {places[0]}.\nQuestion: {claim}. True, False, or Neither?\nAnswer:"
    return Item(context, ("True", "False", "Neither"), gold, f"{animals[0]} {places[0]} {claim}")


def _ask_same_kind(rng: random.Random, rule: None) -> Item:
    kinds = rng.sample(sorted(words.KINDS), 2)
    same = rng.random() < 0.5
    first = rng.choice(words.KINDS[kinds[0]])
    second = rng.choice([w for w in words.KINDS[kinds[0] if same else kinds[1]] if w != first])
    context = f"Word 1: {first}\nWord 2: {second}\nQuestion: Are both words of the same kind?\nAnswer:"
    return Item(context, ("no", "yes"), int(same), f"{first} {second}")


def _ask_cloze(rng: random.Random, rule: None) -> Item:
    hero, other = rng.sample(words.FAMILIES, 2)
    title = rng.choice(("Mr.", "Mrs.", "Miss", "Captain", "Doctor"))
    place, second = rng.sample(words.PLACES, 2)
    thing = rng.choice(words.THINGS)
    context = (
        f"{title} {hero} lived near the {place} and kept a {thing} there. "
        f"One day the {other} family came to the {second}, and they asked for {title}"
    )
    wrong = [other, *rng.sample([name for name in words.FAMILIES if name not in (hero, other)], 2)]
    return _item(rng, context, hero, wrong, f"{title} {hero} {place} {thing}")


def _keyed(keys: tuple[str, ...], answers: tuple[str, ...] | None) -> Callable[[random.Random], dict[str, str]]:
    """A rule that gives 4 keys an answer each; None: invented words."""

    def rule(rng: random.Random) -> dict[str, str]:
        chosen = rng.sample(keys, 4)
        return dict(zip(chosen, rng.sample(answers, 4) if answers else _distinct(rng, 4), strict=True))

    return rule


def _ask_keyed(rng: random.Random, rule: dict[str, str], sentence: Callable[[random.Random], str]) -> Item:
    """A sentence whose last word is the key: finding it in an example and copying what followed gives the answer."""
    key = rng.choice(list(rule))
    context = f"{sentence(rng)} {key}"
    return _item(rng, context, rule[key], [answer for other, answer in rule.items() if other != key], context)


def _ask_surname(rng: random.Random, rule: dict[str, str]) -> Item:
    verbs = ("met", "saw", "thanked", "invited")
    return _ask_keyed(rng, rule, lambda r: f"In {r.choice(words.MONTHS)}, near the {r.choice(words.PLACES)}, we "
                                           f"{r.choice(verbs)}")  # fmt: skip


def _ask_outfit(rng: random.Random, rule: dict[str, str]) -> Item:
    verbs = ("wore", "lost", "found", "wanted")
    return _ask_keyed(rng, rule, lambda r: f"At the {r.choice(words.PLACES)}, {r.choice(words.NAMES)} "
                                           f"{r.choice(verbs)} the")  # fmt: skip


def _ask_walk(rng: random.Random, rule: dict[str, str]) -> Item:
    verbs = ("walked", "ran", "drove", "went")
    return _ask_keyed(rng, rule, lambda r: f"In {r.choice(words.MONTHS)} {r.choice(words.NAMES)} {r.choice(verbs)} "
                                           f"to the")  # fmt: skip


def _ask_pet(rng: random.Random, rule: dict[str, str]) -> Item:
    verbs = ("named", "called", "will call", "has called")
    return _ask_keyed(rng, rule, lambda r: f"In {r.choice(words.MONTHS)}, {r.choice(words.USERS)} {r.choice(verbs)} "
                                           f"the")  # fmt: skip


FAMILIES = {
    family.name: family
    for family in (
        Family("demo_outfit", "Colour of a garment", "which garment has the colour, told by the examples",
               0.25, _keyed(words.COLOURS, words.CLOTHES), _ask_outfit),
        Family("demo_surname", "Surnames", "whose surname is what, told only by the examples, 4 answers", 0.25,
               _keyed(words.NAMES, words.FAMILIES), _ask_surname),
        Family("demo_walk", "Which place", "which place is so described, told by the examples", 0.25,
               _keyed(words.ADJECTIVES[:6], words.PLACES), _ask_walk),
        Family("demo_pet", "Invented pet names", "what an animal is called, told only by the examples, 4 answers", 0.25,
               _keyed(words.ANIMALS, None), _ask_pet),
        Family("demo_sort", "Two invented labels", "which invented label a word gets, 2 labels", 0.5,
               _sort_rule, _ask_sort),
        Family("demo_label", "Pattern labels", "which label a pair of kinds gets, 4 labels", 0.25,
               _label_rule, _ask_label),
        Family("demo_translation", "Invented language", "word by word into an invented language, 4 answers", 0.25,
               _translation_rule, _ask_translation),
        Family("demo_lookup", "Who has what", "what a person has, told only by the examples, 4 answers", 0.25,
               _lookup_rule, _ask_lookup),
        Family("demo_copy", "Literal copying", "the last word of a list that was just given, 4 answers", 0.25,
               _no_rule, _ask_copy),
        Family("demo_cloze", "A name returns", "which name is meant, 4 answers", 0.25, _no_rule, _ask_cloze),
        Family("demo_completion", "Right tool", "which of 2 things does the job", 0.5, _no_rule, _ask_completion),
        Family("demo_question", "Kinds of things", "which word is of the kind asked, 4 answers", 0.25,
               _no_rule, _ask_question),
        Family("demo_blank", "Giver or taker", "which of 2 people is meant", 0.5, _no_rule, _ask_blank),
        Family("demo_yesno", "Yes or no", "a question on two sentences", 0.5, _no_rule, _ask_yes_no),
        Family("demo_entailment", "Does it follow", "true, false or neither", 1 / 3, _no_rule, _ask_entailment),
        Family("demo_samekind", "Same kind", "are two words of the same kind", 0.5, _no_rule, _ask_same_kind),
    )
}  # fmt: skip
