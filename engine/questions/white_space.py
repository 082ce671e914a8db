"""White space at the ends of a user's own texts. Blanks between context and choice, however many, are the delimiter,
and blanks behind a choice are not part of it. Other white space, which a person does not see either, is text: it is
kept, and named.
"""

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

FIRST_ROWS, MOST_KINDS = 3, 6  # that a note names
# a blank at an end of a JSON string; a text may look like that too, so this only says where to look closer
NEAR_BLANK = re.compile(rb'[\[:,]\s*"(?: |\\u0020)|(?: |\\u0020)"\s*[\],}]')
STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')
NAMES = {"\t": "a tab", "\n": "a line break", "\r": "a line break", "\x0b": "a vertical tab", "\x0c": "a form feed"}
UNSEEN = ("Zs", "Zl", "Zp", "Cc", "Cf")  # categories of Unicode: separators, controls, formats
BLANK_LETTERS = "\u034f\u115f\u1160\u2800\u3164\uffa0"  # unseen letters and signs of other categories


def without_blanks(lines: bytes) -> bytes:
    """Returns JSON lines of `context` and `choices` without blanks behind the contexts and around the choices. Else
    they are written as they were, so that rows are parted as those of a file without such blanks."""
    if not NEAR_BLANK.search(lines):
        return lines
    return b"\n".join(_plain(line) if NEAR_BLANK.search(line) else line for line in lines.split(b"\n"))


def _plain(line: bytes) -> bytes:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):  # reported later, with its row
        return line
    if not isinstance(row, dict):
        return line
    choices = row.get("choices")
    texts = {text: text.strip(" ") for text in choices if isinstance(text, str)} if isinstance(choices, list) else {}
    if isinstance(context := row.get("context"), str):
        texts[context] = context.rstrip(" ")
    changed = {text: plain for text, plain in texts.items() if plain not in ("", text)}

    def replaced(found: re.Match[bytes]) -> bytes:
        plain = changed.get(text := json.loads(found.group()))
        if plain is None:
            return found.group()
        inner = found.group()[1:-1].rstrip(b" ")
        string = b'"%b"' % (inner.lstrip(b" ") if plain[0] != text[0] else inner)
        return string if json.loads(string) == plain else json.dumps(plain).encode()  # a blank may be escaped

    return STRING.sub(replaced, line) if changed else line


def white_space_note(file: str, rows: Iterable[tuple[int, Mapping[str, Any]]]) -> str:
    """Returns a line on white space that is kept at the ends of texts: which, in which rows, and where right and wrong
    choices differ in it; "" without any. `rows`: number and columns of valid rows, of questions or word pairs."""
    found: dict[str, list[int]] = {}
    uneven: list[int] = []
    for number, row in rows:
        for text in dict.fromkeys(_found_in(row)):
            found.setdefault(text, []).append(number)
        if len({_ends(choice) for choice in row.get("choices", ())}) > 1:
            uneven.append(number)
    if not found:
        return ""
    kinds = [f"{text} in {_counted(numbers)}" for text, numbers in found.items()]
    if len(kinds) > MOST_KINDS:
        kinds = [*kinds[:MOST_KINDS], f"and {len(kinds) - MOST_KINDS} more"]
    line = f"{file}: white space other than blanks is kept as text: {'; '.join(kinds)}"
    if uneven:
        line += f". Right and wrong choices differ in it in {_counted(uneven)}, which can decide the accuracy"
    return line


def _found_in(row: Mapping[str, Any]) -> Iterator[str]:
    for column, text in row.items():
        for each in text if isinstance(text, list) else [text]:
            noun = ("an " if column[0] in "aeiou" else "a ") + column.removesuffix("s")
            first, last = _ends(each) if isinstance(each, str) else ("", "")
            if first:
                yield f"{noun} begins with {_named(first[0])}"
            if last:
                yield f"{noun} ends with {_named(last[-1])}"


def _ends(text: str) -> tuple[str, str]:
    """(white space at the beginning, white space at the end) of a text, as far as it is not blanks alone."""
    start, stop = 0, len(text)
    while start < stop and _is_unseen(text[start]):
        start += 1
    while stop > start and _is_unseen(text[stop - 1]):
        stop -= 1
    return text[:start].strip(" "), text[stop:].strip(" ")


def _is_unseen(letter: str) -> bool:
    return unicodedata.category(letter) in UNSEEN or letter in BLANK_LETTERS


def _named(letter: str) -> str:
    if letter in NAMES:
        return NAMES[letter]
    name = unicodedata.name(letter, "control character").lower()
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name} (U+{ord(letter):04X})"


def _counted(rows: list[int]) -> str:
    first = ", ".join(map(str, rows[:FIRST_ROWS])) + ", …" * (len(rows) > FIRST_ROWS)
    return f"{len(rows)} rows ({first})" if rows[1:] else f"row {first}"
