"""From a name to a model in memory: `LoadSpec` -> `Identity` (what it is, read from files) -> `Loaded`.

Only safetensors or `weights_only` checkpoints are read and code from a model repository is never run.
"""

import math
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from cache import Store
from engine.architecture.families.definition import Family, Scales
from engine.architecture.family import family_of
from engine.architecture.layer_tensors import is_matrix
from engine.architecture.torch_internals import compiler_left_out
from engine.architecture.transformers_internals import (
    adapt_attention,
    causal_lm_class,
    import_models,
    load_tensors,
    model_config,
)
from engine.checkpoints import hub
from engine.checkpoints.compact_checkpoint import stock_tensors
from engine.checkpoints.conversion import convert, converted
from engine.checkpoints.identity import PRECISIONS, Identity, identify_folder
from engine.checkpoints.names import model_name, short_name, with_revision, without_revision
from engine.checkpoints.tensors import LazyTensor
from engine.checkpoints.tokenizer import load_tokenizer
from engine.checkpoints.validation import refuse_unknown_tokens, refuse_unless_loaded, refuse_unless_whole
from engine.errors import HeadroomError, UsageError, refuse_unknown
from engine.files import next_to_results
from engine.kernels import cpu_kernels as linear
from engine.kernels.bitsandbytes_internals import bitsandbytes
from engine.kernels.cpu_kernels import Kernels
from engine.kernels.kernel_choice import known_products, products, set_threads, tuning
from engine.memory import freed_at_once, return_freed_memory
from engine.placement.accelerate_internals import bytes_per_s_to, quiet_accelerate
from engine.placement.devices import asked_device, device_class, refuse_other_device
from engine.placement.disk_offload import FOLDER, DiskOffload, Quantized, clear_leftovers, offload_to_disk, on_disk
from engine.placement.placement import Placement, device_map, plan_placement, remember_rates
from engine.progress import Stopped, is_to_stop, leave_to_measuring, may_stop, tell


@dataclass(frozen=True)
class LoadSpec:
    """What to load: `model` is `demo`, a hub id such as facebook/opt-125m or org/model@revision, a folder, or a
    GGUF file.

    `int8_threshold` is bitsandbytes' outlier threshold: 6.0 is what OPT needs from 6.7B on; 0.0 makes every row
    independent of its neighbors and is faster.
    """

    model: str = "demo"
    precision: str = "int8"
    int8_threshold: float = 6.0

    def __post_init__(self) -> None:
        refuse_unknown("precision", self.precision, PRECISIONS)

    def compared_with(self, text: str) -> "LoadSpec":
        """What this model is compared with, as it is typed: a precision of its own, a revision of its own (`@step512`),
        or another model, whose precision may stand behind it (`demo in fp32`), else is this one's. UsageError: it is
        this model itself."""
        name, _, precision = text.strip().rpartition(" in ")
        if precision not in PRECISIONS or not name.strip():
            name, precision = text.strip(), self.precision
        if name in PRECISIONS:
            name, precision = self.model, name
        elif name.startswith("@"):
            name = with_revision(without_revision(self.model), name[1:])
        other = LoadSpec(name.strip(), precision, self.int8_threshold)
        if other == self:
            raise UsageError(f"{text.strip()[:80]!r} is the model itself; name another model, precision or revision")
        return other

    def typed_beside(self, first: "LoadSpec") -> str:
        """What `first.compared_with` takes for this one."""
        if self.model == first.model:
            return self.precision
        return self.model if self.precision == first.precision else f"{self.model} in {self.precision}"

    @property
    def is_demo(self) -> bool:
        """Whether it is the model that comes with Headroom."""
        return self.model == "demo"

    @property
    def in_words(self) -> str:
        """Such as "demo in int8"; of a folder its own name."""
        return f"{short_name(self.model)} in {self.precision}"


