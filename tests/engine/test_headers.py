"""The table of contents of a `.bin` file is read without doing what it says."""

import io
import pickle
import struct
import zipfile

import pytest
import torch
from safetensors.torch import save_file

from engine.checkpoints import tensor_index as headers
from engine.checkpoints.tensor_index import contents
from engine.errors import HeadroomError
from tests.engine.fixtures import refused_by


def saved(value, file):
    torch.save(value, file)
    return file


def rewritten(file, pickled: bytes, storages: dict[str, bytes]):
    """A `.bin` file with that pickle and those storages."""
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        for name, values in storages.items():
            archive.writestr(f"archive/data/{name}", values)
    return file


def test_names_shapes_types_and_places_are_those_of_the_tensors(tmp_path):
    base = torch.arange(24, dtype=torch.float16).reshape(4, 6)
    state = {
        "whole": base, "rows": base[1:3], "columns": base[:, 2], "turned": base.T, "alone": torch.tensor(3.0),
        "empty": torch.zeros(0, 3), "learned": torch.nn.Parameter(torch.ones(2, 2)), "bits": torch.ones(3).bool(),
        "narrow": torch.ones(5).to(torch.bfloat16), "fp8": torch.ones(4).to(torch.float8_e4m3fn),
        "wide": torch.ones(3).double(), "counts": torch.arange(4), "again": base, "epoch": 3, "note": "text",
        "options": {"lr": 0.1, "sizes": torch.Size([2, 3])},
    }  # fmt: skip
    file = saved(torch.nn.Linear(2, 2).state_dict() | state, tmp_path / "pytorch_model.bin")
    found, values = contents(file), file.read_bytes()
    assert set(found) == {name for name, value in state.items() if torch.is_tensor(value)} | {"weight", "bias"}
    assert found["whole"].at == found["again"].at == found["turned"].at
    for name, entry in found.items():
        tensor = torch.load(file, weights_only=True)[name]
        assert (entry.shape, entry.strides) == (tuple(tensor.shape), tensor.stride())
        assert f"torch.{entry.dtype}" == str(tensor.dtype)
        if tensor.numel():
            first = torch.frombuffer(bytearray(values[entry.at : entry.at + tensor.element_size()]), dtype=tensor.dtype)
            assert first.float() == tensor.flatten()[0].float()


@pytest.mark.parametrize("what", [
    lambda canary: (canary.write_text, ("executed",)),
    lambda canary: (eval, (f"open({str(canary)!r}, 'w')",)),
    lambda canary: (print, ("executed",)),
    lambda canary: (getattr, ("text", "upper")),
    lambda canary: (torch.load, (str(canary),)),
])  # fmt: skip
def test_nothing_is_called(what, tmp_path, capsys):
    canary = tmp_path / "canary"

    class Attack:
        def __reduce__(self):
            return what(canary)

    file = saved({"a": Attack(), "b": torch.ones(2)}, tmp_path / "pytorch_model.bin")
    refused_by(HeadroomError, "holds more than weights .*safetensors", lambda: contents(file))
    assert not canary.exists() and not capsys.readouterr().out


def test_a_pickle_changes_nothing_here(tmp_path):
    """Its states are set on objects of its own alone: none reaches a function or a class of this program."""
    before = {name: (each.__defaults__, each.__dict__.copy()) for name, each in headers._CALLS.items()}
    for name in ("torch._utils _rebuild_tensor_v2", "collections OrderedDict", "torch Size"):
        pushed = b"c" + name.replace(" ", "\n").encode() + b"\n"
        state = pickle.dumps((None, {"__defaults__": (1, 2), "__doc__": "changed", "_make": 1}), 2)[2:-1]
        file = rewritten(tmp_path / f"{len(name)}.bin", b"\x80\x02" + pushed + state + b"b.", {})
        with pytest.raises(HeadroomError):
            contents(file)
    assert before == {name: (each.__defaults__, each.__dict__) for name, each in headers._CALLS.items()}


def call(storage=("storage", torch.HalfStorage, "0", "cpu", 4), offset=0, shape=(2, 2), strides=(2, 1)):
    """The pickle of {"a": a tensor} with these arguments, whatever they are."""

    class Tensor:
        def __reduce__(self):
            return torch._utils._rebuild_tensor_v2, (Place(storage), offset, shape, strides, False, None)

    class Place(tuple):
        pass

    class Pickler(pickle.Pickler):
        def persistent_id(self, value):
            return tuple(value) if isinstance(value, Place) else None

    into = io.BytesIO()
    Pickler(into, 2).dump({"a": Tensor()})
    return into.getvalue()


def test_the_calls_of_the_next_test_are_read_when_they_are_right(tmp_path):
    found = contents(rewritten(tmp_path / "pytorch_model.bin", call(), {"0": bytes(8)}))
    assert found["a"].shape == (2, 2) and found["a"].dtype == "float16"


@pytest.mark.parametrize("pickled", [
    call(shape=(2, 3)), call(strides=(9, 9)), call(offset=1), call(offset=-1), call(shape=(-1, 2)),
    call(shape=(2.0, 2)), call(strides=(1,)), call(offset="0"), call(shape=(2**62, 2**62)),
    call(storage=("storage", torch.HalfStorage, "1", "cpu", 4)),
    call(storage=("file", torch.HalfStorage, "0", "cpu", 4)),
    call(storage=("storage", torch.HalfStorage, "../0", "cpu", 4)), call(storage=()), call(storage=("storage", 1, 2)),
    call(storage=("storage", torch.ComplexFloatStorage, "0", "cpu", 4)),
    b"", b".", b"\x80\x02", b"not a pickle", b"\x80\x02]" + b"(" * 10_000, b"\x80\x02}r" + struct.pack("<I", 2**32 - 1),
    b"\x80\x04\x8d" + struct.pack("<Q", 2**62) + b".",
])  # fmt: skip
def test_a_damaged_table_is_refused(pickled, tmp_path):
    with pytest.raises(HeadroomError, match="is damaged"):
        contents(rewritten(tmp_path / "pytorch_model.bin", pickled, {"0": bytes(8)}))


@pytest.mark.parametrize("kind", [".bin", ".safetensors"])
def test_every_single_byte_of_a_small_file_may_be_wrong(kind, tmp_path):
    """It is read, or refused in one line."""
    file = tmp_path / f"weights{kind}"
    (saved if kind == ".bin" else save_file)({"a": torch.ones(2), "b": torch.ones(1).half()}, file)
    whole = file.read_bytes()
    for at in range(0, len(whole), 3):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        try:
            contents(file)
        except HeadroomError as error:
            assert "\n" not in str(error)
