"""A tokenizer gives the tokens of its own files, and by default stands behind what it puts in front of a text itself:
compared with transformers, the harness, `tokenizers` and sentencepiece."""

import json
import shutil
import sys
from io import BytesIO
from itertools import product

import numpy as np
import pytest
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from cache import Store
from engine.architecture.families import FAMILIES
from engine.checkpoints import tokenizer as reading
from engine.demo import story
from engine.errors import HeadroomError
from engine.export.exporting import Export, export
from engine.heads.ablation import losses_of
from engine.heads.attention import overview
from engine.models.loading import LoadSpec, identify
from engine.models.masks import Mask, parse_mask
from engine.models.session import Session
from engine.progress import final
from engine.questions.encoding import encode_questions, front, read, tokenized
from engine.questions.rendering import Question
from engine.texts.perplexity import perplexity
from engine.texts.tokenloss import token_losses
from tests.conftest import IS_THOROUGH
from tests.engine.fixtures import loaded, refused_by

BOS, EOS, UNK, PAD = "<s>", "</s>", "<unk>", "<pad>"
SPECIAL = [PAD, BOS, EOS, UNK]
TEXTS = [
    "A river runs", " a river", "  two  blanks", "one\n\ntwo\n", "tab\there", "I'll don't 1234", "Ünïcode 日本 🙂",
    "UP Down", "if x[0] != 1:", "<s> a river", "<s>a</s> river", "a",
]  # fmt: skip


def byte_level(use_regex=True, normalizer=None):
    """A tokenizer in the form of GPT-2, OPT and Llama 3."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)
    tokenizer.decoder = decoders.ByteLevel()
    return trained(tokenizer, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())


def metaspace(is_old=False, prepends=True):
    """A tokenizer in the form of Llama 2 as it was published (`is_old`), as transformers 5 writes it, or of Gemma."""
    tokenizer = Tokenizer(models.BPE(unk_token=UNK, fuse_unk=True, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", split=True)  # as sentencepiece is trained
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    trained(tokenizer, special_tokens=SPECIAL + [f"<0x{byte:02X}>" for byte in range(256)])
    replaced = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = None
    if not prepends:
        tokenizer.normalizer = replaced
        tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    elif is_old:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), replaced])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="first", split=False)
    return tokenizer


def trained(tokenizer, special_tokens=SPECIAL, **options):
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=list(special_tokens), show_progress=False, **options)
    tokenizer.train_from_iterator([story()], trainer)
    return tokenizer


def with_front(tokenizer, *tokens, behind=()):
    """The tokenizer with a post-processor that puts tokens in front and behind."""
    copy = Tokenizer.from_str(tokenizer.to_str())
    known = [(token, copy.token_to_id(token)) for token in {*tokens, *behind}]
    copy.post_processor = processors.TemplateProcessing(single=" ".join([*tokens, "$A", *behind]), special_tokens=known)
    return copy


FILES = {
    "GPT-2": byte_level(),
    "GPT-NeoX": byte_level(normalizer=normalizers.NFC()),
    "Llama 2": metaspace(is_old=True),
    "Llama": metaspace(),
    "Gemma": metaspace(prepends=False),
}
CLASSES = (
    None, "PreTrainedTokenizerFast", "TokenizersBackend", "LlamaTokenizer", "LlamaTokenizerFast", "GPT2Tokenizer",
    "GPT2TokenizerFast", "GPTNeoXTokenizerFast", "GemmaTokenizer", "Qwen2Tokenizer", "CohereTokenizerFast",
    "T5Tokenizer", "BertTokenizerFast", "XLMRobertaTokenizer", "OfNobody",
)  # fmt: skip
KINDS = [kind for kind, family in FAMILIES.items() if family.is_stock]
NAMED = {"bos_token": BOS, "eos_token": EOS, "unk_token": UNK, "pad_token": PAD}


def some(cases, every):
    """Every seventh of the cases in `make thorough`, else every so many."""
    return list(cases)[:: 7 if IS_THOROUGH else every]


def written(folder, tokenizer, kind, settings):
    """A folder of these tokenizer files."""
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    if settings is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def read_as(folder, kind):
    """(the tokenizer, its reading) of a folder, for a model of that kind."""
    config = {"model_type": kind}
    return reading.load_tokenizer(folder, config, 10**6), reading.reading_of(folder, config, str(folder))


def theirs(folder, kind):
    """transformers' tokenizer of a folder."""
    config = transformers.AutoConfig.for_model(kind)
    return transformers.AutoTokenizer.from_pretrained(folder, config=config, local_files_only=True)


