"""The embedded model's own tokenizer: byte-level BPE in OPT's format."""

from collections.abc import Iterable
from typing import Any

BEGINNING = 2
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")  # ids 0 to 3, as in OPT; </s> also begins every sequence
TIMES = 3000  # so often the training text repeats the words of the questions, so that each becomes one token


def build_tokenizer(texts: Iterable[str], n_vocab: int) -> Any:
    """A trained `tokenizers.Tokenizer` that puts </s> (2) in front, splits at blanks like GPT-2's and loses no byte."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    from engine.demo.making import words

    tokenizer = Tokenizer(models.BPE(unk_token=None))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=n_vocab, special_tokens=list(SPECIAL), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )  # fmt: skip
    tokenizer.train_from_iterator([*texts, *([" " + " ".join(words.single_tokens())] * TIMES)], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="</s> $A", pair="</s> $A $B", special_tokens=[("</s>", 2)]
    )
    return tokenizer
