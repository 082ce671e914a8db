"""White space at the ends of a user's own texts: blanks are the delimiter, other white space is kept and named."""

import json
from itertools import product

import pytest

from engine.progress import remark
from engine.questions.rendering import TaskSpec, render_questions
from engine.questions.rows import read
from engine.questions.tasks import local_files, task_info
from engine.questions.white_space import without_blanks
from engine.questions.word_pairs import read_pairs
from engine.requests import Evaluate

BLANKS = (" ", "   ")
OTHERS = {"\t": "a tab", " \t": "a tab", "\t ": "a tab", "\n": "a line break", "\r\n": "a line break",
          "\xa0": "a no-break space (U+00A0)", "\u3000": "an ideographic space (U+3000)",
          "\u2009": "a thin space (U+2009)", "\u200b": "a zero width space (U+200B)",
          "\x07": "a control character (U+0007)", "\ufeff": "a zero width no-break space (U+FEFF)",
          "\u2800": "a braille pattern blank (U+2800)"}  # fmt: skip
WHO = {"all choices": lambda row, choice: True, "right ones": lambda row, choice: choice == row["gold"],
       "wrong ones": lambda row, choice: choice != row["gold"],
       "some rows": lambda row, choice: row["context"] < "Question 2"}  # fmt: skip
CHOICES = ("before choices", "after choices")
PLACES = ("before contexts", "after contexts", *CHOICES)
ROWS = [{"context": f"Question {n}: the river or\nthe boat?", "choices": ["river", "boat", "bread"], "gold": n % 3}
        for n in range(12)]  # fmt: skip


def changed(row, space, place, who):
    """A row with white space at one place of some of its texts."""

    def put(text, choice):
        if not WHO[who](row, choice):
            return text
        return space + text if place.startswith("before") else text + space

    if place in CHOICES:
        return row | {"choices": [put(text, choice) for choice, text in enumerate(row["choices"])]}
    return row | {"context": put(row["context"], row["gold"])}


def written(file, rows, dump=json.dumps):
    file.parent.mkdir(exist_ok=True)
    file.write_text("\n\n".join(map(dump, rows)))
    return str(file)


def compact(row):
    """As other programs write JSON: with other columns first, whose blanks count."""
    return json.dumps({"note": " x ", **row}, ensure_ascii=False, separators=(",", ":"))


def given_in(file, rows, dump=json.dumps):
    """What is read from a file of these rows."""
    info = task_info(written(file, rows, dump))
    given = read(info, local_files(info, None))
    return given, given.own_file("validation", info)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dump", [json.dumps, compact])
def test_blanks_at_the_join_and_behind_choices_change_nothing(dump, tmp_path):
    plain, own = given_in(tmp_path / "own.jsonl", ROWS, dump)
    for space, place, who in product(BLANKS, PLACES[1:], WHO):
        rows = [changed(row, space, place, who) for row in ROWS]
        rows = [changed(row, " ", "before choices", "right ones") for row in rows]
        found = given_in(tmp_path / "own.jsonl", rows, dump)
        assert found == (plain, own) and not own.remarks, (space, place, who)
        assert found[0].lines == plain.lines, "parted alike"
    for question in render_questions(TaskSpec(str(tmp_path / "own.jsonl"), 2)).questions:
        assert "  " not in question.contexts[0] and question.contexts[0].endswith("boat?")
        assert [*question.continuations] == [" river", " boat", " bread"]


def test_a_blank_in_front_of_a_context_and_an_escaped_one():
    raw = json.dumps({"context": " a ", "choices": [" b", "c "], "note": " d "}).encode()
    plain = b'{"context": " a", "choices": ["b", "c"], "note": " d "}'
    assert without_blanks(raw) == without_blanks(raw.replace(b'" b"', b'"\\u0020b"')) == plain
    kept = b'{"context": "say \\" x \\"", "choices": [" ", "", 3], "note": "\\\\ "}\n[" x "]\n{" y \n" z "\n'
    assert without_blanks(kept) == kept, "nothing else is changed, and errors are for the reader"


def test_other_white_space_is_kept_and_named_and_where_choices_differ_in_it(tmp_path):
    for space, place, who in product(OTHERS, PLACES, WHO):
        if place not in CHOICES and who == "wrong ones":
            continue  # contexts have none
        rows = [changed(row, space, place, who) for row in ROWS]
        given, own = given_in(tmp_path / "own.jsonl", rows)
        [line] = own.remarks
        noun, verb = place.split()[1].removesuffix("s"), "begins" if place.startswith("before") else "ends"
        lines = [2 * number + 1 for number, row in enumerate(rows) if row != ROWS[number]]
        counted = f"{len(lines)} rows ({lines[0]}, {lines[1]}, {lines[2]}, …)"
        assert line.startswith("own.jsonl: white space other than blanks is kept as text: ")
        assert f"a {noun} {verb} with {OTHERS[space]} in {counted}" in line, (space, place, who)
        assert ("Right and wrong choices differ in it in" in line) == (place in CHOICES and who.endswith("ones"))
        texts = [text for line in given.raw.values() for text in (*map(json.loads, line.split(b"\n\n")),)]
        assert [json.dumps(row).replace(" ", "") for row in texts] == [json.dumps(row).replace(" ", "") for row in rows]


@pytest.mark.filterwarnings("ignore")
def test_word_pairs(tmp_path):
    pairs = [("question", "answer"), *((f"word {n}", f"red {n}") for n in range(9))]
    plain, file = tmp_path / "plain.csv", tmp_path / "own.csv"
    plain.write_text("".join(f"{question},{answer}\n" for question, answer in pairs))
    for space in (*BLANKS, "\t", "\xa0", "\u3000"):
        file.write_text("".join(f"{space}{question}{space},{space}{answer}{space}\n" for question, answer in pairs))
        for shots in (0, 2):
            asked = [render_questions(TaskSpec(str(each), shots)) for each in (plain, file)]
            assert asked[0].questions == asked[1].questions and not asked[1].own.remarks
        assert [each.pairs for each in read_pairs(file)] == [each.pairs for each in read_pairs(plain)]
    file.write_text("".join(f"{question},\u200b{answer}\n" for question, answer in pairs))
    said = list[str]()
    token = remark.set(said.append)
    read_pairs(file)
    remark.reset(token)
    [line] = render_questions(TaskSpec(str(file))).own.remarks
    assert said == [line], "of either reader"
    assert "an answer begins with a zero width space (U+200B) in 9 rows (2, 3, 4, …)" in line and "differ" not in line


@pytest.mark.filterwarnings("ignore")
def test_what_is_kept_is_said_with_the_accuracy(tiny_opt, tmp_path):
    task = written(tmp_path / "own.jsonl", [changed(row, "\t", "before choices", "right ones") for row in ROWS])
    found = Evaluate(model=str(tiny_opt), precision="fp32", task=task, cache=str(tmp_path / "store")).run()
    assert found.fields["remarks"] == [found.text.splitlines()[-1]] and "which can decide" in found.text
