"""The tokenizer of a model folder: as transformers reads it, but with the tokens of its own files, and what it puts in
front of a text.

transformers 5 rebuilds many tokenizers as the class that `tokenizer_class` or the model's type names, and keeps only
the vocabulary and the merges of tokenizer.json. The class may cut texts otherwise than the file says, without a word.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from typing import Any

from cache import Store
from engine.architecture.family import family_of
from engine.architecture.transformers_internals import import_models, model_config
from engine.checkpoints.weight_files import JSON_BYTES, not_weights, read_json
from engine.errors import HeadroomError

OWN, SETTINGS, PIECES, VOCABULARY = "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json"
DAMAGED = "the tokenizer is damaged"
OTHER = "own"  # mark of a tokenizer whose class in transformers gives other tokens than its file
AS_WRITTEN = ("PreTrainedTokenizerFast", "TokenizersBackend")  # classes that take tokenizer.json as it is
LETTERS = ("a", "e", "1", "あ", " ", "\n")  # the first that a tokenizer knows shows what it puts in front of it
# texts that tokenizers of different kinds cut differently: blanks, line ends, digits, case, accents in both forms,
# contractions, scripts, runs of marks, bytes
TEXTS = (
    "The sea was calm, and nobody on the shore spoke of 1,234.50 ships or 2024's storm.",
    "a", " a", "  two  blanks ", "one\ntwo\n\n\nthree\r\n", "\ttab\tand \u00a0 blank", " \n \n",
    "I'll WE'VE don't O'Brien's", "UPPER lower camelCase snake_case", "0123456789 12 345 6789 1e-5 0x1F",
    "caf\u00e9 cafe\u0301 \u00c5ngstr\u00f6m \ufb01ne", "\u200bzero\u200dwidth\ufeff", "The\u2581sea", "a" * 24,
    "日本語のテキスト 中文 한국어", "Привет мир, Ελλάδα, עברית, عربى", "🙂👍🏽 👩\u200d👩\u200d👧 ",
    "if (x != y) { return x[0] ** -1; }  // ...", "http://a.b/c?d=e&f=g#h @user #tag $5 50% --- *** ===",
    "…“quotes”—dashes–¼²", "<b>tag</b> {{y}}",
)  # fmt: skip
ROWS = "n_embedding_rows"  # attribute of a loaded tokenizer
N_ADDED = 20  # added tokens with a text after them
N_SAMPLED = 500  # tokens of the vocabulary whose own text is cut again


@dataclass(frozen=True)
class TokenizerReading:
    """How a folder's tokenizer reads texts.

    beginning: the tokens that it puts in front of a text
    mark: "" for tokens of transformers' own class with at most BOS (or EOS) in front, else what differs; part of the
        tokenizer's digest
    """

    beginning: tuple[int, ...]
    mark: str = ""

    @property
    def is_own(self) -> bool:
        """Whether transformers' class gives other tokens than the file."""
        return self.mark.startswith(OTHER)


def reading_of(folder: Path, config: Mapping[str, Any], digest: str, store: Store | None = None) -> TokenizerReading:
    """How the tokenizer in a folder reads texts. `store` remembers it under the files' `digest`.

    Most tokenizers have to be loaded for that, which needs transformers; one that is taken as its tokenizer.json is
    written does not. HeadroomError: its files are damaged or missing.
    """
    if (plain := _as_written(folder, digest)) is not None:
        return plain
    versions = [f"{name} {version(name)}" for name in ("transformers", "tokenizers")]
    named = json.dumps([digest, config["model_type"], *versions])
    key = f"tokenizer-reading/{hashlib.blake2b(named.encode(), digest_size=20).hexdigest()}"
    if store is not None and (known := _decoded(store.get(key))) is not None:
        return known
    found = _loaded_reading(folder, json.dumps(dict(config), sort_keys=True), key)
    if store is not None:
        store.put(key, json.dumps([list(found.beginning), found.mark]).encode())
    return found


def load_tokenizer(folder: Path, config: Mapping[str, Any], n_rows: int) -> Any:
    """The tokenizer in a folder, whose tokens are those of its tokenizer.json or tokenizer.model, for a model whose
    embedding has so many rows. HeadroomError: its files are damaged, or a library is missing that reads them."""
    tokenizer = _loaded(folder, config)[0]
    setattr(tokenizer, ROWS, n_rows)
    return tokenizer


def tokens_in_front(tokenizer: Any) -> list[int]:
    """The tokens that a tokenizer puts in front of a text of itself."""
    for letter in LETTERS:
        found = tokenizer(letter, return_special_tokens_mask=True)
        added = list(takewhile(lambda pair: pair[1], zip(found.input_ids, found.special_tokens_mask, strict=True)))
        if len(added) < len(found.input_ids):
            return [token for token, _ in added]
    return []


def prefix_token(tokenizer: Any, default: int | None = None) -> int | None:
    """The token that stands for an empty context, as the harness has it: BOS, or EOS where there is none."""
    known = (tokenizer.bos_token_id, tokenizer.eos_token_id, default)
    return next((token for token in known if token is not None), None)


