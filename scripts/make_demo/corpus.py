"""Training text for the embedded model: UTF-8 files (also xz-compressed), and the Python standard library's source.

Its tokenizer is a byte-level BPE in OPT's format.
"""

import lzma
import random
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from engine.errors import HeadroomError
from engine.training.recipe import Recipe
from engine.training.text import TrainingText, byte_bpe
from scripts.make_demo import words

BEGINNING = 2
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")  # ids 0 to 3, as in OPT; </s> also begins every sequence
TIMES = 3000  # so often the training text repeats the words of the questions, so that each becomes one token
EACH_FOR_TOKENIZER = 4  # every fourth piece is enough to build a vocabulary from
N_HELD_OUT, WINDOWS_A_PIECE = 500, 6  # held-out texts; how many of a piece give about as many

# characters taken of each source, evenly spread over the file, and how often each is read
SOURCES = {"african_storybook": (2_000_000, 4), "classic_books": (50_000_000, 1), "openstax": (45_000_000, 1),
           "us_presidential": (3_000_000, 1), "cia_factbook": (3_000_000, 1)}  # fmt: skip
PYTHON_CHARACTERS = 6_000_000
PIECE = 20_000
HELD_OUT_EVERY = 50  # of each source's pieces, the last of so many is never trained on (of fewer, the last)


def training_text(recipe: Recipe, folder: Path | None) -> TrainingText:
    """The corpus as tokens, every piece begun, and held-out texts of `n_ctx` without a beginning."""
    trained, held_out = documents(folder or Path())
    tokenizer = build_tokenizer(trained[::EACH_FOR_TOKENIZER], recipe.n_vocab)
    tokens = np.concatenate([np.array(tokenizer.encode(piece).ids, np.uint16) for piece in trained])
    whole: list[np.ndarray] = []
    for piece in held_out:
        ids = np.array(tokenizer.encode(piece, add_special_tokens=False).ids, np.uint16)
        whole += [*ids[: len(ids) // recipe.n_ctx * recipe.n_ctx].reshape(-1, recipe.n_ctx)[:WINDOWS_A_PIECE]]
    source = "held-out prose of the embedded model's corpus"
    return TrainingText(tokens, np.stack(whole[:N_HELD_OUT]), tokenizer, source)


def build_tokenizer(texts: Iterable[str], n_vocab: int) -> Any:
    """A trained `tokenizers.Tokenizer` that puts </s> (2) in front, splits at blanks like GPT-2's and loses no byte."""
    return byte_bpe([*texts, *([" " + " ".join(words.single_tokens())] * TIMES)], n_vocab, SPECIAL, SPECIAL[BEGINNING])


def documents(folder: Path) -> tuple[list[str], list[str]]:
    """(pieces to train on, shuffled; held-out pieces of prose); HeadroomError where `folder` has no texts."""
    files = sorted([*folder.glob("*.txt"), *folder.glob("*.txt.xz")])
    if not files:
        raise HeadroomError(f"no .txt or .txt.xz files in {folder}; give a folder with training text")
    trained: list[str] = []
    held_out: list[str] = []
    for file in files:
        held = file.read_bytes()
        text = (lzma.decompress(held) if file.suffix == ".xz" else held).decode().replace("<|endoftext|>", "\n\n")
        wanted, times = next((s for name, s in SOURCES.items() if file.name.startswith(name)), (len(text), 1))
        n_pieces = max(1, min(wanted, len(text)) // PIECE)
        step = len(text) // n_pieces
        pieces = [text[number * step : number * step + PIECE].strip() for number in range(n_pieces)]
        aside = {number for number in range(n_pieces) if number % HELD_OUT_EVERY == HELD_OUT_EVERY - 1}
        if not aside and n_pieces > 1:
            aside = {n_pieces - 1}
        held_out += [pieces[number] for number in sorted(aside)]
        trained += [piece for number, piece in enumerate(pieces) if number not in aside] * times
    trained += _python()
    random.Random(0).shuffle(trained)
    return trained, held_out


def _python() -> list[str]:
    """Source of the standard library that runs this, without its tests."""
    library, found, size = Path(sysconfig.get_paths()["stdlib"]), [], 0
    for file in sorted(library.rglob("*.py")):
        inner = file.relative_to(library).parts
        if not {"site-packages", "dist-packages", "test", "tests", "idlelib", "encodings"} & set(inner):
            text = file.read_text(encoding="utf-8", errors="ignore")
            found += [text[start : start + PIECE] for start in range(0, len(text), PIECE)]
            size += len(text)
        if size > PYTHON_CHARACTERS:
            break
    return found
