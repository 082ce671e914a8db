"""Training text for the embedded model: UTF-8 files (also xz-compressed), documents separated by <|endoftext|>."""

import lzma
from pathlib import Path

from engine.errors import HeadroomError

# characters taken of each source, evenly spread over the file, and how often each is read: simple prose above all
SOURCES = {"african_storybook": (2_000_000, 4), "classic_books": (24_000_000, 1), "openstax": (2_000_000, 1),
           "us_presidential": (500_000, 1), "cia_factbook": (300_000, 1)}  # fmt: skip
PIECE = 20_000
HELD_OUT_EVERY = 50  # of each source's pieces, the last of so many is never trained on (of fewer, the last)


def documents(folder: Path) -> tuple[list[str], list[str]]:
    """(pieces to train on, held-out pieces) of the texts in `folder`; HeadroomError where there are none."""
    files = sorted([*folder.glob("*.txt"), *folder.glob("*.txt.xz")])
    if not files:
        raise HeadroomError(f"no .txt or .txt.xz files in {folder}; give a folder with training text")
    trained: list[str] = []
    held_out: list[str] = []
    for file in files:
        text = (lzma.open(file, "rt", encoding="utf-8") if file.suffix == ".xz" else file.open(encoding="utf-8")).read()
        text = text.replace("<|endoftext|>", "\n\n")
        wanted, times = next((s for name, s in SOURCES.items() if file.name.startswith(name)), (len(text), 1))
        n_pieces = max(1, min(wanted, len(text)) // PIECE)
        step = len(text) // n_pieces
        pieces = [text[number * step : number * step + PIECE].strip() for number in range(n_pieces)]
        aside = {number for number in range(n_pieces) if number % HELD_OUT_EVERY == HELD_OUT_EVERY - 1}
        if not aside and n_pieces > 1:
            aside = {n_pieces - 1}
        held_out += [pieces[number] for number in sorted(aside)]
        trained += [piece for number, piece in enumerate(pieces) if number not in aside] * times
    return trained, held_out