@dataclass(frozen=True, eq=False)
class Loaded:
    """A model in memory, in eval mode, with its tokenizer, family, what it was made from and where its layers lie.
    `fault`: the self-check that it failed, "" for none; such a model is not pruned."""

    spec: LoadSpec
    identity: Identity
    model: Any
    tokenizer: Any
    family: Family
    device: str
    placing: Placement
    products: Kernels = Kernels()
    fault: str = ""
    encoded: dict[Any, Any] = field(
        default_factory=dict
    )  # questions as tokens, see `engine.accuracy.evaluation.encoded_chunk`
    unfinished: dict[str, list[Any]] = field(default_factory=dict)  # gradients, see `engine.importance.scores`

    @property
    def scales(self) -> Scales:
        """The constants that the model multiplies by."""
        return self.family.scales(self.identity.config)


def identify(spec: LoadSpec, store: Store | None = None) -> Identity:
    """Identity of the model `spec` names, without loading it.

    `store`, when given, remembers the digests of big weight files. HeadroomError: no such folder or hub model, files
    missing or cut short, an architecture that is not supported; NotHere: a hub model that is not on this computer.
    """
    identity = identify_folder(*_find(spec, store), store=store)
    return replace(identity, name=str(model_name(spec.model)))


def stamp(spec: LoadSpec) -> str:
    """A text that changes when a file of a model folder or a GGUF file does; "" for models that are not on this
    computer."""
    try:
        name = model_name(spec.model)
        folder = hub.held(name) if name.repo else name.folder
        listed = [name.gguf] if name.gguf else sorted(folder.iterdir()) if folder else []
        files = [(file.name, file.stat()) for file in listed]
    except (OSError, RuntimeError, ValueError, HeadroomError):  # `identify` reports the error
        return ""
    return " ".join(f"{name} {found.st_size} {found.st_mtime_ns}" for name, found in files)


def ways_of(spec: LoadSpec, identity: Identity, store: Store | None = None) -> Kernels:
    """How this model's matrix products are computed here; measured first where that is not known yet."""
    found = known_ways(spec, identity, store)
    return products(store, identity.n_params).of(spec.precision) if found is None else found


def known_ways(spec: LoadSpec, identity: Identity, store: Store | None = None) -> Kernels | None:
    """The same where nothing need be measured, else None; without torch."""
    if (asked_device() or device_class()) != "cpu":
        return Kernels()
    found = known_products(store, identity.n_params)
    return None if found is None else found.of(spec.precision)


def load(spec: LoadSpec, store: Store | None = None) -> Loaded:
    """The model of `spec`, loaded, its steps told (`engine.progress.tell`). HeadroomError as `identify`, or too large;
    Stopped between two tensors."""
    refuse_other_device()
    folder = aside_folder(store)
    identity = identify(spec, store)
    clear_leftovers(folder)
    placing = plan_placement(identity.model_config, spec.precision, folder)
    _set_up_libraries(identity)
    set_threads(identity.n_params, tuning(store))
    ways = ways_of(spec, identity, store)
    try:
        with offload_to_disk(folder, is_needed=bool(placing.on_disk)) as aside, freed_at_once(), compiler_left_out():
            model, tokenizer = _load_model(spec, identity, placing, aside)
    except HeadroomError:
        raise
    except Exception as error:  # whatever torch, transformers and tokenizers think of foreign files
        what = " ".join(str(error).split())[:200] or type(error).__name__
        raise HeadroomError(f"{spec.model} cannot be loaded: {what}; check or download the folder again") from error
    model.eval().requires_grad_(False)
    linear.install_kernels(model, ways)
    return_freed_memory()
    if not placing.is_whole:
        rates = {"disk": aside and aside.bytes_per_s(), "gpu": bytes_per_s_to(model.device)}
        remember_rates(store, folder, {kind: rate for kind, rate in rates.items() if rate})
    return Loaded(spec, identity, model, tokenizer, family_of(identity.config), device_class(), placing, ways)


def _set_up_libraries(identity: Identity) -> None:
    """Imports transformers and makes it quiet; registers the project's own architecture if the model is of it."""
    import transformers

    import_models()
    if not family_of(identity.config).is_stock:
        from engine.architecture.modeling_headroom import register

        register()
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    quiet_accelerate()