@pytest.mark.thorough
@pytest.mark.slow("loads each of some dozens of tokenizers twice")
def test_tokens_are_those_of_tokenizer_json_whatever_class_is_named(tmp_path):
    """Of every file with every class, for models of every kind, which may override the class."""
    combinations = [(file, name, kind) for file in FILES for name, kind in product(CLASSES, KINDS)]
    for number, (file, name, kind) in enumerate(some(combinations, every=67)):
        own = FILES[file]
        settings = NAMED | ({} if name is None else {"tokenizer_class": name})
        folder = written(tmp_path / str(number), own, kind, None if name is None and number % 2 else settings)
        tokenizer, _ = read_as(folder, kind)
        expected = [each.ids for each in own.encode_batch(TEXTS, add_special_tokens=False)]
        assert tokenizer(TEXTS, add_special_tokens=False)["input_ids"] == expected, (file, name, kind)
        assert tokenizer.decode(expected[0]).strip() == TEXTS[0]


FRONTS = {
    "none": ((), ()), "bos": ((BOS,), ()), "eos in front": ((EOS,), ()), "bos, eos behind": ((BOS,), (EOS,)),
    "eos behind": ((), (EOS,)), "two": ((PAD, BOS), ()), "unnamed": ((UNK,), ()),
}  # fmt: skip
FIELDS = ({}, {"add_bos_token": True}, {"add_bos_token": False}, {"add_bos_token": True, "bos_token": None},
          {"bos_token": None})  # fmt: skip


class Harness:
    """The harness's own way from a text to tokens, at its defaults."""

    def __new__(cls, tokenizer):
        from lm_eval.models.huggingface import HFLM

        found = HFLM.__new__(HFLM)
        found.tokenizer, found.add_bos_token, found.custom_prefix_token_id = tokenizer, None, None
        found.backend = "causal"
        return found


def inputs(tokenizer, bos, context, continuation):
    """All tokens of a question with one choice."""
    question = Question(0, (context,), (continuation,), (0,), (len(continuation),), "")
    [[choice]] = encode_questions([question], tokenizer, bos, 1000)
    return [*choice.inputs, choice.targets[-1]]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.thorough
