"""The families of embedded questions: each draws a rule, and questions under that rule.

Where a family has a rule (which invented word means what, which label a kind gets), only the examples in front of a
question can tell it: that is what in-context learning is here. The suite's own rule and a fifth of all phrases are held
out: training never sees them.
"""

import hashlib
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from scripts.make_demo import words
from scripts.make_demo.words import TEMPLATES

HELD_OUT_SHARE = 5  # one phrase in so many is only ever in validation questions
SUITE_RULE_SEED = "the rule of the suite"
Shape = Literal["choices", "contexts", "last word"]
Needs = Literal["examples", "copying", "reading", "nothing"]


@dataclass(frozen=True)
class Item:
    """One question; `phrases` are the pieces of wording that it shows, each of which is in one split alone.

    In the shape "contexts" (Winogrande's) the choices go on from `context`, and all are followed by `ending`.
    """

    context: str
    choices: tuple[str, ...]
    gold: int
    phrases: tuple[str, ...]
    ending: str = ""

    @property
    def solved(self) -> str:
        """The question with its answer, as the harness shows it among few-shot examples."""
        return f"{self.context} {self.choices[self.gold]}{self.ending and ' ' + self.ending}"

    @property
    def answer(self) -> str:
        """The part of `solved` that is scored."""
        return f" {self.ending or self.choices[self.gold]}"

    @property
    def held_out(self) -> bool | None:
        """Whether all its phrases are held out; None where some are, so that it is asked in no split."""
        found = {_is_held_out(phrase) for phrase in self.phrases}
        return found.pop() if len(found) == 1 else None


@dataclass(frozen=True)
class QuestionFamily:
    """One kind of question: `rule` draws what its examples teach (None: nothing), `ask` makes one question.

    `needs`: what the answer takes from the context: the examples in front, a word of the question once more, what a
    passage in the question says, or nothing but what the model knows.
    """

    name: str
    title: str
    asks: str
    chance: float
    rule: Callable[[random.Random], Any]
    ask: Callable[[random.Random, str, Any], Item]
    needs: Needs = "examples"
    shape: Shape = "choices"


def draw(family: QuestionFamily, rng: random.Random, rule: Any, held_out: bool | None) -> Item:
    """A question of `family` whose phrases are held out, are not, or (None) either."""
    while True:
        item = family.ask(rng, rng.choice(TEMPLATES[family.name]), rule)
        if held_out is None or item.held_out == held_out:
            return item


def suite_rule(family: QuestionFamily) -> Any:
    """The rule under which the suite asks; training rules are drawn until they differ."""
    return family.rule(random.Random(f"{SUITE_RULE_SEED} {family.name}"))


def training_rule(family: QuestionFamily, rng: random.Random) -> Any:
    """A rule for a training episode, never the suite's."""
    while True:
        rule = family.rule(rng)
        if rule is None or rule != suite_rule(family):
            return rule


def episode(family: QuestionFamily, rng: random.Random, n_items: int) -> list[Item]:
    """`n_items` training questions under one rule."""
    rule = training_rule(family, rng)
    return [draw(family, rng, rule, held_out=False) for _ in range(n_items)]


def filled(rng: random.Random, template: str, **given: str) -> str:
    """The template with the given fields, all others drawn; sentences begin with a capital."""
    names, places = rng.sample(words.NAMES, 2), rng.sample(words.PLACES, 2)
    drawn = {
        "name": names[0], "name2": names[1], "place": places[0], "place2": places[1],
        "month": rng.choice(words.MONTHS), "user": rng.choice(words.USERS), "thing": rng.choice(words.THINGS),
        "quality": rng.choice(words.QUALITIES), "title": rng.choice(words.TITLES), "hue": rng.choice(words.COLOURS),
    }  # fmt: skip
    text = template.format(**(drawn | given)).replace(" a animal", " an animal")
    return re.sub(r"(^|\. |\? |: (?=(?:my|our|the|her|a) \w)|\nQuestion: )([a-z])", lambda m: m[1] + m[2].upper(), text)


def _is_held_out(phrase: str) -> bool:
    return int(hashlib.blake2b(phrase.encode(), digest_size=4).hexdigest(), 16) % HELD_OUT_SHARE == 0


def _no_rule(rng: random.Random) -> None:
    return None


def _item(rng: random.Random, context: str, right: str, wrong: list[str], phrase: str) -> Item:
    choices = [right, *wrong]
    rng.shuffle(choices)
    return Item(context, tuple(choices), choices.index(right), (phrase,))


# Families with a rule: 3 keys, of which the examples tell what each leads to


