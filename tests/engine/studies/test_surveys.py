"""A survey of importance soon has a preview of every task, from its first questions, and ends with all of them."""

from dataclasses import replace

import numpy as np

from engine.importance.scores import importance
from engine.progress import final
from engine.questions.rendering import CHUNK, select
from engine.studies.surveys import survey
from engine.timing.workload import gradient_characters
from tests.engine.studies.conftest import SIZES, last


def test_every_task_has_a_preview_before_one_is_finished(setting, tasks, session, by_hand):
    wanted = survey(session.target(setting.spec, setting.bos), setting, tasks, "heads")
    found = [step.value for step in wanted.run(session) if step.value is not None]
    preview = next(each for each in found if len(each.begun) == len(tasks))
    assert not preview.scores and [each.n for each in preview.begun.values()] == [CHUNK, *SIZES[1:]]
    trained = [replace(task, split="train") for task in tasks]
    few = select(by_hand.asked(trained[0]).rendered, CHUNK, "stratified")
    expected = final(importance(by_hand.target, few, "heads").run(by_hand.session))
    np.testing.assert_array_equal(preview.preview(tasks)[tasks[0]].scores, expected.scores)
    assert list(found[-1].scores) == tasks and not found[-1].begun
    for task, train in zip(tasks, trained, strict=True):
        np.testing.assert_array_equal(found[-1].scores[task].scores, by_hand.scores(train, "heads").scores)


def test_no_question_is_asked_twice_for_the_preview(setting, tasks, session, store):
    wanted = survey(session.target(setting.spec, setting.bos), setting, tasks, "heads")
    forecast = sum(wanted.left(session).characters.values())
    last(wanted.run(session))
    read = [key for key in store.keys() if "/importance/" in key]
    assert len(read) == sum(-(-size // CHUNK) for size in SIZES), "a record for each chunk of questions"
    trained = [by_task.rendered.questions for by_task in (setting.train_questions(task, store) for task in tasks)]
    assert forecast == sum(gradient_characters(questions, False) for questions in trained)
