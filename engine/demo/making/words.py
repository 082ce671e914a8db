"""The words of the embedded questions, by kind. Every list is plain English or invented; nothing here is quoted."""

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

# what is to be done, the thing that does it
USES = (
    ("cut the bread", "knife"), ("sweep the floor", "broom"), ("write a letter", "pen"), ("light the room", "lamp"),
    ("open the lock", "key"), ("carry the water", "bucket"), ("dig a hole", "spade"), ("drive in a nail", "hammer"),
    ("sew the coat", "needle"), ("tell the time", "clock"), ("eat the soup", "spoon"), ("climb the wall", "ladder"),
    ("tie up the boat", "rope"), ("keep off the rain", "umbrella"), ("cross the lake", "boat"),
    ("see far away", "telescope"), ("cook the meat", "oven"), ("dry the dishes", "towel"), ("paint the door", "brush"),
    ("warm the hands", "fire"), ("sleep at night", "bed"), ("catch a fish", "net"), ("play a tune", "violin"),
    ("pay the man", "coin"), ("fell the tree", "axe"), ("drink the tea", "cup"), ("ride over the hill", "horse"),
    ("find the way", "map"), ("call the village", "bell"), ("sit by the table", "chair"),
)  # fmt: skip

# what someone hears of a place, and whether people can go in
OPEN = ("has opened its doors", "welcomes every visitor", "is free for all", "lets people in", "is open today",
        "greets its guests")  # fmt: skip
SHUT = ("has locked its doors", "turns every visitor away", "is closed for all", "keeps people out", "is shut today",
        "burned down long ago")  # fmt: skip

# how an animal moved with regard to a place, and what follows for "it is inside": True, False, Neither
MOVES = (
    ("True", ("ran into", "sleeps in", "hid inside", "went into", "stays in", "entered")),
    ("False", ("ran out of", "left", "fled from", "came out of", "keeps out of", "escaped from")),
    ("Neither", ("thought about", "heard about", "talked of", "dreamed of", "asked about", "wondered about")),
)

# what the giver does next, and what the taker does next
GIVERS_DO = ("counted the money", "missed it badly", "had none left", "regretted the loss", "waved goodbye",
             "wanted it back")  # fmt: skip
TAKERS_DO = ("carried it home", "thanked warmly", "kept it safely", "used it daily", "took it away",
             "received it gladly")  # fmt: skip

# a word with two senses; sentences that show each
SENSES = {
    "bank": (("sat on the grassy bank", "fished from the muddy bank", "tied the boat at the bank"),
             ("put money in the bank", "asked the bank for gold", "got a loan from the bank")),
    "bat": (("saw the bat fly", "feared the furry bat", "found a bat asleep"),
            ("swung the wooden bat", "hit the ball with a bat", "carved a new bat")),
    "spring": (("planted seeds in spring", "saw flowers in spring", "waited for the warm spring"),
               ("drank from the spring", "filled a jug at the spring", "washed in the clear spring")),
    "letter": (("posted a letter", "sealed the letter", "put a stamp on the letter"),
               ("spelled the first letter", "learned each letter of a word", "wrote a capital letter")),
    "ring": (("wore a golden ring", "lost the wedding ring", "bought a diamond ring"),
             ("heard the telephone ring", "let the bells ring", "waited for the bell to ring")),
    "palm": (("climbed the tall palm", "sat under a palm", "planted a palm"),
             ("opened one palm", "showed an empty palm", "held the coin on one palm")),
}  # fmt: skip


def single_tokens() -> list[str]:
    """Words that the tokenizer must hold whole, as common words are in OPT's."""
    sentences = [*OPEN, *SHUT, *GIVERS_DO, *TAKERS_DO, *(use for use, _ in USES),
                 *(move for _, moves in MOVES for move in moves),
                 *(line for senses in SENSES.values() for sense in senses for line in sense),
                 "True False Neither Question Answer Passage Sentence"]  # fmt: skip
    lists = [*KINDS.values(), NAMES, FAMILIES, PLACES, THINGS, QUALITIES, INVENTED, NUMBERS,
             tuple(tool for _, tool in USES), tuple(" ".join(sentences).split())]  # fmt: skip
    return sorted({word for words in lists for word in words})