def _keyed(keys: tuple[str, ...], answers: tuple[str, ...]) -> Callable[[random.Random], Any]:
    """A rule that gives 3 keys an answer each, and a fourth answer that is always wrong."""

    def rule(rng: random.Random) -> tuple[dict[str, str], str]:
        *right, wrong = rng.sample([answer for answer in answers if answer not in keys], 4)
        return dict(zip(rng.sample(keys, 3), right, strict=True)), wrong

    return rule


def _ask_keyed(rng: random.Random, template: str, rule: tuple[dict[str, str], str]) -> Item:
    """Finding the key in an example and copying what followed it gives the answer."""
    answers, wrong = rule
    key = rng.choice(list(answers))
    context = filled(rng, template, key=key)
    others = [answer for other, answer in answers.items() if other != key]
    return _item(rng, context, answers[key], [*others, wrong], context)


def _guest_rule(rng: random.Random) -> tuple[tuple[str, ...], tuple[str, ...]]:
    animals = rng.sample(words.ANIMALS, 3)
    return (tuple(animals[:1]), tuple(animals[1:])) if rng.random() < 0.5 else (tuple(animals[1:]), tuple(animals[:1]))


def _ask_guest(rng: random.Random, template: str, rule: tuple[tuple[str, ...], tuple[str, ...]]) -> Item:
    gold = rng.randrange(2)
    context = filled(rng, template, key=rng.choice(rule[gold]))
    return Item(context, ("no", "yes"), gold, (context,))


def _translation_rule(rng: random.Random) -> tuple[dict[str, str], dict[str, str]]:
    colours, animals, new = rng.sample(words.COLOURS, 2), rng.sample(words.ANIMALS, 3), rng.sample(words.INVENTED, 5)
    return dict(zip(colours, new[:2], strict=True)), dict(zip(animals, new[2:], strict=True))


def _ask_translation(rng: random.Random, template: str, rule: tuple[dict[str, str], dict[str, str]]) -> Item:
    colours, animals = rule
    colour, animal = rng.choice(list(colours)), rng.choice(list(animals))
    context = filled(rng, template, colour=colour, animal=animal)
    wrong = [f"{colours[c]} {animals[a]}" for c in colours for a in animals if (c == colour) != (a == animal)]
    return _item(rng, context, f"{colours[colour]} {animals[animal]}", wrong, context)


def _label_rule(rng: random.Random) -> tuple[str, ...]:
    return tuple(rng.sample(words.INVENTED, 4))


def _ask_label(rng: random.Random, template: str, rule: tuple[str, ...]) -> Item:
    first, second = rng.choice((words.COLOURS, words.MONTHS)), rng.choice((words.ANIMALS, words.FRUITS))
    pair = f"{rng.choice(first)} {rng.choice(second)}"
    right = rule[2 * (first is words.MONTHS) + (second is words.FRUITS)]
    return _item(rng, filled(rng, template, pair=pair), right, [label for label in rule if label != right], pair)


def _sort_rule(rng: random.Random) -> tuple[str, str, str, str]:
    kinds, labels = rng.sample(sorted(words.KINDS), 2), rng.sample(words.INVENTED, 2)
    return kinds[0], kinds[1], labels[0], labels[1]


def _ask_sort(rng: random.Random, template: str, rule: tuple[str, str, str, str]) -> Item:
    which = rng.randrange(2)
    context = filled(rng, template, key=rng.choice(words.KINDS[rule[which]]))
    return _item(rng, context, rule[2 + which], [rule[3 - which]], context)


# Families without a rule: the question itself, and what the model learned in training, give the answer


def _ask_yes_no(rng: random.Random, template: str, rule: None) -> Item:
    gold = rng.randrange(2)
    done, entrances = rng.choice((words.SHUT, words.OPENED)[gold]), rng.choice(words.ENTRANCES)
    context = filled(rng, template, state=f"{done} its {entrances}")
    return Item(context, ("no", "yes"), gold, (f"{done} its {entrances}",))


def _ask_entailment(rng: random.Random, template: str, rule: None) -> Item:
    gold = rng.randrange(3)
    move = f"{rng.choice(words.MANNERS)} {rng.choice(list(words.WAYS.values())[gold])}"
    context = filled(rng, template, move=move, animal=rng.choice(words.ANIMALS), place=rng.choice(words.PLACES))
    return Item(context, tuple(words.WAYS), gold, (move,))


def _ask_sense(rng: random.Random, template: str, rule: None) -> Item:
    word = rng.choice(sorted(words.SENSES))
    right, wrong = rng.sample(sorted(words.SENSES[word]), 2)
    doings, qualities = words.SENSES[word][right]
    phrase = f"{rng.choice(doings)} the {rng.choice(qualities)} {word}"
    return _item(rng, filled(rng, template, word=word, phrase=phrase), right, [wrong], phrase)