@lru_cache(maxsize=100)
def _loaded_reading(folder: Path, config: str, key: str) -> TokenizerReading:
    """The reading of the loaded tokenizer; `key` changes with its files."""
    tokenizer, mark = _loaded(folder, json.loads(config))
    beginning = tokens_in_front(tokenizer)
    if beginning and beginning != [prefix_token(tokenizer)]:
        mark = f"{mark} {beginning}"
    return TokenizerReading(tuple(beginning), mark)


def _decoded(known: bytes | None) -> TokenizerReading | None:
    try:
        beginning, mark = json.loads(known or b"")
        if all(type(token) is int for token in beginning) and isinstance(mark, str):
            return TokenizerReading(tuple(beginning), mark)
    except (ValueError, TypeError):
        pass
    return None


@lru_cache(maxsize=100)
def _as_written(folder: Path, digest: str) -> TokenizerReading | None:
    """The reading of a tokenizer.json that is taken as it is written, from its post-processor alone, without
    transformers; None if the tokenizer has to be loaded. `digest` changes with the files."""
    settings = tokenizer_settings(folder)
    if not (folder / OWN).is_file() or settings.get("tokenizer_class") not in AS_WRITTEN:
        return None
    from tokenizers import Tokenizer, models

    bare = json.loads(Tokenizer(models.WordLevel({LETTERS[0]: 0}, unk_token=LETTERS[0])).to_str())
    bare["post_processor"] = _own(folder / OWN).get("post_processor")
    try:
        found = Tokenizer.from_str(json.dumps(bare)).encode(LETTERS[0])
    except Exception as error:  # the library knows no other kind
        raise _unreadable(folder / OWN, error) from error
    n_added = len(list(takewhile(bool, found.special_tokens_mask)))
    bos = settings.get("bos_token")
    names = [bos.get("content") if isinstance(bos, dict) else bos]
    return TokenizerReading(tuple(found.ids[:n_added])) if found.tokens[:n_added] in ([], names) else None


def _own(file: Path) -> dict[str, Any]:
    """The object in a tokenizer.json, of which many have 20 MB: fast where nothing is wrong with it."""
    if file.stat().st_size <= JSON_BYTES:
        with suppress(ValueError, RecursionError):
            if isinstance(found := json.loads(file.read_bytes()), dict):
                return found
    return read_json(file, DAMAGED)


def tokenizer_settings(folder: Path, name: str = SETTINGS) -> dict[str, Any]:
    """What tokenizer_config.json, or another such file of a tokenizer, says; nothing where it is missing."""
    file = folder / name
    return dict(read_json(file, DAMAGED)) if file.is_file() else {}


def _loaded(folder: Path, config: Mapping[str, Any]) -> tuple[Any, str]:
    """(the tokenizer, "" or a word if its tokens are not those of transformers' class)."""
    settings = tokenizer_settings(folder)
    if (folder / OWN).is_file():
        return _with_own_tokens(folder, config, settings)
    if (folder / PIECES).is_file():
        return _with_own_pieces(folder, config)
    return _with_own_vocabulary(folder, config), ""


def _as_class(folder: Path, config: Mapping[str, Any], name: str = "AutoTokenizer", **kwargs: Any) -> Any:
    """What transformers makes of the folder."""
    import transformers

    import_models()  # in one thread at a time
    transformers.utils.logging.set_verbosity_error()
    is_of_model = name == "AutoTokenizer" and family_of(config).is_stock
    of_model = {"config": model_config(config)} if is_of_model else {}
    try:
        return getattr(transformers, name).from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False, **of_model, **kwargs
        )
    except Exception as error:  # whatever transformers and tokenizers think of foreign files
        raise _unreadable(folder, error) from error


def _with_own_tokens(folder: Path, config: Mapping[str, Any], settings: Mapping[str, Any]) -> tuple[Any, str]:
    """(the tokenizer, mark) of a folder with a tokenizer.json. Its class is kept, as that knows special tokens which
    files leave out, unless it cuts any of TEXTS otherwise than the file."""
    from tokenizers import Tokenizer

    if settings.get("tokenizer_class") in AS_WRITTEN:
        with suppress(HeadroomError):  # what follows says which file is damaged
            return _as_class(folder, config, AS_WRITTEN[0]), ""
    try:
        own = Tokenizer.from_file(str(folder / OWN))
    except Exception as error:  # the library knows no other kind
        raise _unreadable(folder / OWN, error) from error
    own.no_truncation()
    own.no_padding()

    def cut(texts: Sequence[str]) -> list[list[int]]:
        return [each.ids for each in own.encode_batch(texts, add_special_tokens=False)]

    defaults = {}
    with suppress(HeadroomError):  # the class cannot be made of this file
        tokenizer = _as_class(folder, config)
        if type(tokenizer).__name__ in AS_WRITTEN or tokenizer.is_fast and _cuts_alike(tokenizer, cut, own):
            return tokenizer, ""
        known = own.get_vocab()
        defaults = {name: token for name, token in tokenizer.special_tokens_map.items()
                    if isinstance(token, str) and token in known and name not in settings}  # fmt: skip
    return _as_class(folder, config, AS_WRITTEN[0], **defaults), OTHER


