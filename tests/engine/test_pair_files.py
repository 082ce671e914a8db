"""Word pairs are read from files as spreadsheets and other programs write them, with one result for all."""

import codecs
import csv
import io
import json
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.errors import HeadroomError
from engine.questions.pair_files import DELIMITERS, read_pair_file
from engine.questions.rendering import TaskSpec, render_questions
from engine.questions.word_pairs import read_pairs
from tests.engine.fixtures import refused_by

MARKS = {"utf-8": b"", "utf-8-sig": b"", "utf-16-le": codecs.BOM_UTF16_LE, "utf-16-be": codecs.BOM_UTF16_BE,
         "utf-32-le": codecs.BOM_UTF32_LE, "utf-32-be": codecs.BOM_UTF32_BE}  # fmt: skip
ENDS = ("\n", "\r\n", "\r")
QUOTING = (csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC)
PAIRS = [
    ("cat", "cats, say"),
    ("1,5", '3;0 "exactly"'),
    ("a\tb", "two\nlines"),
    ("Größe", "größer | länger"),
    ("x", "x"),
]


def written(rows, delimiter=",", encoding="utf-8", end="\n", quoting=csv.QUOTE_MINIMAL, is_named=False, breaks="\n"):
    """The rows as csv.writer writes them, in an encoding; `breaks`: line ends in cells."""
    breaks = end if end == "\r" else breaks  # csv.writer quotes no others then
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, delimiter=delimiter, lineterminator=end, quoting=quoting)
    writer.writerows([[cell.replace("\n", breaks) for cell in row] for row in rows])
    text = f"sep={delimiter}{end}" * is_named + buffer.getvalue()
    return MARKS[encoding] + text.encode(encoding)


def pairs_in(file, content):
    return [[pair for _, *pair in task.pairs] for task in read_pair_file(file, content).tasks]


@pytest.mark.parametrize("n_tasks", [1, 2])
def test_delimiters_encodings_line_ends_quotes_and_a_named_delimiter(n_tasks, tmp_path):
    rows = [["question", "answer"] * n_tasks, *[[*pair] * n_tasks for pair in PAIRS]]
    for form in product(DELIMITERS, MARKS, ENDS, QUOTING, (False, True), ("\n", "\r\n")):
        assert pairs_in(tmp_path / "x.csv", written(rows, *form)) == [[[*pair] for pair in PAIRS]] * n_tasks, form


CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=6).filter(str.strip)


@given(
    st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=5), st.sampled_from([*DELIMITERS]),
    st.sampled_from([*MARKS]), st.sampled_from(ENDS), st.sampled_from(QUOTING), st.integers(0, 2),
    st.sampled_from(["", " ", "\xa0"]),
)  # fmt: skip
@example([("a;b", "c,d")], ";", "utf-8", "\r", csv.QUOTE_MINIMAL, 2, "\xa0")
def test_any_cells_below_plain_titles(tmp_path_factory, pairs, delimiter, encoding, end, quoting, n_empty, around):
    rows = [["question", "answer"], *[[f"{around}{cell}{around}" for cell in pair] for pair in pairs]]
    rows = [[*row, *[""] * n_empty] for row in [*rows[:2], ["", ""], *rows[2:], [around, ""]]]
    content = written(rows, delimiter, encoding, end, quoting)
    [found] = pairs_in(tmp_path_factory.getbasetemp() / "x.csv", content)
    assert found == [[cell.strip() for cell in pair] for pair in pairs]


