"""The words of the embedded questions, by kind. Every list is plain English or invented; nothing here is quoted."""

ANIMALS = tuple(
    "dog cat horse cow sheep goat pig hen duck fox wolf bear lion mouse frog snake crow owl bee fish".split()
)
FRUITS = tuple("apple pear plum grape lemon peach cherry melon orange fig lime berry mango date banana olive".split())
COLOURS = tuple("red blue green yellow black white brown grey pink purple golden silver".split())
MONTHS = tuple("January February March April May June July August September October November December".split())
TOOLS = tuple("hammer saw spade rake axe brush needle rope ladder bucket knife spoon".split())
CLOTHES = tuple("hat coat shirt dress scarf glove boot shoe belt sock cap cloak".split())
KINDS = {"animal": ANIMALS, "fruit": FRUITS, "colour": COLOURS, "month": MONTHS, "tool": TOOLS, "garment": CLOTHES}

NAMES = tuple(
    "Anna Tom Mary John Alice Peter Rose Henry Jane George Ellen Robert Kate Frank Lucy Arthur Clara Edward Emma "
    "Charles Helen William Ruth James Laura Paul Martha David Nancy Walter".split()
)
FAMILIES = tuple("Marlow Benton Harding Corliss Denham Farrow Gresham Hollis Kersey Landon Merton Norwood".split())
PLACES = tuple("garden house barn field river road school church mill forest shop kitchen market harbour".split())
THINGS = tuple("ball book box cup key lamp letter map pen ring stone watch basket candle coin drum".split())
ADJECTIVES = tuple("big small old new long short round heavy light strong".split())

# action, the thing that does it, and things that do not
USES = (
    ("cut the bread", "knife", "pillow"), ("sweep the floor", "broom", "spoon"), ("write a letter", "pen", "shoe"),
    ("light the room", "lamp", "stone"), ("open the lock", "key", "cup"), ("carry the water", "bucket", "fork"),
    ("dig a hole", "spade", "ribbon"), ("drive in a nail", "hammer", "feather"), ("sew the coat", "needle", "barrel"),
    ("tell the time", "clock", "blanket"), ("eat the soup", "spoon", "rope"), ("climb the wall", "ladder", "button"),
    ("tie up the boat", "rope", "plate"), ("keep off the rain", "umbrella", "candle"),
    ("cross the lake", "boat", "chair"),
    ("see far away", "telescope", "basket"), ("cook the meat", "oven", "book"), ("dry the dishes", "towel", "brick"),
    ("paint the door", "brush", "bell"), ("warm the hands", "gloves", "coin"), ("sleep at night", "bed", "axe"),
    ("catch a fish", "net", "mirror"), ("play a tune", "violin", "shovel"), ("pay the man", "coins", "leaves"),
)  # fmt: skip
USERS = ("a man", "the girl", "my uncle", "the old woman", "a boy", "our neighbour", "the farmer", "her brother")

SYLLABLES = tuple(
    "ba be bo da de do fa fi fo ga go ka ke ki ko la le li lo ma me mi mo na ne no pa pi po ra re ri ro sa se so ta te "
    "ti to va ve vo wa wi za zo".split()
)
