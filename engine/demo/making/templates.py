"""The sentences of the embedded questions, by family; fields in braces are filled from `engine.demo.making.words`.

In the families with a rule, `{key}` stands at distances from the answer that vary from sentence to sentence.
"""

TEMPLATES: dict[str, tuple[str, ...]] = {
    "demo_outfit": (
        "At the {place}, {name} wore the {key}",
        "{name} went to the {place} and bought the {key}",
        "In {month}, {name} mended the {key} {quality}",
        "{user} of the {place} lost the {key} and {quality}",
    ),
    "demo_surname": (
        "In {month}, near the {place}, we met {key}",
        "{user} asked in {month} about {key}",
        "A letter came to the {place} for {key}, born",
        "The {thing} by the {place} belongs to {key} the young",
    ),
    "demo_walk": (
        "In {month} {name} walked to the {key}",
        "{user} and {name} met at the {key}",
        "{name} lost a {thing} in the {key} {hue}",
        "Early in {month} we saw the {key} and {hue}",
    ),
    "demo_pet": (
        "In {month}, {user} named the {key}",
        "{name} of the {place} calls the {key}",
        "After {month}, {name} will call the {key} little",
        "At the {place}, the {key} is called",
    ),
    "demo_price": (
        "At the {place}, {name} paid for the {key}",
        "In {month} they asked for the {key}",
        "{user} of the {place} will pay for the {key} about",
        "{name} had to give {user} for the {key} at least",
    ),
    "demo_translation": (
        "{name} wrote: {colour} {animal} means",
        "In {month} we learned: {colour} {animal} there means",
        "{user} of the {place} said: {colour} {animal} is called",
        "A book from the {place} says: {colour} {animal} means",
    ),
    "demo_label": ("{pair}:", "The {pair}:", "One {pair} is", "{name}, {pair}:", "Here, {pair} gives"),
    "demo_sort": (
        "The {quality} {key} is",
        "In {month}, the {key} is",
        "{name} says the {key} is a",
        "{user} thinks of the {key} as",
    ),
    "demo_lookup": (
        "{month}, in the {place}: {key} has the",
        "In the {place} {name} gave {key} a",
        "{user} of the {place} knows {key} wants the",
        "Late in {month}, near the {place}, {key} then hid the",
    ),
    "demo_guest": (
        "Passage: {name} hears a knock at the {place} late in {month}.\nQuestion: Open the door for the {key}\nAnswer:",
        "{user} keeps the gate of the {place}. Let in the {key}:",
        "In {month}, at the {place}, may {name} have the {key} there?",
        "{name} has room at the {place}. A bed for the {key}?",
    ),
    "demo_yesno": (
        "Passage: The {place} has {state}.\nQuestion: Can {name} go in?\nAnswer:",
        "Passage: In {month}, the {place} has {state}.\nQuestion: Can visitors look around inside?\nAnswer:",
        "Passage: {name} heard that the {place} has {state}.\nQuestion: Is it open to {user}?\nAnswer:",
        "Passage: They say the old {place} has {state}.\nQuestion: Could {name} step inside?\nAnswer:",
    ),
    "demo_entailment": (
        "The {animal} {move} the {place}.\nQuestion: The {animal} is inside. True, False, or Neither?\nAnswer:",
        "In {month}, the {animal} {move} the {place}.\n"
        "Question: The {animal} is there. True, False, or Neither?\nAnswer:",
        "{name} saw that the {animal} {move} the {place}.\nQuestion: It is inside. True, False, or Neither?\nAnswer:",
        "We read how the {animal} {move} the {place}.\nQuestion: It is now there. True, False, or Neither?\nAnswer:",
    ),
    "demo_sense": (
        "{name} {phrase}. Here {word} means",
        "In {month}, {user} {phrase}. The {word} is a kind of",
        "At the {place} {name} {phrase}. That {word} has to do with",
        "{user} {phrase}. Think of",
    ),
    "demo_blank": (
        "{giver} sold the {thing} to {taker}, then",
        "In {month}, {giver} sent the {thing} to {taker}. Afterwards",
        "{giver} gave the {thing} to {taker}, and so",
        "At the {place}, {giver} lent the {thing} to {taker}. Later",
    ),
    "demo_completion": (
        "To {action}, {user} needs the",
        "{user} wants to {action} and looks for the",
        "To {action} at the {place}, {name} bought the",
        "{name} could not {action} without the",
    ),
    "demo_question": (
        "Question: {name} asks: Which word names a kind of {kind}?\nAnswer:",
        "Question: {user} wants to know the name of some {kind}.\nAnswer:",
        "Question: In {month} {name} learned a word for a {kind}. Which?\nAnswer:",
        "Question: Which of these is a {kind}, said {name}?\nAnswer:",
    ),
    "demo_copy": (
        "The list is: {list}. Again: {start}",
        "{name} sang: {list}. Then {name} sang: {start}",
        "On the wall stood {list}. {name} read: {start}",
        "First came {list}. In {month} came {start}",
    ),
    "demo_cloze": (
        "{title} {hero} lived near the {place} and kept a {thing} there. "
        "One day the {other} family came to the {place2}, and they asked for {title}",
        "In {month} the {other} family met {title} {hero} at the {place}. "
        "They had lost a {thing}, and it was found by {title}",
        "The {place} was built by {title} {hero}. When the {other} family bought the {thing}, they paid {title}",
        "{name} wrote a letter to {title} {hero} and sent the {thing} to the {other} family. "
        "In {month} there was an answer from {title}",
    ),
}