def _with_own_vocabulary(folder: Path, config: Mapping[str, Any]) -> Any:
    """The tokenizer of a folder with vocab.json and merges.txt. Classes that read other files would leave them out, and
    give tokens of nothing."""
    vocabulary = read_json(folder / VOCABULARY, DAMAGED)
    with suppress(HeadroomError):
        tokenizer = _usable(folder, _as_class(folder, config))
        known = tokenizer.get_vocab()
        is_there = all(known.get(token) == number for token, number in vocabulary.items())
        if is_there and tokenizer.decode(tokenizer(TEXTS[0], add_special_tokens=False).input_ids) == TEXTS[0]:
            return tokenizer
    raise HeadroomError(f"{folder} has vocab.json and merges.txt, which the class that transformers takes does not "
                        'read; set "tokenizer_class" in tokenizer_config.json, for most to "GPT2Tokenizer", or add '
                        "the tokenizer.json that belongs to them")  # fmt: skip


def _with_own_pieces(folder: Path, config: Mapping[str, Any]) -> tuple[Any, str]:
    """(the tokenizer, mark) of a folder with a sentencepiece model alone. transformers' classes leave out the blank
    that it puts in front of a text which begins with one."""
    from tokenizers import normalizers

    file = folder / PIECES
    if problem := not_weights(file):
        raise HeadroomError(f"{file} {problem}")
    for library, module in (("sentencepiece", "sentencepiece"), ("protobuf", "google.protobuf")):
        if not _has(module):
            raise HeadroomError(f"{folder} has its tokenizer in tokenizer.model alone, which the library {library} "
                                f"reads, and that is not installed; run `pip install {library}`")  # fmt: skip
    import sentencepiece

    pieces: Any = sentencepiece.SentencePieceProcessor()
    try:
        pieces.LoadFromFile(str(file))
    except (OSError, RuntimeError):  # else it is of tiktoken, which transformers reads if the library is there
        return _usable(folder, _as_class(folder, config)), ""

    def cut(texts: Sequence[str]) -> list[list[int]]:
        return [pieces.encode(text) for text in texts]

    for name, mark in (("AutoTokenizer", ""), ("LlamaTokenizer", OTHER)):
        tokenizer = _as_class(folder, config, name)
        if not tokenizer.is_fast:
            continue
        if mark:
            tokenizer.backend_tokenizer.pre_tokenizer = None
            tokenizer.backend_tokenizer.normalizer = normalizers.Sequence(
                [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
            )
        if _cuts_alike(tokenizer, cut):
            return tokenizer, mark
    raise HeadroomError(f"{file} cuts texts otherwise than every class of transformers that reads it; add the "
                        "tokenizer.json that belongs to it")  # fmt: skip


def _cuts_alike(tokenizer: Any, cut: Callable[[Sequence[str]], list[list[int]]], own: Any = None) -> bool:
    """Whether a tokenizer gives the tokens that the file's own `cut` gives. `own`, the tokenizer of a tokenizer.json,
    adds the texts of its vocabulary, and its special tokens inside a text."""
    texts = list(TEXTS)
    if own is not None:
        size = own.get_vocab_size(with_added_tokens=False)
        texts += own.decode_batch([[id] for id in range(0, size, max(1, size // N_SAMPLED))])
        added = list(own.get_added_tokens_decoder().values())[:N_ADDED]
        texts += [f"{token.content}{rest}" for token in added for rest in ("", "a b", " a", "\na")]
    return _cut_each(lambda texts: tokenizer(texts, add_special_tokens=False)["input_ids"], texts) == _cut_each(
        cut, texts
    )


def _cut_each(cut: Callable[[Sequence[str]], list[list[int]]], texts: Sequence[str]) -> list[list[int] | None]:
    """The tokens of each text; None for one that a vocabulary without an unknown token cannot write."""
    try:
        return [*cut(texts)]
    except Exception:  # the libraries know no other kind
        if len(texts) == 1:
            return [None]
    return [found for text in texts for found in _cut_each(cut, [text])]


def _usable(folder: Path, tokenizer: Any) -> Any:
    """The tokenizer, if it is of a kind that gives the place of each token in a text."""
    if not tokenizer.is_fast:
        raise HeadroomError(f"{folder} has a tokenizer of class {type(tokenizer).__name__}, which gives no places in a "
                            "text; add its tokenizer.json")  # fmt: skip
    return tokenizer


def _has(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of the package above it
        return False


def _unreadable(where: Path, error: Exception) -> HeadroomError:
    what = " ".join(str(error).split())[:200] or type(error).__name__
    return HeadroomError(
        f"the tokenizer in {where} cannot be read: {what}; it is damaged, or newer than the installed transformers "
        f"{version('transformers')} and tokenizers {version('tokenizers')}"
    )
