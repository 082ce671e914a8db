"""The words of the embedded questions, by kind, and their sentences, by family. Every word is plain English or
invented; nothing here is quoted.
"""

ANIMALS = tuple(
    "dog cat horse cow sheep goat pig hen duck fox wolf bear lion mouse frog snake crow owl bee rabbit deer donkey "
    "goose rat eagle tiger camel monkey turtle spider".split()
)
FRUITS = tuple(
    "apple pear plum grape lemon peach cherry melon orange fig lime berry mango date banana olive apricot coconut "
    "quince raisin currant papaya".split()
)
COLOURS = tuple("red blue green yellow black white brown grey pink purple golden silver scarlet violet".split())
MONTHS = tuple("January February March April May June July August September October November December".split())
TOOLS = tuple("hammer saw spade rake axe brush needle rope ladder bucket knife spoon chisel broom hook file".split())
CLOTHES = tuple("hat coat shirt dress scarf glove boot shoe belt sock cap cloak jacket skirt apron shawl".split())
KINDS = {"animal": ANIMALS, "fruit": FRUITS, "colour": COLOURS, "month": MONTHS, "tool": TOOLS, "garment": CLOTHES}

NAMES = tuple(
    "Anna Tom Mary John Alice Peter Rose Henry Jane George Ellen Robert Kate Frank Lucy Arthur Clara Edward Emma "
    "Charles Helen William Ruth James Laura Paul Martha David Nancy Walter Sarah Simon Grace Oliver Julia Daniel "
    "Fanny Albert Susan Philip".split()
)
FAMILIES = tuple(
    "Marlow Benton Harding Corliss Denham Farrow Gresham Hollis Kersey Landon Merton Norwood Ashby Calder Dalton "
    "Elmore Fenwick Garrow Hatton Ingram Jessop Kendall Langley Milford".split()
)
TITLES = ("Mr.", "Mrs.", "Miss", "Captain", "Doctor")
PLACES = tuple(
    "garden house barn field river road school church mill forest shop kitchen market harbour station castle bridge "
    "tower village stable cellar island library theatre".split()
)
THINGS = tuple(
    "ball book box cup key lamp letter map pen ring stone watch basket candle coin drum bottle clock mirror pillow "
    "blanket chair flag bell kettle saddle ribbon violin".split()
)
QUALITIES = tuple(
    "big small old new long short round heavy light strong quiet narrow empty busy dusty cheap famous lonely".split()
)
INVENTED = tuple(
    "zola mibu kuto vani tebo lumi rako sefi dova pelu gani wozo nemi bako tiru fale moku juna hiba cado sulo revi "
    "yamo kesi pado luna vite zemo gora bilu tano fesu".split()
)
NUMBERS = tuple("two three four five six seven eight ten twenty thirty".split())
USERS = ("a man", "the girl", "my uncle", "the old woman", "a boy", "our neighbour", "the farmer", "her brother",
         "the doctor", "a sailor")  # fmt: skip

# tools and their uses. A phrase is a verb and an object
USES = {
    "knife": (("cut", "slice", "carve"), ("the bread", "the cheese", "the meat", "the cake")),
    "broom": (("sweep", "clear", "tidy"), ("the floor", "the hall", "the stairs", "the yard")),
    "pen": (("write", "copy", "sign"), ("a letter", "a note", "the list", "the paper")),
    "lamp": (("light", "brighten"), ("the room", "the cellar", "the path", "the porch")),
    "bucket": (("carry", "fetch", "pour"), ("the water", "the milk", "the sand", "the wine")),
    "spade": (("dig", "turn", "loosen"), ("the garden", "the soil", "the ground", "the earth")),
    "needle": (("sew", "mend", "stitch"), ("the coat", "the shirt", "the dress", "the scarf")),
    "ladder": (("climb", "reach", "scale"), ("the wall", "the roof", "the tower", "the window")),
    "brush": (("paint", "colour"), ("the door", "the fence", "the chair", "the table")),
    "rope": (("tie", "bind", "fasten"), ("the horse", "the goat", "the sack", "the boat")),
    "axe": (("fell", "chop", "split"), ("the tree", "the log", "the branch", "the trunk")),
    "spoon": (("eat", "stir", "taste"), ("the soup", "the porridge", "the stew", "the broth")),
    "net": (("catch", "trap"), ("the fish", "the salmon", "the trout", "the butterfly")),
    "map": (("find", "follow"), ("the way", "the road", "the trail", "the route")),
    "key": (("open", "unlock"), ("the lock", "the chest", "the gate", "the box")),
    "coin": (("pay", "reward"), ("the man", "the guide", "the driver", "the servant")),
    "oven": (("bake", "roast"), ("the pie", "the potatoes", "the chicken", "the turkey")),
    "towel": (("dry", "wipe"), ("the dishes", "the plates", "the hands", "the glasses")),
    "bell": (("call", "wake"), ("the village", "the guests", "the house", "the monks")),
}  # fmt: skip