@pytest.mark.slow("loads each of some dozens of tokenizers twice")
def test_by_default_a_text_begins_as_transformers_and_the_harness_have_it(tmp_path):
    named = {
        "GPT-2": "GPT2Tokenizer", "GPT-NeoX": "GPTNeoXTokenizerFast", "Llama": "LlamaTokenizerFast",
        "Gemma": "GemmaTokenizer",
    }  # fmt: skip
    cases = product(named, FRONTS, FIELDS, ("of its class", "PreTrainedTokenizerFast"), ("as written", "saved again"))
    for number, (file, kind_of_front, fields, name, form) in enumerate(some(cases, every=17)):
        before, behind = FRONTS[kind_of_front]
        kind = {"GPT-2": "opt", "GPT-NeoX": "gpt_neox", "Llama": "llama", "Gemma": "gemma"}[file]
        settings = NAMED | fields | {"tokenizer_class": named[file] if name == "of its class" else name}
        folder = tmp_path / str(number)
        tokenizer = with_front(FILES[file], *before, behind=behind)
        if kind_of_front == "none" and number % 2:
            tokenizer = FILES[file]  # without a post-processor
        written(folder, tokenizer, kind, settings)
        if form == "saved again":
            theirs(folder, kind).save_pretrained(folder)
        reference, (found, how) = theirs(folder, kind), read_as(folder, kind)
        case = (file, kind_of_front, fields, name, form)
        text_ids, whole = (reference(TEXTS[0], add_special_tokens=special).input_ids for special in (False, True))
        at = next(at for at in range(len(whole)) if whole[at : at + len(text_ids)] == text_ids)
        assert list(how.beginning) == whole[:at], case
        assert read(TEXTS[0], found, bool(how.beginning), 100).inputs.tolist() == whole[: at + len(text_ids)], case
        if behind:
            continue  # the harness takes the end token for a part of the context
        harness = Harness(reference)
        if harness.prefix_token_id is None:
            continue
        for context, continuation in product((*TEXTS[:3], "<s> a river", "</s>a"), (" flows", "\nIt")):
            expected = sum(harness._encode_pair(context, continuation), [])
            assert inputs(found, bool(how.beginning), context, continuation) == expected, (*case, context)
        ids = harness.tok_encode(" flows", add_special_tokens=False)
        assert inputs(found, bool(how.beginning), "", " flows") == [harness.prefix_token_id, *ids], case


@pytest.mark.parametrize("kind, name", [("opt", "LlamaTokenizer"), ("llama", None), ("gemma", None)])
def test_a_vocabulary_that_the_class_leaves_out_is_refused(kind, name, tmp_path):
    FILES["GPT-2"].model.save(str(tmp_path))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({} if name is None else {"tokenizer_class": name}))
    refused_by(HeadroomError, "does not read; set .tokenizer_class.*GPT2Tokenizer", lambda: read_as(tmp_path, kind))


@pytest.mark.parametrize("fields", FIELDS)
def test_a_tokenizer_of_two_files_begins_as_transformers_has_it(fields, tmp_path):
    """OPT's own form: vocab.json and merges.txt."""
    FILES["GPT-2"].model.save(str(tmp_path))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(NAMED | {"tokenizer_class": "GPT2Tokenizer"} | fields))
    (found, how), reference = read_as(tmp_path, "opt"), theirs(tmp_path, "opt")
    assert list(how.beginning) == reference("a").input_ids[:-1] and found("a").input_ids == reference("a").input_ids
    is_on = fields.get("add_bos_token", False) and "bos_token" not in fields
    assert how.beginning == ((found.bos_token_id,) if is_on else ())


def test_bos_that_is_asked_for_is_what_the_tokenizer_puts_there_or_bos_or_eos(tmp_path):
    for number, (before, fields, expected) in enumerate((
        ((), {}, [BOS]), ((), {"bos_token": None}, [EOS]), ((UNK,), {}, [UNK]), ((PAD, BOS), {}, [PAD, BOS]),
    )):  # fmt: skip
        settings = NAMED | fields | {"tokenizer_class": "PreTrainedTokenizerFast"}
        tokenizer, _ = read_as(written(tmp_path / str(number), with_front(FILES["Llama"], *before), "llama", settings),
                               "llama")  # fmt: skip
        assert tokenizer.convert_ids_to_tokens(front(tokenizer, True)) == expected and front(tokenizer, False) == []
    settings = {"tokenizer_class": "PreTrainedTokenizerFast"}
    tokenizer, how = read_as(written(tmp_path / "bare", FILES["Llama"], "llama", settings), "llama")
    assert how.beginning == () and inputs(tokenizer, False, "a", " b") == tokenizer("a b").input_ids
    for call in (lambda: front(tokenizer, True), lambda: inputs(tokenizer, False, "", " b")):
        refused_by(HeadroomError, "neither a beginning nor an end token", call)


def model_with(folder, tiny_opt, tokenizer, **settings):
    """The tiny model with another tokenizer."""
    shutil.copytree(tiny_opt, folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(NAMED | settings))
    return folder


