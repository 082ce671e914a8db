"""Training text for the embedded model: UTF-8 files (also xz-compressed), and the Python standard library's source."""

import lzma
import random
import sysconfig
from pathlib import Path

from engine.errors import HeadroomError

# characters taken of each source, evenly spread over the file, and how often each is read
SOURCES = {"african_storybook": (2_000_000, 4), "classic_books": (50_000_000, 1), "openstax": (45_000_000, 1),
           "us_presidential": (3_000_000, 1), "cia_factbook": (3_000_000, 1)}  # fmt: skip
PYTHON_CHARACTERS = 6_000_000
PIECE = 20_000
HELD_OUT_EVERY = 50  # of each source's pieces, the last of so many is never trained on (of fewer, the last)


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
