"""Rows as people have them: read where they can be, else refused in one line that names the row."""

import codecs
import json
import os
from pathlib import Path

import pytest

from engine import files
from engine.errors import HeadroomError
from engine.progress import tell
from engine.questions import rendering as module
from engine.questions import rows
from engine.questions.faults import MOST_FAULTS, BadRows
from engine.questions.rendering import TaskSpec, render_questions
from engine.questions.tasks import local_files, task_info
from tests.engine.fixtures import refused_by


def row(number: int = 0, **more) -> dict:
    return {"context": f"Question {number}?", "choices": ["yes", "no"], "gold": number % 2, **more}


def written(file: Path, lines, train=True) -> TaskSpec:
    raw = b"\n".join(line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines)
    file.write_bytes(raw)
    if train:
        file.with_suffix(".train.jsonl").write_bytes(raw)
    return TaskSpec(str(file))


def test_a_byte_order_mark_and_windows_line_ends(tmp_path):
    lines = [json.dumps(row(number)).encode() + b"\r" for number in range(3)]
    task = written(tmp_path / "own.jsonl", [codecs.BOM_UTF8 + lines[0], *lines[1:]])
    assert [question.contexts[0] for question in render_questions(task).questions] == [
        f"Question {n}?" for n in range(3)
    ]