def test_several_tokens_in_front_are_read_and_not_scored(tiny_opt, tmp_path):
    """By every measurement of losses, as by one plain pass."""
    import torch

    tokenizer = with_front(Tokenizer.from_file(str(tiny_opt / "tokenizer.json")), PAD, EOS)
    folder = model_with(tmp_path / "model", tiny_opt, tokenizer, tokenizer_class="PreTrainedTokenizerFast")
    session, text = Session(Store(tmp_path / "store")), story()[:300]
    target, model = session.target(LoadSpec(str(folder), "fp32")), loaded(folder)
    assert target.bos and target.identity.reading.beginning == (1, 2)
    ids = model.tokenizer(text, add_special_tokens=False).input_ids
    with torch.inference_mode():
        log_p = model.model(torch.tensor([[1, 2, *ids]])).logits[0].double().log_softmax(-1)
    expected = [-log_p[at + 1, token].item() for at, token in enumerate(ids)]
    whole = Mask.full(target.shape)
    for found in (
        final(token_losses(target, text, whole).run(session)).loss_nats,
        final(perplexity(target, text, whole).run(session)).loss_nats,
        losses_of(model, read(text, model.tokenizer, True, 500)),
    ):
        np.testing.assert_allclose(found, expected, atol=1e-4)
    seen = final(overview(target, text, whole).run(session))
    assert seen.first_text == 2 and "".join(seen.pieces[2:]) == text and len(seen.token_ids) == len(ids) + 2


@pytest.mark.slow("reads five tokenizers as classes that do not fit")
def test_the_key_changes_only_for_tokenizers_that_were_read_otherwise(tiny_opt, tmp_path):
    def digest(name, tokenizer, **settings):
        folder = model_with(tmp_path / name, tiny_opt, tokenizer, **settings)
        return identify(LoadSpec(str(folder))), _plain_digest(folder)

    for number, (file, name) in enumerate((("GPT-2", "GPT2Tokenizer"), ("GPT-2", "PreTrainedTokenizerFast"))):
        for before in ((), (BOS,)):
            found, plain = digest(f"{number}{before}", with_front(FILES[file], *before), tokenizer_class=name)
            assert found.tokenizer_digest == plain and found.default_bos == bool(before)
    for name, file, named in (("a", "Llama 2", "GPT2Tokenizer"), ("b", "GPT-NeoX", "GPT2Tokenizer")):
        found, plain = digest(name, FILES[file], tokenizer_class=named)
        assert found.tokenizer_digest != plain and found.reading.is_own
    found, plain = digest("c", with_front(FILES["GPT-2"], PAD, BOS), tokenizer_class="PreTrainedTokenizerFast")
    assert found.tokenizer_digest != plain and not found.reading.is_own


def _plain_digest(folder):
    import hashlib

    from engine.checkpoints.identity import TOKENIZER_FILES

    digest = hashlib.blake2b(digest_size=16)
    for file in TOKENIZER_FILES:
        if (folder / file).is_file():
            digest.update(file.encode() + (folder / file).read_bytes())
    return digest.hexdigest()


def test_a_reading_is_remembered_and_a_plain_one_needs_no_transformers(tiny_opt, tmp_path, monkeypatch):
    store = Store(tmp_path / "store")
    folder = model_with(tmp_path / "model", tiny_opt, with_front(FILES["GPT-2"], BOS), tokenizer_class="GPT2Tokenizer")
    first = identify(LoadSpec(str(folder)), store).reading
    reading._loaded_reading.cache_clear()
    monkeypatch.setattr(reading, "_loaded", lambda *args: pytest.fail("it was loaded again"))
    assert identify(LoadSpec(str(folder)), store).reading == first and first.beginning == (1,)
    settings = {"tokenizer_class": "PreTrainedTokenizerFast"}
    plain = model_with(tmp_path / "plain", tiny_opt, with_front(FILES["GPT-2"], BOS), **settings)
    assert identify(LoadSpec(str(plain))).default_bos


