"""Prompts as chats: rendered as transformers does, within bounds, and scored as the harness does."""

import json
import re
import shutil
from dataclasses import replace
from datetime import datetime

import numpy as np
import pytest
import torch
from jinja2.exceptions import TemplateError

from engine.architecture import families
from engine.errors import HeadroomError
from engine.models.masks import Mask
from engine.progress import final
from engine.questions import chats
from engine.questions.chat_process import rendered
from engine.questions.chats import ChatTemplate, chat_template
from engine.questions.rendering import TaskSpec, render_questions
from engine.questions.special_tokens import special_tokens
from engine.texts.continuation import How, continuation, next_tokens
from engine.texts.passages import as_chat
from engine.texts.tokenloss import token_losses
from tests.conftest import TEXT
from tests.engine.chat_templates import CONVERSATIONS, STYLES
from tests.engine.fixtures import in_turns, loaded, refused_by, target_in, write_questions
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


@pytest.fixture
def on_that_day(monkeypatch):
    """transformers reads the clock on the day that templates are given."""
    from transformers.utils import chat_template_utils

    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            return cls.fromisoformat(chats.TODAY)

    monkeypatch.setattr(chat_template_utils, "datetime", Clock)


def tokenizer_of(folder, model_type, settings, tiny_opt):
    """What transformers makes of these settings, in a folder with a tiny tokenizer."""
    from transformers import AutoConfig, AutoTokenizer

    tokenizer = json.loads((tiny_opt / "tokenizer.json").read_text())
    # of bytes, transformers would not read it as Llama's
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer | {"pre_tokenizer": None, "decoder": None}))
    if settings is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return AutoTokenizer.from_pretrained(str(folder), config=AutoConfig.for_model(model_type))


def by_transformers(tokenizer, messages):
    """Its text, as the harness asks for it."""
    try:
        return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    except TemplateError:
        messages = [message for message in messages if message["role"] != "system"]
    return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)


def our_text(template, messages):
    """Rendered in this process, which a table has the time for."""
    return rendered(template.source, dict(template.tokens), [messages], chats.TODAY)[0]


@pytest.mark.parametrize("name", STYLES)
def test_templates_of_all_families_give_what_transformers_gives(name, tmp_path, tiny_opt, on_that_day):
    style = STYLES[name]
    tokenizer = tokenizer_of(tmp_path, style.model_type, style.settings, tiny_opt)
    tokenizer.chat_template = style.template
    (tmp_path / chats.FILE).write_text(style.template)
    template = chats._read(tmp_path, style.model_type, "", None)
    for messages in CONVERSATIONS:
        try:
            expected = by_transformers(tokenizer, messages)
        except TemplateError as error:
            with pytest.raises(TemplateError, match=re.escape(str(error))):
                our_text(template, messages)
        else:
            assert our_text(template, messages) == expected
            bos = tokenizer.bos_token
            assert bos is None or expected.startswith(bos) == expected.startswith(dict(template.tokens)["bos_token"])


@pytest.mark.parametrize("name", TEMPLATES)
def test_other_means_of_a_template_give_what_transformers_gives(name, tiny_opt):
    tokenizer, messages = loaded(tiny_opt).tokenizer, MESSAGES[name == "no system" :]
    expected = tokenizer.apply_chat_template(
        messages, chat_template=TEMPLATES[name], tokenize=False, add_generation_prompt=True
    )
    template = ChatTemplate(TEMPLATES[name], tuple(tokenizer.special_tokens_map.items()))
    assert template.render([messages, messages[:1]])[0] == expected


SETTINGS = {  # what tokenizer_config.json says, and special_tokens_map.json
    "neither": (None, None),
    "the map alone": (None, {"bos_token": "<b>", "eos_token": {"content": "<e>", "lstrip": False}}),
    "both": ({"bos_token": "<1>", "unk_token": "<u>"}, {"bos_token": "<2>", "pad_token": None}),
    "added tokens": ({"eos_token": "<e>", "added_tokens_decoder": {}}, {"bos_token": "<2>", "eos_token": "<3>"}),
    "null": ({"bos_token": None, "eos_token": None, "mask_token": "<m>"}, {}),
    "others": ({"image_token": "<i>", "add_bos_token": True, "extra_special_tokens": {"boi_token": "<j>"}}, None),
    "listed": ({"sep_token": "<sep>", "extra_special_tokens": ["<x>"]}, {"additional_special_tokens": ["<y>"]}),
    "generic": ({"tokenizer_class": "PreTrainedTokenizerFast", "cls_token": "<c>"}, None),
    "of llama": ({"tokenizer_class": "LlamaTokenizerFast"}, {"audio_token": "<a>"}),
    "of gpt2": ({"tokenizer_class": "GPT2Tokenizer", "bos_token": ""}, None),
}
TYPES = [name for name in families.NAMES if families.FAMILIES[name].is_stock]


@pytest.mark.parametrize(("model_type", "name"), in_turns(TYPES, SETTINGS))
def test_special_tokens_are_those_that_transformers_gives(model_type, name, tmp_path, tiny_opt):
    settings, older = SETTINGS[name]
    if older is not None:
        (tmp_path / "special_tokens_map.json").write_text(json.dumps(older))
    expected = tokenizer_of(tmp_path, model_type, settings, tiny_opt).special_tokens_map
    found = dict(special_tokens(tmp_path, model_type, "", " ".join(expected)))
    assert found == {name: token for name, token in expected.items() if token}