@pytest.mark.parametrize("sign", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c"])
def test_only_a_line_feed_ends_a_row(sign, tmp_path):
    text = f"one{sign}two"
    task = written(tmp_path / "own.jsonl", [json.dumps(row(context=text), ensure_ascii=False).encode(), row(1)])
    assert [question.contexts[0] for question in render_questions(task).questions] == [text, "Question 1?"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (rb'{"context": "half \ud83d", "choices": ["a", "b"], "gold": 0}', "half a character"),
        (b'{"context": "\xff", "choices": ["a", "b"], "gold": 0}', "UTF-8"),
        (b'{"context": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", "nested too deeply"),
        (b'{"context": "x", "choices": ["a", "b"], "gold": ' + b"9" * 5000 + b"}", "not valid JSON"),
        (b'{"context": "x", "choices": ["a", "b"], "gold": Infinity}', "from 0 to 1, got inf"),
        (row(context=7), "not empty, got 7"),
    ],
    ids=["surrogate", "latin-1", "nested", "digits", "infinity", "a number for a text"],
)
def test_what_cannot_be_read_is_said_with_its_row(line, said, tmp_path):
    with pytest.raises(HeadroomError, match="row 3") as raised:
        render_questions(written(tmp_path / "own.jsonl", [row(), row(1), line, row(2)]))
    assert said in str(raised.value) and "\n" not in str(raised.value) and len(str(raised.value)) < 500


def test_all_faults_of_a_file_are_told_at_once(tmp_path):
    lines = [row(number) for number in range(12)]
    lines[1] = {"context": " ", "choices": ["yes", "no"], "gold": 2}
    lines[4] = b'{"context": '
    lines[7] = {"context": "x", "choices": "yes"}
    lines[11] = row(11, choices=["yes", "", 3])
    with pytest.raises(BadRows) as raised:
        render_questions(written(tmp_path / "own.jsonl", lines, train=False))
    faults = raised.value.details
    assert [fault.row for fault in faults] == [2, 2, 5, 8, 8, 12, 12], "of both parts of the file, in its order"
    assert {fault.value for fault in faults if fault.row in (2, 12)} == {"' '", "2", "''", "3"}
    assert faults[2].value == '{"context": ' and "not valid JSON" in faults[2].what
    assert str(raised.value).endswith(
        "row 2: column 'context' must be text that is not empty, got ' ' (1 of 7 faults in the file)"
    )
    many = [row(number, gold=9) for number in range(MOST_FAULTS + 50)]
    with pytest.raises(BadRows, match="at least 200 faults") as raised:
        render_questions(written(tmp_path / "many.jsonl", many))
    assert len(raised.value.details) == MOST_FAULTS


def test_other_columns_of_ones_own_rows_may_hold_anything(tmp_path):
    task = written(tmp_path / "own.jsonl", [row(0, note=1), row(1, note=["x"]), row(2, note={"a": None})])
    assert len(render_questions(task).questions) == 3


def test_a_column_that_changes_its_type_is_named(tmp_path):
    lines = [{"goal": "Open it", "sol1": "a", "sol2": "b", "label": 0, "idx": n if n < 2 else f"{n}"} for n in range(4)]
    for split in ("train", "validation"):
        (tmp_path / "piqa").mkdir(exist_ok=True)
        (tmp_path / "piqa" / f"{split}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(HeadroomError, match="column 'idx' is a number in row 1 and text in row 3"):
        render_questions(TaskSpec("piqa"), tmp_path)


def test_what_is_no_regular_file_is_said_and_not_waited_for(tmp_path):
    for name in ("pipe.jsonl", "zero.jsonl", "folder.jsonl"):
        file = tmp_path / name
        {"p": os.mkfifo, "z": lambda path: path.symlink_to("/dev/zero"), "f": Path.mkdir}[name[0]](file)
        refused_by(HeadroomError, "is not a regular file", lambda file=file: render_questions(TaskSpec(str(file))))


def test_a_file_of_any_size_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(files.read_regular, "__defaults__", (100,))
    with pytest.raises(HeadroomError, match="more than the 0 MB that are read here; give a smaller file"):
        render_questions(written(tmp_path / "own.jsonl", [row(number) for number in range(9)]))


@pytest.mark.parametrize("name", ["~nosuchuser/own.jsonl", f"{'a' * 300}.jsonl", "a\0b.jsonl", "/proc/self/mem.jsonl"])
def test_names_that_no_file_has(name, tmp_path):
    with pytest.raises(HeadroomError) as raised:
        render_questions(TaskSpec(name))
    assert "no such task file" in str(raised.value) or "cannot be the name of a file" in str(raised.value)
    with pytest.raises(HeadroomError):
        local_files(task_info("piqa"), name)


def test_one_file_is_parted_and_rankings_come_from_other_rows_than_those_asked(tmp_path):
    lines = [row(number) for number in range(30)]
    task = written(tmp_path / "own.jsonl", [*lines, lines[3], lines[4]], train=False)
    asked = [question.contexts[0] for question in render_questions(task).questions]
    train = [question.contexts[0] for question in render_questions(TaskSpec(task.name, split="train")).questions]
    assert not set(asked) & set(train) and sorted({*asked, *train}) == sorted(each["context"] for each in lines)
    assert len(asked) + len(train) == 32 and 8 <= len(train) <= 12
    shots = render_questions(TaskSpec(task.name, 2)).questions
    assert all(part.rsplit(" ", 1)[0] in train for q in shots for part in q.contexts[0].split("\n\n")[:-1])
    shuffled = written(tmp_path / "again.jsonl", [*lines[::-1], lines[3], lines[4]], train=False)
    assert {question.contexts[0] for question in render_questions(shuffled).questions} == set(asked), "by what they say"


def test_rows_for_training_beside_it_leave_all_others_to_be_asked(tmp_path, store):
    task = written(tmp_path / "own.jsonl", [row(number) for number in range(9)], train=False)
    parted = len(render_questions(task, None, store).questions)
    (tmp_path / "own.train.jsonl").write_text("\n".join(json.dumps(row(n)) for n in range(50, 54)))
    assert parted < 9 == len(render_questions(task, None, store).questions)
    train = render_questions(TaskSpec(task.name, split="train"), None, store).questions
    assert [question.contexts[0] for question in train] == [f"Question {n}?" for n in range(50, 54)]


def test_one_row_alone_cannot_be_parted(tmp_path):
    with pytest.raises(HeadroomError, match="too few rows that differ"):
        render_questions(written(tmp_path / "own.jsonl", [row()], train=False))


def test_choices_as_a_text_are_named_before_rows_that_are_too_few(tmp_path):
    with pytest.raises(HeadroomError, match="row 1: column 'choices' must be a list of at least 2 texts, got 'yes'"):
        render_questions(written(tmp_path / "own.jsonl", [row(choices="yes")] * 2, train=False))


def test_of_very_many_rows_only_what_is_wanted_is_written_out(tmp_path, store, monkeypatch):
    monkeypatch.setattr(rows, "LARGE", 100)
    monkeypatch.setattr(rows, "SAMPLED", 30)
    lines = [row(number) for number in range(300)]
    lines[200] = b"not read, as nobody asks for it"
    task = written(tmp_path / "own.jsonl", lines)
    train = tmp_path / "own.train.jsonl"
    train.write_bytes(train.read_bytes().splitlines()[0] * 1)
    first = render_questions(task, None, store, first=4).questions
    assert [question.contexts[0] for question in first] == [f"Question {n}?" for n in range(4)]
    lines[200] = row(200)
    written(tmp_path / "own.jsonl", lines)
    sample = render_questions(task, None, store).questions
    numbers = [int(question.contexts[0].split()[1].rstrip("?")) for question in sample]
    assert len(sample) == 30 and numbers == sorted(numbers) and max(numbers) > 100 and render_questions(task) != first
    monkeypatch.setattr(module, "REPORTED", 100)
    told = []
    token = tell.set(lambda done, total, message, left_s: told.append((done, total)))
    assert len(render_questions(task, None, store, first=None).questions) == 300
    tell.reset(token)
    assert told == [(100, 300), (200, 300), (300, 300)]


def test_an_older_file_stays_whole_where_the_disk_is_full(tmp_path, monkeypatch):
    file = tmp_path / "scores.csv"
    file.write_text("older")
    file.chmod(0o640)

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        files.write_whole(file, b"newer")
    assert file.read_text() == "older" and [path.name for path in tmp_path.iterdir()] == ["scores.csv"]
    monkeypatch.undo()
    link = tmp_path / "link.csv"
    link.symlink_to(file)
    files.write_whole(link, b"newer")
    assert file.read_text() == "newer" and link.is_symlink() and file.stat().st_mode & 0o777 == 0o640
    files.write_whole(Path("/dev/null"), b"nowhere")
