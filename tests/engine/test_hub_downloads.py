"""The hub: nothing is asked of it before a person agrees, and a download resumes, ends at once and is what it says."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest
from filelock import lock_descriptor

from engine.__main__ import main
from engine.checkpoints import fetching, hub, hub_internals
from engine.errors import HeadroomError, NotHere
from engine.models.loading import LoadSpec, identify, load
from engine.placement.needs import memory_estimate
from engine.placement.placement import refusal
from tests import hub_stand_in as stand_in
from tests.conftest import HANG_S, REPOSITORY
from tests.engine.fixtures import left_when, refused_by

TINY, STEP = "someone/tiny", "someone/tiny@step1000"
REST_S = 0.2  # after which whoever still sends or asks has shown it


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "hub"


@pytest.fixture
def served(tiny_opt, cache, monkeypatch):
    """A hub that has the tiny OPT, and which this process asks."""
    repository = stand_in.Hub(stand_in.files_of(tiny_opt))
    with stand_in.served(repository) as address:
        stand_in.use(monkeypatch, address, cache)
        yield repository


@pytest.fixture
def large(served):
    """The same with 60 MB more in its weights, sent at 20 MB/s; nothing reads them here."""
    served.files["model.safetensors"] += os.urandom(1_000_000) * 60
    served.bytes_per_s = 20e6
    return served


def fetch(text):
    *_, last = hub.download(hub.look_up(text))
    return last.value


def fetched(repository):
    """Names of the files that were asked for, without those that a look-up reads."""
    return [path.rpartition("/")[2] for _, path, reach in repository.requests if reach]


def test_a_model_that_is_not_here_asks_nobody(served):
    refused_by(NotHere, "someone/tiny is not on this computer.*--download", lambda: identify(LoadSpec(TINY)))
    assert hub.is_away(TINY) and not hub.is_away("demo") and not hub.is_away("/gone") and not hub.is_away("a b")
    assert served.requests == []


def test_what_arrives_is_the_model_and_only_what_it_needs(served, tiny_opt):
    others = ("README.md", "pytorch_model.bin", "onnx/model.safetensors", "model.fp16.safetensors", "tf_model.h5")
    served.files |= dict.fromkeys((*others, "adapter_model.safetensors"), b"not needed")
    folder = fetch(TINY)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == stand_in.files_of(tiny_opt)
    n_requests = len(served.requests)
    assert identify(LoadSpec(TINY)).folder == folder and identify(LoadSpec(TINY)).name == TINY
    assert load(LoadSpec(TINY, "fp32")).identity.digest == identify(LoadSpec(TINY, "int8")).digest
    assert len(served.requests) == n_requests, "what is here asks nobody"
    assert fetch(TINY) == folder and not hub.is_away(TINY)
    assert fetched(served)[len(fetched(served)) :] == [] and len(served.requests) == n_requests + 2  # looked up again


def test_two_revisions_are_two_models(served):
    fetch(TINY)
    assert hub.is_away(STEP) and not hub.is_away(TINY)
    fetch(STEP)
    one, other = identify(LoadSpec(TINY)), identify(LoadSpec(STEP))
    assert one.digest != other.digest and one.folder != other.folder and other.name == STEP
    assert identify(LoadSpec(f"{TINY}@{stand_in.OTHER_COMMIT}")).digest == other.digest


def sharded(repository, n_shards=3):
    weights = repository.files.pop("model.safetensors")
    names = [f"pytorch_model-{number + 1:05}-of-{n_shards:05}.bin" for number in range(n_shards)]
    repository.files |= {name: weights[number::n_shards] for number, name in enumerate(names)}
    repository.files["pytorch_model.bin.index.json"] = json.dumps({"weight_map": dict(enumerate(names))}).encode()
    return names


def test_a_snapshot_that_lacks_shards_is_completed(served):
    names = sharded(served)
    folder = fetch(TINY)
    for gone in names[1:]:
        (folder / gone).resolve().unlink()
    assert hub.is_away(TINY)
    offer = hub.look_up(TINY)
    assert offer.missing_bytes == sum(len(served.files[name]) for name in names[1:]) < offer.total_bytes
    before = len(fetched(served))
    list(hub.download(offer))
    assert sorted(fetched(served)[before:]) == names[1:] and not hub.is_away(TINY)


def test_a_shard_that_the_hub_itself_lacks_is_named(served):
    served.files.pop(sharded(served)[1])
    refused_by(HeadroomError, "not whole on the hub: pytorch_model-00002-of-00003.bin", lambda: hub.look_up(TINY))


def test_closing_ends_it_and_the_next_try_fetches_the_rest(large):
    offer = hub.look_up(TINY)
    left_when(hub.download(offer), lambda step: step.done > 5e6)
    time.sleep(0.5)  # what is on its way
    sent, held = large.sent_bytes, offer.total_bytes - offer.missing_bytes
    time.sleep(REST_S)
    assert large.sent_bytes == sent and 5e6 < held < offer.total_bytes
    large.bytes_per_s = None
    *_, last = hub.download(offer)
    assert large.sent_bytes - sent <= offer.total_bytes - held + stand_in.PIECE
    assert (last.value / "model.safetensors").read_bytes() == large.files["model.safetensors"]


@pytest.mark.parametrize("held", [b"", b"x" * 5000, None])
def test_a_server_that_ignores_range_sends_the_file_again(held, served):
    served.ignores_range = True
    content, digest = served.files["model.safetensors"], hashlib.sha256(served.files["model.safetensors"]).hexdigest()
    unfinished = hub_internals.unfinished_file(hub_internals.blob_file(TINY, digest))
    unfinished.parent.mkdir(parents=True)
    unfinished.write_bytes(content[:5000] if held is None else held)
    assert (fetch(TINY) / "model.safetensors").read_bytes() == content
    assert not list(unfinished.parent.glob("*.incomplete"))


def test_a_server_that_sends_another_part_than_it_was_asked_for_is_one_line(tmp_path, monkeypatch):
    def other_part(file, partial, digest, written):
        partial.write(b"12")
        raise fetching.NotResumed if partial.tell() > 2 else ConnectionError

    monkeypatch.setattr(fetching, "_receive", other_part)
    monkeypatch.setattr(fetching.time, "sleep", lambda seconds: None)
    file = {"url": "http://hub/x", "to": str(tmp_path / "x"), "unfinished": str(tmp_path / "x.incomplete"),
            "size": 9, "algorithm": "sha256", "digest": "0"}  # fmt: skip
    with pytest.raises(fetching.Wrong, match="http://hub/x does not resume a file; try again later"):
        fetching.fetch(file, [0])


def test_a_file_that_another_process_fetches_is_left_to_it(tmp_path):
    file = {"url": "http://hub/x", "to": str(tmp_path / "x"), "unfinished": str(tmp_path / "x.incomplete")}
    with open(file["unfinished"], "ab") as held:
        lock_descriptor(held.fileno())
        with pytest.raises(fetching.Wrong, match="another process is fetching x already; wait for that one"):
            fetching.fetch(file, [0])


def test_what_is_not_what_the_hub_describes_is_not_kept(large, monkeypatch):
    large.bytes_per_s = None
    offer = hub.look_up(TINY)
    content = large.files["model.safetensors"]
    large.files["model.safetensors"] = content[:-1] + bytes([content[-1] ^ 1])
    refused_by(HeadroomError, "not what the hub describes", lambda: list(hub.download(offer)))
    assert hub.is_away(TINY)
    large.files["model.safetensors"] = content
    list(hub.download(offer))
    assert not hub.is_away(TINY)


def test_what_cannot_fit_is_refused_before_its_first_byte(served, cache, monkeypatch):
    config = json.loads(served.files["config.json"]) | {"num_hidden_layers": 64, "hidden_size": 9216, "ffn_dim": 36864}
    served.files["config.json"] = json.dumps(config | {"num_attention_heads": 72}).encode()
    for module in ("needs", "devices"):
        monkeypatch.setattr(f"engine.placement.{module}.free_bytes", lambda: 8_000_000_000)
    monkeypatch.setattr("engine.placement.placement.free_on_disk", lambda folder: 90_000_000_000)
    refused = refusal(hub.look_up(TINY), "bf16", cache) or ""
    assert "needs about 1" in refused and "more in" in refused and "of its layers would lie" in refused


def test_a_full_disk_is_said_before_the_first_byte(large, cache, monkeypatch):
    offer = hub.look_up(TINY)
    monkeypatch.setattr(hub.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9, 400_000_000))
    assert "60 MB to download and 400 MB is free" in (refusal(offer, "fp32", cache) or "")
    refused_by(HeadroomError, "HF_HOME", lambda: list(hub.download(offer)))
    assert fetched(large) == []


def test_memory_is_reckoned_from_the_config_as_from_the_files(served, cache):
    offer = hub.look_up(TINY)
    assert refusal(offer, "fp32", cache) is None
    fetch(TINY)
    assert memory_estimate(identify(LoadSpec(TINY)).model_config, "fp32").fits


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("someone/gated", "gated"),
        ("someone/none", "'someone/none' does not exist on the Hub"),
        ("someone/tiny@v9", "has no revision 'v9'"),
        ("demo", "not a Hub model id"),
    ],
)
def test_what_cannot_be_had_is_said(served, model, said):
    refused_by(HeadroomError, said, lambda: hub.look_up(model))


@pytest.mark.parametrize("change, said", [
    *(({"config.json": content}, "config.json of someone/tiny")
      for content in (b"[" * 100_000, b"[]", b"\xff", b" " * 30_000_000)),
    ({"model.safetensors": None, "weights/model.safetensors": b"in a folder"}, "no weights that can be read"),
    ({"config.json": b'{"quantization_config": {}, "model_type": "opt"}'}, "asks for 'another' quantization"),
])  # fmt: skip
def test_what_the_hub_has_is_refused_before_it_is_downloaded(change, said, served, cache):
    served.files |= change
    served.files = {name: content for name, content in served.files.items() if content is not None}
    refused_by(HeadroomError, said, lambda: refusal(hub.look_up(TINY), "fp32", cache))
    assert not any(reach for _, _, reach in served.requests)


def shell(arguments, address, cache, **more):
    """A command line in a process of its own that asks this hub."""
    environment = {**os.environ, **stand_in.environment(address, cache), "HEADROOM_CACHE": str(cache / "results")}
    command = [sys.executable, "-m", "engine", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL, "text": True}
    return subprocess.Popen(command, cwd=REPOSITORY, env=environment, **pipes, **more)


def test_a_dead_network_is_one_plain_line(monkeypatch, cache):
    stand_in.use(monkeypatch, "http://127.0.0.1:9", cache)  # nothing listens there
    refused_by(HeadroomError, "no network, or 127.0.0.1 does not answer; a folder works", lambda: hub.look_up(TINY))


def test_who_does_not_answer_is_given_up_soon(monkeypatch, cache):
    monkeypatch.setattr(hub, "REACHED_S", 0.2)
    released = threading.Event()

    def hang(*arguments, **more):
        released.wait(HANG_S)
        raise OSError

    monkeypatch.setattr(hub.socket, "create_connection", hang)
    stand_in.use(monkeypatch, "http://127.0.0.1:9", cache)
    refused_by(HeadroomError, "no network", lambda: hub.look_up(TINY))
    released.set()


def test_a_signal_ends_a_download(large, cache):
    from huggingface_hub import constants

    large.bytes_per_s = 2e6  # half a minute
    process = shell(["evaluate", "--model", TINY, "--task", "demo_copy", "--download"], constants.ENDPOINT, cache)
    while large.sent_bytes < 1e6:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 130 and out == "" and "Traceback" not in err
    time.sleep(0.5)
    sent_bytes = large.sent_bytes
    time.sleep(REST_S)
    assert large.sent_bytes == sent_bytes < 30e6  # nobody goes on without it
    offer = hub.look_up(TINY)
    assert offer.missing_bytes < offer.total_bytes - 0.5e6


def test_the_command_line_downloads_when_told(served, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HEADROOM_CACHE", str(tmp_path / "results"))
    arguments = ["evaluate", "--model", STEP, "--task", "demo_copy", "--limit", "4", "--json", "--precision", "fp32"]
    code = main([*arguments, "--download"])
    out, err = capsys.readouterr()
    assert code == 0, err
    assert json.loads(out)["n"] == 4 and "to download" in err
    assert identify(LoadSpec(STEP)).name == STEP


def test_a_hub_that_sends_a_byte_at_a_time_is_given_up(served, monkeypatch):
    served.drip_s = 0.005  # 600 bytes of config.json take three seconds; no single read waits
    monkeypatch.setattr(hub, "LOOK_UP_S", 0.3)
    began_s = time.monotonic()
    refused_by(HeadroomError, "sends its answer too slowly", lambda: hub.look_up(TINY))
    assert time.monotonic() - began_s < 3


def test_a_download_that_drips_is_given_up_and_kept(served, cache, monkeypatch):
    offer = hub.look_up(TINY)
    [file] = [each for each in offer.files if each.name == "config.json"]
    unfinished = cache / "part"
    wanted = {"url": hub._address("someone/tiny", offer.commit, file.name), "to": str(cache / "whole"),
              "unfinished": str(unfinished), "size": file.size, "algorithm": file.algorithm,
              "digest": file.digest}  # fmt: skip
    served.drip_s = 0.005
    monkeypatch.setattr(fetching, "SLOW_S", 0.2)
    with pytest.raises(fetching.Wrong, match="at less than 1,000 bytes a second; try again later"):
        fetching.fetch(wanted, [0])
    assert 0 < unfinished.stat().st_size < file.size
    served.drip_s = 0.0
    fetching.fetch(wanted, [0])
    assert (cache / "whole").read_bytes() == served.files["config.json"]


@pytest.mark.parametrize("sha", ["../../../../out", "/tmp/out", "0" * 39, None])
def test_a_commit_that_is_none_makes_no_folder(served, cache, sha):
    served.told = json.dumps({**served.listing(stand_in.COMMIT), "sha": sha}).encode()
    refused_by(HeadroomError, "gives no commit", lambda: hub.look_up(TINY))
    assert not cache.exists()
