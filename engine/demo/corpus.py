"""Training text for the embedded model: UTF-8 files (also xz-compressed), documents separated by <|endoftext|>."""

import lzma
from pathlib import Path

from engine.errors import HeadroomError

# characters taken of each source, evenly spread over the file: simple prose first, then textbooks
CHARACTERS = {"african_storybook": 2_000_000, "classic_books": 9_000_000, "openstax": 5_000_000,
              "us_presidential": 1_000_000, "cia_factbook": 500_000}  # fmt: skip
PIECE = 20_000


def documents(folder: Path) -> list[str]:
    """Pieces of the texts in `folder`; HeadroomError where there are none."""
    files = sorted([*folder.glob("*.txt"), *folder.glob("*.txt.xz")])
    if not files:
        raise HeadroomError(f"no .txt or .txt.xz files in {folder}; give a folder with training text")
    pieces: list[str] = []
    for file in files:
        text = (lzma.open(file, "rt", encoding="utf-8") if file.suffix == ".xz" else file.open(encoding="utf-8")).read()
        text = text.replace("<|endoftext|>", "\n\n")
        wanted = next((count for name, count in CHARACTERS.items() if file.name.startswith(name)), len(text))
        n_pieces = max(1, min(wanted, len(text)) // PIECE)
        for number in range(n_pieces):
            start = number * (len(text) // n_pieces)
            pieces.append(text[start : start + PIECE].strip())
    return pieces