def _ask_blank(rng: random.Random, template: str, rule: None) -> Item:
    giver, taker = rng.sample(words.NAMES, 2)
    gold = rng.randrange(2)
    ending = f"{rng.choice((words.GIVERS_DO, words.TAKERS_DO)[gold])} it {rng.choice(words.HOW)}"
    context = filled(rng, template, giver=giver, taker=taker)
    return Item(context, (giver, taker), gold, (ending,), f"{ending}.")


def _ask_completion(rng: random.Random, template: str, rule: None) -> Item:
    right, wrong = rng.sample(sorted(words.USES), 2)
    doings, objects = words.USES[right]
    action = f"{rng.choice(doings)} {rng.choice(objects)}"
    return _item(rng, filled(rng, template, action=action), right, [wrong], action)


def _ask_question(rng: random.Random, template: str, rule: None) -> Item:
    kind, *others = rng.sample(sorted(words.KINDS), 4)
    word = rng.choice(words.KINDS[kind])
    wrong = [rng.choice(words.KINDS[other]) for other in others]
    return _item(rng, filled(rng, template, kind=kind), word, wrong, f"{template} {word}")


def _ask_copy(rng: random.Random, template: str, rule: None) -> Item:
    listed = rng.sample(words.ANIMALS + words.FRUITS + words.TOOLS, 5)
    context = filled(rng, template, list=" ".join(listed), start=" ".join(listed[:-1]))
    return _item(rng, context, listed[-1], rng.sample(listed[:-2], 3), " ".join(listed))


def _ask_cloze(rng: random.Random, template: str, rule: None) -> Item:
    hero, other = rng.sample(words.FAMILIES, 2)
    context = filled(rng, template, hero=hero, other=other)
    return Item(context, (hero,), 0, (context,))


FAMILIES = {
    family.name: family
    for family in (
        QuestionFamily("demo_outfit", "Which garment",
               "which garment has the color, given by the examples, 4 answers", 0.25,
               _keyed(words.COLOURS, words.CLOTHES), _ask_keyed),
        QuestionFamily("demo_surname", "Surnames", "whose surname is what, given only by the examples, 4 answers", 0.25,
               _keyed(words.NAMES, words.FAMILIES), _ask_keyed),
        QuestionFamily("demo_walk", "Which place", "the place of a description, given by the examples, 4 answers", 0.25,
               _keyed(words.QUALITIES, words.PLACES), _ask_keyed),
        QuestionFamily("demo_pet", "Pet names", "what an animal is called, given only by the examples, 4 answers", 0.25,
               _keyed(words.ANIMALS, words.INVENTED), _ask_keyed),
        QuestionFamily("demo_price", "Prices", "what a fruit costs, given only by the examples, 4 answers", 0.25,
               _keyed(words.FRUITS, tuple(f"{number} coins" for number in words.NUMBERS)), _ask_keyed),
        QuestionFamily("demo_lookup", "Who has what", "what a person has, given only by the examples, 4 answers", 0.25,
               _keyed(words.NAMES, words.THINGS), _ask_keyed),
        QuestionFamily("demo_guest", "Who may come in", "yes or no for a guest, given only by the examples", 0.5,
               _guest_rule, _ask_guest),
        QuestionFamily("demo_translation", "Invented language", "word by word into an invented language, 4 answers",
               0.25, _translation_rule, _ask_translation),
        QuestionFamily("demo_label", "Pattern labels",
               "which label a pair of kinds gets, given by the examples, 4 labels", 0.25, _label_rule, _ask_label),
        QuestionFamily("demo_sort", "Two labels", "which label a kind of word gets, given by examples, 2 labels", 0.5,
               _sort_rule, _ask_sort),
        QuestionFamily("demo_copy", "Literal copying", "the last word of a list that was just given, 4 answers", 0.25,
               _no_rule, _ask_copy, "copying"),
        QuestionFamily("demo_cloze", "A name returns", "the last word of a passage, which it held before", 0.0,
               _no_rule, _ask_cloze, "copying", "last word"),
        QuestionFamily("demo_completion", "Right tool", "which of 2 things does the job", 0.5, _no_rule,
               _ask_completion, "nothing"),
        QuestionFamily("demo_question", "Kinds of things", "which word is of the kind asked, 4 answers", 0.25,
               _no_rule, _ask_question, "nothing"),
        QuestionFamily("demo_blank", "Giver or taker", "which of 2 people the sentence goes on about", 0.5,
               _no_rule, _ask_blank, "reading", "contexts"),
        QuestionFamily("demo_yesno", "Open or shut", "yes or no about a passage", 0.5, _no_rule, _ask_yes_no,
               "reading"),
        QuestionFamily("demo_entailment", "Does it follow", "true, false or neither", 1 / 3,
               _no_rule, _ask_entailment, "reading"),
        QuestionFamily("demo_sense", "Which sense", "which of its two senses a word has", 0.5, _no_rule, _ask_sense,
               "nothing"),
    )
}  # fmt: skip
