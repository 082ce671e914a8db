"""Every way in which OPT lies on the hub, in a folder laid out as the hub's own cache, gives transformers' own model.

The original `.bin` files are in 16 bits, their names begin with `decoder.` or `model.decoder.`, the unembedding lies
beside the embedding or does not.
"""

import hashlib
import json
import shutil
from itertools import product
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.models.loading import LoadSpec, identify, load
from tests.benchmarks.measure import as_transformers_loads
from tests.conftest import IS_THOROUGH
from tests.engine.fixtures import family_folder, held_bytes

TOKENS = torch.tensor([[2, 40, 41, 99, 300], [2, 7, 7, 7, 8]])
EMBEDDING = "model.decoder.embed_tokens.weight"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
NAMES = {".safetensors": "model", ".bin": "pytorch_model"}


def in_hubs_cache(files: dict[str, Path], root: Path) -> Path:
    """The snapshot folder of a model with these files, each a link to a blob."""
    repository = root / "models--someone--tiny"
    snapshot = repository / "snapshots" / COMMIT
    for folder in (snapshot, repository / "blobs", repository / "refs"):
        folder.mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT)
    for name, file in files.items():
        blob = repository / "blobs" / hashlib.sha256(file.read_bytes()).hexdigest()
        blob.write_bytes(file.read_bytes())
        (snapshot / name).symlink_to(Path("../../blobs") / blob.name)
    return snapshot


def laid_out(plain: Path, to: Path, kind: str, n_files: int, prefix: str, has_head: bool) -> Path:
    """The model of a save_pretrained folder, in 16 bits and laid out so."""
    tensors = {name: value.half() for name, value in load_file(plain / "model.safetensors").items()}
    tensors = {name.replace("model.decoder.", prefix): value for name, value in tensors.items()}
    tensors.pop("lm_head.weight", None)
    if has_head:
        embedding = tensors[EMBEDDING.replace("model.decoder.", prefix)]
        tensors["lm_head.weight"] = embedding if kind == ".bin" else embedding.clone()
    files, items, weight_map = {}, list(tensors.items()), {}
    for n in range(n_files):
        name = f"{NAMES[kind]}-{n + 1:05}-of-{n_files:05}{kind}" if n_files > 1 else f"{NAMES[kind]}{kind}"
        part, files[name] = dict(items[n::n_files]), to / name
        weight_map |= dict.fromkeys(part, name)
        if kind == ".bin":
            torch.save(part, to / name)
        else:
            save_file(part, to / name, {"format": "pt"})
    if n_files > 1:
        index = f"{NAMES[kind]}{kind}.index.json"
        (to / index).write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))
        files[index] = to / index
    others = {file.name: file for file in plain.iterdir() if file.suffix != ".safetensors"}
    return in_hubs_cache(files | others, to / "cache")


@pytest.fixture(scope="module")
def plain_of(tiny_opt, tmp_path_factory):
    """Folders of opt and of opt-350m's shape (post-LN, projections), as save_pretrained writes them."""
    return {name: family_folder(name, tiny_opt, tmp_path_factory.mktemp(name)) for name in ("opt", "opt-350m")}


# unless thorough, eight of 32 layouts, among which every two choices meet
LAYOUTS = [
    (name, kind, n_files, prefix, has_head)
    for (a, name), (b, kind), (c, n_files), (d, prefix), has_head in product(
        enumerate(["opt", "opt-350m"]), enumerate([".bin", ".safetensors"]), enumerate([1, 3]),
        enumerate(["decoder.", "model.decoder."]), [False, True])
    if IS_THOROUGH or (d, has_head) == (a ^ b, a ^ c)
]  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("name, kind, n_files, prefix, has_head", LAYOUTS)
def test_it_is_the_model_that_transformers_loads(name, kind, n_files, prefix, has_head, plain_of, tmp_path):
    folder = laid_out(plain_of[name], tmp_path, kind, n_files, prefix, has_head)
    theirs = as_transformers_loads(folder, "fp32")
    assert torch.equal(load(LoadSpec(str(folder), "fp32")).model(TOKENS).logits, theirs(TOKENS).logits)
    identity, n_params = identify(LoadSpec(str(folder))), sum(each.numel() for each in theirs.parameters())
    assert identity.n_params == n_params
    ours, theirs = load(LoadSpec(str(folder), "int8")).model, as_transformers_loads(folder, "int8")
    held = theirs.state_dict()
    assert all(torch.equal(value, held[key]) for key, value in ours.state_dict().items() if torch.is_tensor(value))
    difference = ours(TOKENS).logits - theirs(TOKENS).logits
    assert difference.abs().max() <= 0.03 * theirs(TOKENS).logits.abs().max()  # bf16 has 8 bits
    buffers = sum(each.numel() * each.element_size() for each in ours.buffers())
    assert identity.weight_bytes("int8") == held_bytes(ours) - buffers


def test_a_tokenizer_without_a_limit_is_read(plain_of, tmp_path):
    """transformers then writes a whole number of more than 64 bits, as in most models of the hub."""
    folder = tmp_path / "model"
    shutil.copytree(plain_of["opt"], folder)
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"model_max_length": int(1e30)}))
    assert load(LoadSpec(str(folder), "fp32")).identity.shape.n_layers
