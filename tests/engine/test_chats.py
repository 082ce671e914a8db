"""Prompts as chats: rendered as transformers does, within bounds, and scored as the harness does."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.errors import HeadroomError
from engine.models.masks import Mask
from engine.progress import final
from engine.questions import chats
from engine.questions.chats import ChatTemplate, chat_template, has_chat_template
from engine.questions.requests import TaskSpec, get_requests
from engine.texts.continuation import How, continuation, next_tokens
from engine.texts.passages import as_chat
from engine.texts.tokenloss import token_losses
from tests.conftest import TEXT
from tests.engine.fixtures import loaded, refused_by, target_in, write_questions
from tests.engine.test_log_likelihoods_equal_the_harness import compare, ours

TURNS = """{% for message in messages %}
    {%- generation %}{{ '</s>' if loop.first }}{{ message.role | upper }}: {{ message.content }}{% endgeneration %}

{% endfor %}
{%- if add_generation_prompt %}ASSISTANT:
{% endif %}"""
TEMPLATES = {
    "turns": TURNS,
    "tokens": "{{ bos_token }}{% for m in messages %}{% if m.role == 'tool' %}{% continue %}{% endif %}[{{ m.role }}]"
    "{{ m.content | trim }}{{ eos_token }}{% endfor %}{% if pad_token is defined %}{{ pad_token }}{% endif %}",
    "json": "{{ messages | tojson(indent=1) }}{% set space = namespace(n=0) %}{% for m in messages %}"
    "{% set space.n = space.n + 1 %}{% endfor %}{{ space.n }}",
    "no system": "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    "<{{ m.content }}>{% endfor %}",
}
MESSAGES = [
    {"role": "system", "content": "Be brief."}, {"role": "user", "content": " Where is “Oslo” <b>?</b> "},
    {"role": "assistant", "content": "In Norway."}, {"role": "tool", "content": "{}"},
    {"role": "user", "content": "2 & 3"},
]  # fmt: skip


@pytest.fixture
def chatty(tiny_opt, tmp_path):
    """A tiny model with a chat template, in a folder of its own."""
    folder = tmp_path / "chatty"
    shutil.copytree(tiny_opt, folder)
    (folder / chats.FILE).write_text(TURNS)
    return folder


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_give_what_transformers_gives(name, tiny_opt):
    tokenizer, messages = loaded(tiny_opt).tokenizer, MESSAGES[name == "no system" :]
    expected = tokenizer.apply_chat_template(
        messages, chat_template=TEMPLATES[name], tokenize=False, add_generation_prompt=True
    )
    template = ChatTemplate(TEMPLATES[name], tuple(tokenizer.special_tokens_map.items()))
    assert template.render([messages, messages[:1]])[0] == expected


def test_the_system_message_is_left_out_where_a_template_refuses_it():
    assert ChatTemplate(TEMPLATES["no system"]).render([MESSAGES[:2]]) == [f"<{MESSAGES[1]['content']}>"]


@pytest.mark.slow("waits until a process has used a second")
@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "takes too long"),
        ("{% set s = namespace(x='ab') %}{% for a in range(60) %}{% set s.x = s.x ~ s.x %}{% endfor %}", "memory"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "unsafe"),
        ("{% for %}", "Expected"),
        ("{{ raise_exception('only\ntools') }}", "only tools"),
    ],
)
def test_a_template_that_misbehaves_is_one_line(source, problem, monkeypatch):
    monkeypatch.setattr(chats, "CPU_SECONDS", 1)
    monkeypatch.setattr(chats, "MEMORY_BYTES", 100_000_000)
    words = refused_by(HeadroomError, problem, lambda: ChatTemplate(source).render([MESSAGES[1:2]]))
    assert words.startswith("the chat template cannot be rendered") and "\n" not in words


def test_templates_are_read_where_transformers_reads_them(chatty, tiny_opt, session):
    target = target_in(session, chatty)
    template = chat_template(target.identity)
    assert template.source == TURNS and dict(template.tokens)["bos_token"] == loaded(chatty).tokenizer.bos_token
    assert not has_chat_template(target_in(session, tiny_opt).identity)
    refused_by(HeadroomError, "has no chat template", lambda: chat_template(target_in(session, tiny_opt).identity))
    (chatty / chats.FILE).unlink()
    settings = json.loads((chatty / chats.SETTINGS).read_text())
    several = [{"name": "tool_use", "template": "x"}, {"name": "default", "template": "{{ 1 }}"}]
    (chatty / chats.SETTINGS).write_text(json.dumps(settings | {"chat_template": several}))
    assert chat_template(target_in(session, chatty).identity).source == "{{ 1 }}"
    (chatty / chats.FILE).write_text("x" * (chats.MOST_BYTES + 1))
    (chatty / "config.json").write_text((chatty / "config.json").read_text() + "\n")
    chats._found.cache_clear()
    refused_by(HeadroomError, "at most 256,000", lambda: chat_template(target_in(session, chatty).identity))


@pytest.mark.slow("scores forty prompts twice, and with the harness")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("shots", [0, 2])
def test_questions_are_the_harness_s_own(shots, chatty, tmp_path, session):
    """Prompts of its `apply_chat_template`, and its scores of them, with and without BOS."""
    from lm_eval.models.huggingface import HFLM

    from engine.questions import rows
    from engine.questions.harness import harness_task_of
    from engine.questions.tasks import local_files, task_info

    model, template = loaded(chatty), chat_template(target_in(session, chatty).identity)
    spec = TaskSpec(str(write_questions(tmp_path / "own.jsonl", 20)), shots, chat=template)
    info = task_info(spec.name)
    task = harness_task_of(spec, info, rows.read(info, local_files(info, None)))
    lm = HFLM(pretrained=model.model, tokenizer=model.tokenizer)
    task.build_all_requests(
        limit=20, rank=0, world_size=1, apply_chat_template=True, fewshot_as_multiturn=True,
        chat_template=lm.apply_chat_template, tokenizer_name="tiny",
    )  # fmt: skip
    expected = [(instance.doc_id, *instance.args) for instance in task.instances]
    questions = get_requests(spec).questions
    assert expected == [(q.doc_id, c, d) for q in questions for c, d in zip(q.contexts, q.continuations, strict=True)]
    assert all(q.contexts[0].count("USER:") == 1 + shots for q in questions)
    for bos in (True, False):
        compare(model, questions, bos)
    np.testing.assert_array_equal(
        ours(model, questions, True).log_likelihood_nats, ours(model, questions, False).log_likelihood_nats
    )  # the template begins with BOS


def test_chats_have_keys_of_their_own_and_others_keep_theirs():
    plain, chat = TaskSpec("piqa", 2), TaskSpec("piqa", 2, chat=ChatTemplate(TURNS))
    assert plain.fields().keys() == {"name", "shots", "split", "seed", "same_examples"}
    assert chat.fields() == plain.fields() | {"chat": ChatTemplate(TURNS).digest}
    assert TURNS not in repr(chat) and chat != replace(chat, chat=ChatTemplate(TURNS, (("bos_token", "<s>"),)))


def test_a_prompt_is_read_as_the_model_s_own_tokenizer_reads_a_chat(chatty, session):
    target, model = target_in(session, chatty), loaded(chatty)
    there, prompt = as_chat(replace(target, bos=True), TEXT[:80])
    ids = model.tokenizer.apply_chat_template(
        [{"role": "user", "content": TEXT[:80]}], add_generation_prompt=True, return_tensors="pt", return_dict=False
    )
    assert not there.bos, "the template puts BOS first itself"
    mask = Mask.full(target.shape)
    found = final(continuation(there, prompt, mask, How(5), is_chat=True).run(session))
    with torch.no_grad():
        expected = model.model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=5, do_sample=False)
        logits = model.model(ids).logits[0].log_softmax(-1)
    assert found.token_ids.tolist() == expected[0, ids.shape[1] :].tolist()
    likeliest = final(next_tokens(there, prompt, [mask], is_chat=True).run(session))
    assert likeliest.token_ids[0] == expected[0, ids.shape[1]]
    losses = final(token_losses(there, prompt, mask, is_chat=True).run(session))
    assert losses.token_ids.tolist() == ids[0].tolist()
    plain = [-logits[at - 1, token].item() for at, token in enumerate(ids[0].tolist()) if at]
    np.testing.assert_allclose(losses.loss_nats[1:], plain, atol=1e-4)
    assert len(final(token_losses(there, prompt, mask).run(session))) > len(losses), "as typed, </s> is plain text"