def test_rows_are_the_lines_of_the_file(tmp_path):
    text = 'sep=;\n\nq;a\n"two\nlines";b\n\n;;\nc;d\n'
    [task] = read_pair_file(tmp_path / "x.csv", text.encode()).tasks
    assert task.pairs == ((4, "two\nlines", "b"), (8, "c", "d"))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "x.csv is empty: 0 columns; write two per task"),
        (b"a,b,c\n1,2,3\n", "3 columns, with commas between cells; write two per task"),
        (b"a\n1\n", "1 columns, with commas or tabs or semicolons or vertical bars"),
        (b"sep=;\na,b\n1,2\n", "1 columns, with semicolons between cells"),
        (b"a,b\n1,2\n\n3,4,5\n", "row 4: 3 cells, expected 2; quote text with commas"),
        (b"a,b\n1,\n", "row 2: '1' has no b; fill in both"),
        (b'a\tb\n"1\n2"\t3\n\t1\n4\n', r"row 4: '1' has no a; fill in both \(1 of 2 faults"),
        (b"a,b\n1,2\n\xe9,1\n", r"row 3: cannot be read as a CSV file in UTF-8 \(byte 0xe9\); save it as “CSV UTF-8”"),
        (b'a,b\n1,2\n"1,2\n3,4\n', r"row 3: cannot be read as a CSV file with commas .*; close every quote"),
        ("a,b\n1,2\n".encode("utf-16-le"), "row 1: has a NUL byte, as text in UTF-16"),
        (codecs.BOM_UTF16_LE + b"a", "cannot be read as UTF-16, as its first bytes say"),
    ],
)
def test_what_is_wrong_is_one_line_with_its_row_for_both_readers(content, reason, tmp_path):
    file = tmp_path / "x.csv"
    file.write_bytes(content)
    for read in (lambda: read_pairs(file), lambda: render_questions(TaskSpec(str(file)))):
        assert "\n" not in refused_by(HeadroomError, reason, read)


def test_of_two_delimiters_that_fit_the_first_is_taken_and_said(tmp_path):
    found = read_pair_file(tmp_path / "x.csv", b"a,b;c\n1,2;3\n")
    assert (
        found.tasks[0].pairs == ((2, "1", "2;3"),) and "x.csv: columns are split at commas, although semi" in found.note
    )
    named = read_pair_file(tmp_path / "x.csv", b"sep=;\na,b;c\n1,2;3\n")
    assert named.tasks[0].pairs == ((3, "1,2", "3"),) and not named.note
    for sure in (b"a;b\n1,5;2,5\n", b"a,b;c\n1,2;3\n4;5\n", b"a;b\n1;2\n3,4;5\n"):
        assert not read_pair_file(tmp_path / "x.csv", sure).note


def test_quotes_after_a_blank_and_quotes_in_a_cell(tmp_path):
    [found] = pairs_in(tmp_path / "x.csv", b'q, a\ncat, "cats, say"\n')
    assert found == [["cat", "cats, say"]]
    [found] = pairs_in(tmp_path / "x.csv", b'q,a\ncat, "cats" say\n')
    assert found == [["cat", '"cats" say']]


def test_every_form_has_the_questions_and_the_key_of_the_comma_file(tmp_path):
    rows = [("question", "answer"), *((f"word {n}", f"red {n % 3}, blue") for n in range(9))]
    forms = [(), (";", "utf-8-sig", "\r\n", csv.QUOTE_ALL), ("\t", "utf-16-le", "\r\n"), (";", "utf-8", "\r"),
             ("|", "utf-16-be", "\n"), (",", "utf-8", "\n", csv.QUOTE_ALL, True)]  # fmt: skip
    found = []
    for form in forms:
        (tmp_path / "own.csv").write_bytes(written(rows, *form))
        found.append(render_questions(TaskSpec(str(tmp_path / "own.csv"), 1)))
    assert len({each.source for each in found}) == len({each.questions for each in found}) == 1


@pytest.mark.parametrize("encoding", MARKS)
@pytest.mark.parametrize("end", ENDS)
def test_json_lines_in_any_of_these_encodings_and_line_ends(encoding, end, tmp_path):
    lines = [{"context": f"Größe {n}:", "choices": ["ja\u2028", "nein"], "gold": n % 2} for n in range(6)]
    asked = set()
    for name, form in (("plain", ("utf-8", "\n")), ("other", (encoding, end))):
        file = tmp_path / f"{name}.jsonl"
        text = "".join(json.dumps(line, ensure_ascii=False) + form[1] for line in lines)
        file.write_bytes(MARKS[form[0]] + text.encode(form[0]))
        found = render_questions(TaskSpec(str(file), 1))
        asked.add((found.questions, found.source, found.own.rows))
    assert len(asked) == 1