# what was done to a place, and to what of it: whether people can go in
OPENED = ("opened", "unlocked", "unbolted", "unbarred", "reopened", "unsealed")
SHUT = ("shut", "locked", "bolted", "barred", "closed", "sealed")
ENTRANCES = ("doors", "gates", "rooms", "halls", "shutters", "entrances", "windows", "chambers")

# how an animal moved, and where to with regard to a place: what follows for "it is inside"
MANNERS = tuple("ran walked crept jumped crawled hopped hurried climbed wandered slipped rushed strolled".split())
WAYS = {"True": ("into", "inside"), "False": ("out of", "away from"), "Neither": ("past", "around")}

# what the giver does next, and what the taker does next, and how
GIVERS_DO = ("missed", "wanted", "regretted", "mourned", "recalled", "lacked")
TAKERS_DO = ("kept", "used", "cleaned", "carried", "enjoyed", "polished")
HOW = ("badly", "daily", "often", "always", "long", "still", "quietly", "gladly")

# a word with two senses, and phrases for each: an action or a property. A phrase is one of both
SENSES = {
    "bank": {"river": (("fished from", "swam to", "sat on", "rowed to"), ("grassy", "muddy", "sandy", "steep")),
             "money": (("borrowed from", "paid", "robbed", "worked for"), ("rich", "royal", "honest", "foreign"))},
    "bat": {"animal": (("feared", "fed", "woke", "heard"), ("furry", "hungry", "sleeping", "brown")),
            "stick": (("swung", "carved", "gripped", "broke"), ("wooden", "heavy", "painted", "cricket"))},
    "spring": {"season": (("waited for", "sowed in", "married in", "sang of"), ("early", "late", "next", "warm")),
               "water": (("drank from", "bathed in", "dug out", "filtered"), ("clear", "cold", "bubbling", "deep"))},
    "letter": {"post": (("posted", "sealed", "answered", "opened"), ("long", "secret", "angry", "friendly")),
               "sign": (("spelled", "pronounced", "printed", "erased"), ("first", "capital", "last", "silent"))},
    "ring": {"jewel": (("wore", "bought", "pawned", "stole"), ("golden", "diamond", "wedding", "precious")),
             "sound": (("heard", "answered", "awaited", "ignored"), ("loud", "shrill", "sudden", "faint"))},
    "palm": {"tree": (("climbed", "planted", "felled", "watered"), ("tall", "shady", "leafy", "tropical")),
             "hand": (("opened", "raised", "showed", "kissed"), ("empty", "open", "sweaty", "left"))},
}  # fmt: skip
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


def single_tokens() -> list[str]:
    """Words that the tokenizer must hold whole, as common words are in OPT's."""
    sentences = [*OPENED, *SHUT, *ENTRANCES, *MANNERS, *GIVERS_DO, *TAKERS_DO, *HOW, *SENSES,
                 *(way for ways in WAYS.values() for way in ways),
                 *(part for uses in USES.values() for parts in uses for part in parts),
                 *(part for each in SENSES.values() for sense in each.values() for parts in sense for part in parts),
                 "True False Neither Question Answer Passage Sentence yes no",
                 "born young called little about least gives then there"]  # fmt: skip
    lists = [*KINDS.values(), NAMES, FAMILIES, PLACES, THINGS, QUALITIES, INVENTED, NUMBERS,
             tuple(USES), tuple(" ".join(sentences).split())]  # fmt: skip
    return sorted({word for words in lists for word in words})