@pytest.mark.slow("exports two models and opens each twice")
def test_an_exported_folder_gives_the_same_tokens_and_begins_the_same(tiny_opt, tmp_path):
    """Also to transformers, which would have taken another class."""
    session = Session(Store(tmp_path / "store"))
    for number, (name, tokenizer, form) in enumerate((
        ("GPT2Tokenizer", with_front(FILES["Llama 2"], BOS), "masked"),
        ("LlamaTokenizer", pieces(**PIECES["Llama 2"]), "small"),
    )):  # fmt: skip
        base, out = tmp_path / f"base {number}", tmp_path / f"out {number}"
        settings = {"tokenizer_class": name, "add_bos_token": True}
        if isinstance(tokenizer, bytes):
            model_with(base, tiny_opt, FILES["Llama"], **settings)
            (base / "tokenizer.json").unlink()
            (base / "tokenizer.model").write_bytes(tokenizer)
        else:
            model_with(base, tiny_opt, tokenizer, **settings)
        target = session.target(LoadSpec(str(base), "fp32"))
        final(export(session, target, Export(parse_mask("L0H1", target.shape), str(out), form=form)))
        before, after = loaded(base), loaded(out)
        assert target.bos and before.identity.reading.beginning == after.identity.reading.beginning
        kept = [text for text in TEXTS if "<s>" not in text]
        expected = before.tokenizer(kept).input_ids
        assert after.tokenizer(kept).input_ids == expected == theirs(out, "opt")(kept).input_ids, (name, form)
        assert after.tokenizer.special_tokens_map == before.tokenizer.special_tokens_map
        assert "TokenizersBackend" not in (out / "tokenizer_config.json").read_text()


EXTRA = "<image_soft_token>"


def filled(folder, size):
    """The tokenizer in a folder with a vocabulary of that size."""
    state = json.loads((folder / "tokenizer.json").read_text())
    state["model"]["vocab"] |= {f"unheard {number}": number for number in range(len(state["model"]["vocab"]), size)}
    return Tokenizer.from_str(json.dumps(state))


@pytest.mark.parametrize("special", [True, False])
def test_added_tokens_beyond_the_embedding_load_and_are_refused_where_a_text_has_one(special, tiny_opt, tmp_path):
    from tokenizers import AddedToken

    tokenizer, n_rows = filled(tiny_opt, 512), 512
    (tokenizer.add_special_tokens if special else tokenizer.add_tokens)([AddedToken(EXTRA, special=special), "[PAD]"])
    model = loaded(model_with(tmp_path / "model", tiny_opt, tokenizer, tokenizer_class="PreTrainedTokenizerFast"))
    assert max(model.tokenizer.get_vocab().values()) == n_rows + 1 and model.identity.shape.n_vocab == n_rows
    plain, same = "A river runs", loaded(tiny_opt).tokenizer
    assert tokenized(plain, model.tokenizer)[0].tolist() == same(plain, add_special_tokens=False).input_ids
    what = "a token has no row in the model's embedding"
    refused_by(HeadroomError, f"question 7: {what}; take it out.*{EXTRA}", lambda: encode_questions(
        [Question(7, ("a", "a"), (" b", f"{EXTRA} b"), (0,), (2, 2), "")], model.tokenizer, False, 100))  # fmt: skip
    refused_by(
        HeadroomError,
        f"the text .*{what}, '{EXTRA}'; take it out",
        lambda: tokenized(f"a{EXTRA}", model.tokenizer, is_chat=True),
    )
    if special:  # which is plain text in a text
        assert max(tokenized(f"a{EXTRA}", model.tokenizer)[0]) < n_rows


