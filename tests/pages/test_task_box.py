"""The Task box filters by substring and ends with adding one's own questions, by path or by upload."""

import json
from pathlib import Path

import pytest
from streamlit.proto.SelectWidgetFilterMode_pb2 import SelectWidgetFilterMode

from engine.errors import HeadroomError, UsageError
from engine.questions.rendering import TaskSpec
from engine.questions.tasks import embedded_tasks, pair_tasks, similar_names, task_info
from pages.ui.controls.first_views import (
    FIRST_OF_DEMO,
    FIRST_OF_PAIRS,
    N_COMPARED,
    OTHERS_OF_PAIRS,
    first_tasks,
    suited,
)
from pages.ui.controls.task import ADD, FOLDER, keep_file, label_of, path_of
from pages.ui.downloads.origin import tasks_in_words
from pages.ui.page import runtime
from pages.ui.page.work import Work
from pages.ui.prune.parts import NONE_RIGHT, NONE_WRITTEN
from tests.pages.conftest import button, figure, labels, page_hash, settled


def rows(n=12):
    lines = [{"context": f"Box {i}:", "choices": [" red", " green"], "gold": i % 2} for i in range(n)]
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def test_names_are_proposed_by_substring_first():
    names = list(embedded_tasks())
    assert similar_names("transl", names) == ["demo_translation"] == similar_names(" Transl", names)
    assert similar_names("picka", ["demo_copy", "piqa"]) == ["piqa"], "else by spelling"
    assert similar_names("", names) == names[:3] == similar_names("xyzzy", names)
    with pytest.raises(UsageError, match="did you mean demo_translation"):
        task_info("transl")


def test_a_task_is_shown_by_its_name_and_a_file_without_its_folder():
    names = ("demo_copy", "/store/questions/85e5/mine.csv", "~/mine.jsonl")
    assert [TaskSpec(name).title for name in names] == ["demo_copy", "mine.csv", "mine.jsonl"]
    assert tasks_in_words([TaskSpec(names[1], 5)]) == "mine.csv, 5 shots"


@pytest.mark.parametrize(
    ("task", "label"),
    [("demo_copy", "demo_copy"), ("mine.jsonl", "mine.jsonl"), ("~/mine.csv", "mine.csv in ~"),
     ("/mine.jsonl", "mine.jsonl in /"), ("/a/b.csv/in.jsonl", "in.jsonl in /a/b.csv"),
     ("./a in b/mine.jsonl", "mine.jsonl in ./a in b")],
)  # fmt: skip
def test_the_box_shows_the_name_of_a_file_first_and_a_link_with_either_opens_it(task, label):
    assert label_of(task) == label and path_of(label) == task
    assert label_of(path_of(label)) == label and path_of(task) == task


def test_the_box_filters_by_substring_and_begins_with_adding_one(open_app):
    at = open_app(order="random", task="demo_copy", limit="16")
    box = at.selectbox(key="task")
    assert box.proto.filter_mode == SelectWidgetFilterMode.FILTER_MODE_CONTAINS
    assert not box.proto.accept_new_options, "Streamlit puts a new name first, and takes it on Enter"
    assert box.options[0] == ADD and "demo_translation" in box.options
    box.set_value(ADD)
    settled(at)
    assert at.selectbox(key="task").value == "demo_copy", "nothing else changes"
    assert at.session_state["study_settings"] is True and not at.warning, "which shows the fields for a file"


def test_a_file_is_named_by_its_path_or_uploaded_beside_it(open_app, tmp_path):
    at = open_app(order="random", task="demo_copy", limit="16")
    at.text_input(key="own_path").set_value("boxes.txt")
    at.run()
    assert ["does not end with" in each.value for each in at.error] == [True]
    file = tmp_path / "boxes.jsonl"
    file.write_bytes(rows())
    at.text_input(key="own_path").set_value(str(file))
    settled(at)
    assert at.selectbox(key="task").value == str(file) and not at.error
    by_path = figure(at)
    at.file_uploader(key="own_file").set_value(("../of boxes.jsonl", rows(), "application/jsonl"))
    settled(at)
    kept = Path(at.selectbox(key="task").value)
    assert kept.name == "of-boxes.jsonl" and kept.read_bytes() == rows()
    assert at.metric[0].label.startswith("of-boxes.jsonl") and at.query_params["task"] == label_of(str(kept))
    assert kept.parent.parent == runtime.store().directory / FOLDER and figure(at) == by_path
    files = {label_of(str(kept)), f"boxes.jsonl in {tmp_path}"}
    assert files <= set(at.selectbox(key="task").options)
    at.wanted_page_hash = page_hash("text")
    at.run()
    assert files <= set(at.selectbox(key="task").options), "known on the other screens too"