def _load_model(spec: LoadSpec, identity: Identity, placing: Placement, aside: DiskOffload | None) -> tuple[Any, Any]:
    """(model, tokenizer) from the folder's files, once these are known to be whole; the layers that `placing` has on
    disk are written to `aside`."""
    import torch
    import transformers

    dtype = torch.float32 if spec.precision == "fp32" else torch.bfloat16
    options: dict[str, Any] = {"dtype": dtype}
    if spec.precision == "int8":
        bitsandbytes()
        options["quantization_config"] = transformers.BitsAndBytesConfig(
            load_in_8bit=True, llm_int8_threshold=spec.int8_threshold
        )
    config = model_config(identity.config)
    tokenizer = load_tokenizer(identity.folder, identity.config, identity.shape.n_vocab)
    model_class, family = causal_lm_class(config), family_of(identity.config)
    quantized: Quantized | None = None

    def begin(model: Any) -> None:
        if family.is_adapted:  # before accelerate wraps what modules compute
            adapt_attention(family, model)
        if quantized is not None:
            quantized.begin(model)

    with stock_tensors(identity.folder, bool(config.tie_word_embeddings)) as tensors:
        refuse_unless_whole(spec.model, tensors, model_class, config)
        refuse_unknown_tokens(spec.model, tokenizer, identity.shape.n_vocab)
        if spec.precision == "int8":
            tensors = {name: replace(each, is_quantized=is_matrix(name, each.shape)) for name, each in tensors.items()}
        quantized = Quantized(family, placing.on_disk, aside) if aside and spec.precision == "int8" else None
        if quantized is not None:
            tensors = quantized.followed(tensors)
        elif aside is not None:
            tensors = on_disk(tensors, placing.on_disk, aside, dtype)
        tensors = _counted(tensors, message_of(spec) + ("" if placing.is_whole else f" ({placing.in_words()})"))
        model, report = load_tensors(
            model_class,
            tensors,
            begin=begin if family.is_adapted or quantized else None,
            config=config,
            attn_implementation=family.attends_by,
            device_map=device_map(placing, model_class, config, family),
            **options,
        )
    refuse_unless_loaded(spec.model, report)
    if quantized is not None:
        quantized.set_aside_before(identity.shape.n_layers)
    if aside is not None:
        aside.goes_with(model)
    return model, tokenizer


def message_of(spec: LoadSpec) -> str:
    """What is told of a model while it is loaded."""
    return f"loading {spec.model} in {spec.precision}"


def _counted(tensors: Mapping[str, LazyTensor], message: str) -> dict[str, LazyTensor]:
    """The same tensors; reading one tells how much of them is read, and may stop the load."""
    told, stops = tell.get(), is_to_stop.get()  # transformers may read them in threads, without this one's context
    sizes = {name: math.prod(stored.shape) for name, stored in tensors.items()}
    total, done, percent = sum(sizes.values()), 0, -1

    def read(stored: LazyTensor) -> Any:
        nonlocal done, percent
        if stops():
            raise Stopped
        done += sizes[stored.name]
        if (now := min(99, 100 * done // max(1, total))) > percent:
            percent = now
            told(percent, 100, f"{message}: {percent}%", None)
        return stored.read()

    return {name: replace(stored, read=partial(read, stored)) for name, stored in tensors.items()}


def aside_folder(store: Store | None = None) -> Path:
    """The folder for layers on disk, next to the results."""
    return next_to_results(None if store is None else store.directory, FOLDER)


def _find(spec: LoadSpec, store: Store | None) -> tuple[str, Path, str | None]:
    """(name without its revision, folder, commit or None); NotHere where it has to be fetched from the hub first. A
    GGUF file is converted first."""
    name = model_name(spec.model)
    if name.gguf is not None:
        return str(name), converted(name.gguf, store) or _convert(name.gguf, store), None
    if name.folder is not None:
        return str(name), name.folder, None
    if not name.repo:
        from engine.demo import model_folder

        return "demo", model_folder(), None
    folder = hub.found(name)
    return name.repo, folder, folder.name


def _convert(file: Path, store: Store | None) -> Path:
    """The folder of a GGUF file, converted now, its steps told. Stopped between two tensors."""
    leave_to_measuring()
    folder = None
    with closing(convert(file, store)) as steps:
        for step in steps:
            tell.get()(step.done, step.total, step.message, None)
            may_stop()
            folder = step.value
    assert folder is not None
    return folder