def test_a_base_vocabulary_beyond_the_embedding_is_refused(tiny_opt, tmp_path):
    folder = model_with(tmp_path / "model", tiny_opt, filled(tiny_opt, 514), tokenizer_class="PreTrainedTokenizerFast")
    refused_by(HeadroomError, r"token 512 \('unheard 512'\) \(and 1 more.*has 512 rows", lambda: loaded(folder))


PIECES = {"Llama 2": {"normalization_rule_name": "identity", "remove_extra_whitespaces": False, "byte_fallback": True},
          "Gemma": {"normalization_rule_name": "identity", "remove_extra_whitespaces": False, "byte_fallback": True,
                    "add_dummy_prefix": False},
          "nmt_nfkc": {}}  # fmt: skip


def pieces(**options):
    """The bytes of a small sentencepiece model."""
    import sentencepiece

    file = BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(story().splitlines()), model_writer=file, vocab_size=480, model_type="bpe",
        minloglevel=2, **options,
    )  # fmt: skip
    return file.getvalue()


@pytest.mark.parametrize("kind, name, form", [
    ("llama", "LlamaTokenizer", "Llama 2"), ("llama", None, "Llama 2"), ("mistral", "LlamaTokenizer", "Llama 2"),
    ("gemma", "GemmaTokenizer", "Gemma"), ("llama", "LlamaTokenizer", "nmt_nfkc"),
])  # fmt: skip
def test_a_sentencepiece_model_alone_gives_its_own_tokens(kind, name, form, tmp_path):
    import sentencepiece

    model = pieces(**PIECES[form])
    (tmp_path / "tokenizer.model").write_bytes(model)
    settings = {"add_bos_token": True} | ({} if name is None else {"tokenizer_class": name, "bos_token": BOS})
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    if form == "nmt_nfkc":  # which no class of transformers does
        refused_by(HeadroomError, "cuts texts otherwise.*tokenizer.json", lambda: read_as(tmp_path, kind))
        return
    own, (tokenizer, how) = sentencepiece.SentencePieceProcessor(model_proto=model), read_as(tmp_path, kind)
    for text in [text for text in TEXTS if "<s>" not in text]:
        assert tokenizer(text, add_special_tokens=False).input_ids == own.encode(text), text
    assert list(how.beginning) == tokenizer("a").input_ids[: -len(own.encode("a"))]
    if name is not None and kind != "gemma":
        assert how.beginning == (own.bos_id(),)


@pytest.mark.parametrize("library", ["sentencepiece", "google.protobuf"])
def test_a_missing_library_is_named(library, tmp_path, monkeypatch):
    (tmp_path / "tokenizer.model").write_bytes(b"\n\x0e\n\x05<unk>")
    monkeypatch.setitem(sys.modules, library, None)
    line = refused_by(HeadroomError, f"library {library.split('.')[-1]} ", lambda: read_as(tmp_path, "llama"))
    assert "pip install" in line and "download" not in line


@pytest.mark.parametrize("name, content", [
    ("tokenizer.json", "{}"), ("tokenizer.json", '{"model": {"type": "Newer"}}'), ("tokenizer.json", "[1]"),
    ("tokenizer.json", "{"), ("tokenizer_config.json", "[]"), ("tokenizer.model", "version https://git-lfs.github.com"),
    ("tokenizer.model", "text\n"), ("vocab.json", "{"),
])  # fmt: skip
def test_files_of_unreadable_forms_are_named(name, content, tmp_path):
    if name == "tokenizer_config.json":
        FILES["GPT-2"].save(str(tmp_path / "tokenizer.json"))
    if name == "vocab.json":
        (tmp_path / "merges.txt").write_text("#version: 0.2\n")
    (tmp_path / name).write_text(content)
    for settings in [None] if name == "tokenizer_config.json" else [None, "PreTrainedTokenizerFast", "LlamaTokenizer"]:
        if settings is not None:
            (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": settings}))
        line = refused_by(HeadroomError, "tokenizer", lambda: read_as(tmp_path, "llama"))
        assert str(tmp_path) in line