@pytest.mark.slow("measures pasted questions")
@pytest.mark.parametrize(
    ("text", "name", "caption"),
    [
        ("".join(f'{{"context": "Box {i}:", "choices": ["red", "green"], "gold": 0}}\n' for i in range(12)),
         "pasted.jsonl", None),
        ("sep=;\nquestion;answer\n" + "".join(f"word {i};xyzzy {i},5\n" for i in range(12)), "pasted.csv",
         NONE_WRITTEN),
    ],
)  # fmt: skip
def test_rows_are_pasted_and_if_no_answer_is_right_a_line_says_what_to_check(open_app, text, name, caption):
    at = open_app(order="random", task="demo_copy", limit="16")
    at.text_area(key="own_pasted").set_value(text)
    button(at, "Use the pasted rows").click()
    settled(at)
    kept = Path(at.selectbox(key="task").value)
    assert kept.name == name and kept.read_text() == text and not at.error
    said = [each.value for each in at.markdown if each.value in (NONE_RIGHT, NONE_WRITTEN)]
    assert said == [caption] * (caption is not None)


def test_pasted_rows_have_the_errors_of_a_file(open_app):
    at = open_app(order="random", task="demo_copy", limit="16")
    at.text_area(key="own_pasted").set_value('{"context": "Box:", "choices": ["a", "b"], "gold": 7}')
    button(at, "Use the pasted rows").click()
    settled(at)
    assert at.dataframe[0].value["what"].tolist() == ["column 'gold' must be a whole number from 0 to 1"]


@pytest.mark.slow("measures two files")
def test_what_to_know_of_a_file_is_said_and_choices_that_cannot_be_scored_stand_in_a_table(open_app, tmp_path):
    file, lines = tmp_path / "boxes.jsonl", [json.loads(line) for line in rows().splitlines()]
    lines[0]["choices"][0] = "\tred"
    file.write_text("\n".join(map(json.dumps, lines)))
    at = open_app(task=str(file), order="random", limit="16")
    said = "boxes.jsonl: white space other than blanks is kept as text: a choice begins with a tab in row 1. Right"
    assert [each.value.startswith(said) for each in at.info] == [True] and "%" in figure(at)[0] and not at.error
    for number in (2, 5, 8):
        lines[number]["choices"][0] = "red " * 2000
    (file := tmp_path / "long.jsonl").write_text("\n".join(map(json.dumps, lines)))
    at = open_app(task=str(file), order="random", limit="16")
    settled(at)
    [line] = {each.value for each in at.error}  # of the accuracy, and of the estimates
    assert "rows 3, 6 and 9 of" in line and "window of" in line
    assert at.dataframe[0].value["row"].tolist() == [3, 6, 9]


def test_all_faults_of_a_file_stand_in_a_table(open_app, tmp_path):
    file, lines = tmp_path / "boxes.jsonl", rows().splitlines()
    lines[2], lines[8] = b'{"context": "Box:", "choices": ["red", "green"], "gold": "b"}', b"no JSON"
    file.write_bytes(b"\n".join(lines))
    at = open_app(task=str(file), order="random", limit="16")
    [line] = [each.value for each in at.error]
    assert "row 3" in line and "1 of 2 faults" in line
    table = at.dataframe[0].value
    assert table["row"].tolist() == [3, 9] and table["value"].tolist() == ["'b'", "no JSON"]
    assert table["what"][0] == "column 'gold' must be a whole number from 0 to 1"
    file.write_bytes(rows())
    next(each for each in at.button if each.key == "retry questions").click()
    settled(at)
    assert not at.error and "%" in figure(at)[0], "once the file is put right"


def test_too_few_rows_take_fewer_examples(open_app, tmp_path):
    file = tmp_path / "few.jsonl"
    file.write_bytes(rows(6))
    at = open_app(task=str(file), shots="5", order="random", limit="16")
    settled(at)
    assert at.segmented_control(key="shots").value == 1 and not at.error
    assert any(each.value.startswith("4 of your rows are asked, 2 others") for each in at.caption)
    assert "%" in figure(at)[0]


