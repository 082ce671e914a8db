"""A user's text is checked in one plain line, and what is remembered comes back as it was."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cache import Store
from engine.errors import HeadroomError
from engine.texts.passages import MAX_BYTES, checked, decoded, forget, guess_decoded, names, recall, remember
from tests.conftest import IS_THOROUGH
from tests.engine.fixtures import refused_by

HOSTILE = ["<script>alert(1)</script>", "שלום\u202eabc", "😀\u200d👩", "x" * 200_000, "</s><s>\x1b[31m", "'\"&amp;"]


def remembered(store):
    return {name: recall(name, store) for name in names(store)}


@pytest.mark.parametrize(
    ("raw", "part"),
    [(b"", "empty"), (b" \n\t\r\n", "only whitespace"), ("\u00e9".encode("latin-1"), "byte 1"), (b"ok\xff", "byte 3"),
     (b"a\0b", "NUL"), (b"a" * (MAX_BYTES + 1), "1,000,001 bytes"), (b"\xff" * (3 * MAX_BYTES), "3,000,000 bytes"),
     ("\ufeff".encode(), "empty")],
)  # fmt: skip
def test_what_is_no_text_is_refused_in_one_line(raw, part):
    refused = refused_by(HeadroomError, part, lambda: decoded(raw, "own.txt"))
    assert "own.txt" in refused


RUSSIAN = "Однажды весною, в час небывало жаркого заката, в Москве, на прудах, появились два гражданина."


@pytest.mark.parametrize(
    "encoding, guess", [("utf-8", ""), ("utf-8-sig", ""), ("cp1251", "cp1251"), ("utf-16", "utf_16")]
)
def test_another_encoding_is_guessed(encoding, guess):
    assert guess_decoded(RUSSIAN.encode(encoding), "own.txt") == (RUSSIAN, guess)


def test_a_text_that_is_too_long_is_refused_in_any_encoding():
    refused_by(HeadroomError, "3,000,000 bytes", lambda: guess_decoded(b"\xff" * (3 * MAX_BYTES), "own.txt"))


def test_half_a_character_is_refused():
    refused_by(HeadroomError, "half a character at 3", lambda: checked("ab\ud83d"))


def test_line_ends_and_marks_are_made_plain():
    assert decoded("\ufeffone\r\ntwo\rthree".encode(), "x") == "one\ntwo\nthree"


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_comes_back_as_it_was(text, store):
    remember("mine", text, store)
    assert remembered(store) == {"mine": text}


@pytest.mark.thorough
@settings(max_examples=500 if IS_THOROUGH else 30)
@given(
    texts=st.dictionaries(
        st.text("abcß <>/.", min_size=1).filter(lambda name: name == name.strip()),
        st.text(min_size=1).filter(lambda text: text.strip() and "\0" not in text),
        max_size=4,
    )
)
def test_names_and_texts_round_trip(texts, tmp_path_factory):
    store = Store(tmp_path_factory.mktemp("texts"))
    for name, text in texts.items():
        remember(name, text, store)
    assert remembered(store) == {name: checked(text) for name, text in texts.items()}
    for name in texts:
        forget(name, store)
    assert remembered(store) == {} and names(store) == []
    store.close()


@pytest.mark.parametrize("name", ["", "  ", "x" * 81, "a\nb"])
def test_a_name_that_cannot_be_kept(name, store):
    refused_by(HeadroomError, "cannot be kept", lambda: remember(name, "text", store))


def test_a_damaged_entry_is_no_text(store):
    remember("mine", "text", store)
    for blob in (b"", b"{}", b"[1]", b'["other", "x"]', b"\xff"):
        for key in [key for key in store.keys() if key.startswith("passage/")]:
            store.put(key, blob)
        assert recall("mine", store) is None
    store.put("passages", b"5")
    assert names(store) == []
