"""Text files as other programs write them: their encoding and line ends."""

import codecs
from pathlib import Path

from engine.errors import HeadroomError

# by their first bytes; those of UTF-32 come first, as they begin with those of UTF-16
ENCODINGS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF32_LE: "utf-32-le", codecs.BOM_UTF32_BE: "utf-32-be",
             codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}  # fmt: skip


def as_utf8(file: Path, raw: bytes) -> bytes:
    """Returns the text of a file in UTF-8 with line feeds, without a byte order mark. HeadroomError: it is in another
    encoding that its first bytes do not name, as far as that is certain; bytes that are not UTF-8 stay."""
    for mark, encoding in ENCODINGS.items():
        if raw.startswith(mark):
            raw = raw.removeprefix(mark)
            if encoding != "utf-8":
                raw = _transcoded(file, raw, encoding)
            break
    while raw.startswith(codecs.BOM_UTF8):  # of a file that was saved twice
        raw = raw.removeprefix(codecs.BOM_UTF8)
    raw = raw.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if (at := raw.find(b"\0")) >= 0:
        raise HeadroomError(f"{file}, row {row_at(raw, at)}: has a NUL byte, as text in UTF-16 has whose first bytes "
                            "do not say so; save the file as UTF-8")  # fmt: skip
    return raw


def row_at(raw: bytes, at: int) -> int:
    """Returns the number of the line that has the byte at this place, from 1."""
    return raw.count(b"\n", 0, at) + 1


def _transcoded(file: Path, raw: bytes, encoding: str) -> bytes:
    try:
        return raw.decode(encoding).encode("utf-8")
    except UnicodeError as error:
        name = encoding[:-3].upper()
        raise HeadroomError(
            f"{file} cannot be read as {name}, as its first bytes say ({error}); save it as UTF-8"
        ) from error