@pytest.mark.parametrize("source", [
    "{{ dict(a=1).a }}{{ dict.fromkeys('ab', 1) }}", "{{ namespace(self=1).self }}", "{{ namespace(_a=1) }}",
    "{% set n = namespace() %}{% set n._a = 1 %}", "{{ dict.mro() }}", "{{ strftime_now('%A %H:%M %b %-d') }}",
    "{% generation %}{% set a = 1 %}{{ a }}{% endgeneration %}{{ a }}", "{{ enable_thinking is defined }}{{ tools }}",
    "{{ documents is none }}{{ continue_final_message is defined }}{{ add_generation_prompt }}",
    "{{ {'ä': [1, '<']} | tojson(ensure_ascii=true, sort_keys=true, separators=(',', ':')) }}",
    "{{ messages | tojson(indent=2) }}", "{{ bos_token }}{{ undefined_token }}", "{{ messages[9].content }}",
])  # fmt: skip
def test_what_a_template_may_use_is_what_transformers_gives_it(source, tmp_path, tiny_opt, on_that_day):
    tokenizer = tokenizer_of(tmp_path, "llama", {"bos_token": "<s>", "chat_template": source}, tiny_opt)
    template = chats._read(tmp_path, "llama", "", None)
    try:
        expected = by_transformers(tokenizer, MESSAGES[1:])
    except Exception as error:
        with pytest.raises(type(error)):
            our_text(template, MESSAGES[1:])
    else:
        assert our_text(template, MESSAGES[1:]) == expected


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


ONE, TWO = {"name": "tool_use", "template": "tools"}, {"name": "default", "template": "own"}
PLACES = {  # what tokenizer_config.json says (None: it is missing), and files
    "nowhere": ({}, {}),
    "settings": ({"chat_template": "own"}, {}),
    "several": ({"chat_template": [ONE, TWO]}, {}),
    "several without default": ({"chat_template": [ONE]}, {}),
    "null": ({"chat_template": None}, {}),
    "file": ({"chat_template": "own"}, {"chat_template.jinja": "{{ 'ä' }}\r\n\n"}),
    "file alone": (None, {"chat_template.jinja": "file"}),
    "folder": ({"chat_template": "own"}, {"additional_chat_templates/rag.jinja": "rag"}),
    "folder with default": ({}, {"additional_chat_templates/default.jinja": "more", "chat_template.jinja": "file"}),
    "file and folder": ({}, {"additional_chat_templates/a.jinja": "a", "chat_template.jinja": "file"}),
    "of a processor": ({}, {"chat_template.json": '{"chat_template": "json"}'}),
}


@pytest.mark.parametrize("place", PLACES)
def test_templates_are_read_where_transformers_reads_them(place, tmp_path, tiny_opt, session):
    settings, files = PLACES[place]
    for name in ("config.json", "model.safetensors"):
        shutil.copy(tiny_opt / name, tmp_path)
    (tmp_path / "additional_chat_templates").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_bytes(text.encode())
    tokenizer = tokenizer_of(tmp_path, "opt", settings, tiny_opt)
    identity = target_in(session, tmp_path).identity
    if "default" in (tokenizer.chat_template or {}) or isinstance(tokenizer.chat_template, str):
        assert our_text(chat_template(identity), MESSAGES[1:2]) == by_transformers(tokenizer, MESSAGES[1:2])
    else:
        problem = "none called default; copy" if tokenizer.chat_template else "has no chat template"
        refused_by(HeadroomError, problem, lambda: chat_template(identity))


def test_a_template_counts_as_soon_as_it_is_there(chatty, session):
    identity = target_in(session, chatty).identity
    assert chat_template(identity).source == TURNS
    (chatty / chats.FILE).write_text("x" * (chats.MOST_BYTES + 1))
    refused_by(HeadroomError, "at most 256,000", lambda: chat_template(identity))
    (chatty / chats.FILE).unlink()
    refused_by(HeadroomError, "has no chat template", lambda: chat_template(identity))


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
    questions = render_questions(spec).questions
    assert expected == [(q.doc_id, c, d) for q in questions for c, d in zip(q.contexts, q.continuations, strict=True)]
    assert all(q.contexts[0].count("USER:") == 1 + shots for q in questions)
    for bos in (True, False):
        compare(model, questions, bos)
    np.testing.assert_array_equal(
        ours(model, questions, True).log_likelihood_nats, ours(model, questions, False).log_likelihood_nats
    )  # the template begins with BOS


def test_chats_have_keys_of_their_own_and_others_keep_theirs(monkeypatch):
    plain, chat = TaskSpec("piqa", 2), TaskSpec("piqa", 2, chat=ChatTemplate(TURNS))
    assert plain.fields().keys() == {"name", "shots", "split", "seed", "same_examples"}
    assert chat.fields() == plain.fields() | {"chat": ChatTemplate(TURNS).digest}
    assert ChatTemplate(TURNS).digest == "c996b62a4cee962ada9d09cf57f9a7c8", "as before"
    dated = [ChatTemplate("{{ strftime_now('%Y') }}").digest]
    monkeypatch.setattr(chats, "TODAY", "2026-01-01")
    assert ChatTemplate("{{ strftime_now('%Y') }}").digest not in dated, "the day is part of the key"
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
