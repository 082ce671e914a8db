"""Whether the tensors of a checkpoint are those that the model of its config.json has: all of them, no others, and each
of the right shape. Checked before a value is read, since transformers fills missing tensors with random numbers.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from engine.architecture.layer_tensors import place_of
from engine.architecture.model_config import UNEMBEDDINGS
from engine.architecture.transformers_internals import empty_model, tied_weights
from engine.checkpoints.tensor_names import FULL_PRECISION, refuse_foreign
from engine.checkpoints.tensors import LazyTensor
from engine.errors import HeadroomError

AGAIN = "download or copy the folder again"


def refuse_other_layers(model: str, names: Iterable[str], n_layers: int) -> None:
    """HeadroomError where tensors of these names are of more layers than the config has, or of fewer."""
    found = {place.layer for name in names if (place := place_of(name)) is not None}
    if found and max(found) + 1 != n_layers:
        layers = "1 layer" if n_layers == 1 else f"{n_layers} layers"
        raise HeadroomError(
            f"{model} is not whole: config.json says {layers} and the weights have {max(found) + 1}; "
            "use the config.json and the weights of one model"
        )


def refuse_unless_whole(model: str, tensors: Mapping[str, LazyTensor], model_class: Any, config: Any) -> None:
    """HeadroomError naming the first tensor that is missing, has another shape or no place, and how many there are.

    `tensors` has the tensors by their names in the model.
    """
    refuse_other_layers(model, tensors, config.num_hidden_layers)
    skeleton = empty_model(model_class, config)
    due = {name: tuple(value.shape) for name, value in skeleton.state_dict().items()}
    places = {name: _place(name, skeleton.base_model_prefix, due) for name in tensors}
    by_place = {place: name for name, place in places.items() if place}
    for place, count in Counter(places.values()).items():
        if place and count > 1:
            raise HeadroomError(f"{model}: {place} is in its files under {count} names; keep one of them")
    wrong = [
        f"{name} is {tensors[name].shape} and should be {due[place]}"
        for place, name in by_place.items()
        if tensors[name].shape != due[place]
    ]
    types = [
        f"{name} is of type {tensors[name].dtype} and should be of floating point"
        for name in by_place.values()
        if "float" not in tensors[name].dtype
    ]
    missing = missing_tensors(skeleton, by_place)
    wrong += [f"{name} is missing" for name in due if name in missing]
    strangers = sorted(name for name, place in places.items() if not place)
    refuse_foreign(model, strangers)
    if types:
        raise HeadroomError(f"{model} is not of plain weights: {types[0]}{_more(types)}; {FULL_PRECISION}")
    if wrong:
        instead = f"; the files hold {strangers[0]} instead" if missing and strangers else ""
        advice = _advice(tensors, strangers, skeleton.base_model_prefix, due)
        raise HeadroomError(f"{model} is not whole: {wrong[0]}{_more(wrong)}{instead}; {advice}")
    if strangers:
        raise HeadroomError(
            f"{model}: its config.json has no place for {strangers[0]}{_more(strangers)}; use the config.json that "
            "belongs to the weights"
        )


def _advice(stored: Mapping[str, LazyTensor], strangers: Iterable[str], base: str, due: Mapping[str, Any]) -> str:
    """What to do about a checkpoint that is not whole: names in its files may begin with a prefix."""
    prefixes = {each.in_file.removesuffix(name) for name, each in stored.items() if each.in_file.endswith(f".{name}")}
    for name in strangers:
        parts = name.split(".")
        ends = (".".join(parts[at:]) for at in range(1, len(parts)))
        if end := next((end for end in ends if _place(end, base, due)), ""):
            prefixes.add(name.removesuffix(end))
    if not prefixes:
        return AGAIN
    listed = " and ".join(map(repr, sorted(prefixes)[:2]))
    return (
        f"its files have names that begin with {listed}: save one whole model without it, such as with save_pretrained"
    )


def missing_tensors(model: Any, given: Collection[str]) -> set[str]:
    """The tensors of a model that are not among those given; of two that are tied, either will do."""
    missing = set(model.state_dict()) - {*given}
    for one, other in tied_weights(model).items():
        missing -= {one} if one in missing else {other}
    return missing


def refuse_unless_loaded(model: str, report: Mapping[str, Any]) -> None:
    """The same from what transformers says after a load."""
    wrong = sorted(report["missing_keys"]) + sorted(name for name, *_ in report["mismatched_keys"])
    if wrong:
        raise HeadroomError(f"{model} is not whole: {wrong[0]} was not loaded{_more(wrong)}; {AGAIN}")


def refuse_unknown_tokens(model: str, tokenizer: Any, n_rows: int) -> None:
    """HeadroomError where a tokenizer has tokens without a row in the embedding. Added tokens may have none, as no
    plain text gives them: `<image_soft_token>` of Gemma 3, or a `[PAD]` for fine-tuning."""
    added = tokenizer.added_tokens_decoder
    beyond = sorted((number, token) for token, number in tokenizer.get_vocab().items()
                    if number >= n_rows and number not in added)  # fmt: skip
    if beyond:
        number, token = beyond[0]
        raise HeadroomError(
            f"{model}: its tokenizer gives token {number} ({token[:40]!r}){_more(beyond)}, and the embedding has "
            f"{n_rows:,} rows; use the tokenizer and the weights of one model"
        )


def _place(name: str, prefix: str, due: Mapping[str, Any]) -> str:
    """The parameter that a tensor of that name becomes, as transformers sees it; "" for none."""
    for old in UNEMBEDDINGS:
        if name == old and old not in due:
            name = next((each for each in UNEMBEDDINGS if each in due), name)
    if name.startswith(f"{prefix}.") and name.removeprefix(f"{prefix}.") in due:
        return name.removeprefix(f"{prefix}.")
    return next((each for each in (f"{prefix}.{name}", name) if each in due), "")


def _more(wrong: list[Any]) -> str:
    return f" (and {len(wrong) - 1:,} more like it)" if len(wrong) > 1 else ""