def test_an_upload_lies_under_its_content(tmp_path):
    first, same = (keep_file("q.jsonl", b"one", tmp_path) for _ in range(2))
    other = keep_file("q.jsonl", b"two", tmp_path)
    assert first == same != other and first.read_bytes() == b"one"
    assert keep_file("/.jsonl", b"x", tmp_path).name == "questions.jsonl"
    assert len(keep_file("é" * 300 + ".jsonl", b"x", tmp_path).name) < 80
    (tmp_path / "file").write_text("")
    with pytest.raises(HeadroomError, match="cannot keep q.jsonl"):
        keep_file("q.jsonl", b"one", tmp_path / "file")


def test_a_screen_of_many_tasks_opens_with_some_and_asks_for_one_at_least(open_app):
    at = open_app("heads", run=False, model="demo", heads_tab="Across tasks").run()
    box = at.multiselect(key="heads_tasks")
    assert len(box.options) == 18 and box.proto.filter_mode == SelectWidgetFilterMode.FILTER_MODE_CONTAINS
    pills = next(each for each in at.main.button_group if each.key == "heads_shots")
    assert {*box.value} == {*FIRST_OF_DEMO, "demo_surname", "demo_blank", "demo_entailment"} and pills.value == ["0"]
    box.set_value([]).run()
    assert [line.value for line in at.info] == ["Choose at least one task and one number of examples."]
    at.multiselect(key="heads_tasks").set_value(["demo_copy"]).run()
    assert not at.info and not at.exception


def test_word_pairs_are_for_other_models_than_the_demo_and_come_first():
    every = [*embedded_tasks(), *pair_tasks(), "piqa"]
    assert suited(every, is_demo=True) == [*embedded_tasks(), "piqa"]
    assert suited(every, is_demo=False) == [*dict.fromkeys([*FIRST_OF_PAIRS, *pair_tasks()]), "piqa", *embedded_tasks()]
    assert first_tasks(every, False) == [name for name in every if name in FIRST_OF_PAIRS]


def test_prune_follows_the_model_with_its_task_unless_one_was_chosen(open_app, tiny_opt):
    at = open_app(task="pairs_plural", order="random", limit="16")
    at.selectbox(key="model").set_value("demo").run()
    assert at.selectbox(key="task").value == "demo_outfit"
    at.selectbox(key="task").set_value("demo_copy").run()
    at.selectbox(key="model").set_value(str(tiny_opt)).run()
    assert at.selectbox(key="task").value == "demo_copy"


def test_tasks_made_for_the_model_come_first():
    every = [*embedded_tasks(), "arc_easy", "copa", "lambada_openai", "piqa", "wic"]
    assert first_tasks(every, is_demo=True) == ["demo_outfit", "demo_translation", "demo_cloze"]
    compared = [name for name in pair_tasks() if name in (*FIRST_OF_PAIRS, *OTHERS_OF_PAIRS)]
    assert first_tasks([*every, *pair_tasks()], False, N_COMPARED) == compared, "whatever else is on this computer"
    needs = [task_info(name).needs for name in first_tasks(every, True, N_COMPARED)]
    assert len(needs) == 2 * needs.count("examples") == N_COMPARED
    assert first_tasks(["wic", "rte"], is_demo=False) == ["wic", "rte"]
    assert first_tasks(["wic", "rte", "cb", "boolq"], False) == ["wic", "rte", "cb"]


@pytest.mark.thorough
@pytest.mark.parametrize("takes_s, starts", [(5.0, True), (61.0, False), (None, False)])
def test_a_first_view_is_measured_without_a_click_if_its_forecast_is_short(
    takes_s, starts, open_app, only_tasks, monkeypatch
):
    only_tasks("demo_copy", "demo_lookup")
    monkeypatch.setenv("HEADROOM_IDLE_SECONDS", "10")
    monkeypatch.setattr(Work, "takes_s", lambda work, by_size=False: takes_s)
    at = open_app("heads", heads_tab="Across tasks")
    assert starts == (not any(label.startswith("Measure ") for label in labels(at)))
    at = open_app("heads", heads_tab="Across tasks", heads_tasks="demo_copy", heads_shots="1")
    assert starts == (not any(label.startswith("Measure ") for label in labels(at)))
