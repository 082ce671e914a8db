"""Models of the hub: what of one is on this computer, what it would take to have it, and the download.

Nothing here asks the network but `look_up` and `download`, and nothing calls those two before a person has agreed.
Files lie in the hub's own cache, as huggingface_hub lays them out (`engine.checkpoints.hub_internals`).
"""

import json
import math
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Generator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from cache.typed_json import Count, InvalidFile, convert, decode_json, read_json
from engine.checkpoints import hub_internals
from engine.checkpoints.identity import TOKENIZER_FILES, TOKENIZER_SETS
from engine.checkpoints.names import ModelName, model_name
from engine.checkpoints.weight_files import KINDS
from engine.errors import HeadroomError, NotHere
from engine.progress import Progress

T = TypeVar("T")
SMALL = ("config.json", "generation_config.json", "chat_template.jinja", *TOKENIZER_FILES)
SINGLE = tuple(stem + ending for stem, ending in KINDS)
INDEXES = tuple(f"{name}.index.json" for name in SINGLE)
FETCHER = Path(__file__).with_name("fetching.py")
REACHED_S = 2.5  # for the hub's address to be found and to answer at all
ANSWER_S = 10.0  # for an answer
ASKED_BYTES = 20_000_000  # config.json and the index are read before anything is kept: no more than that
LOOK_UP_S = 30.0  # for all answers of a look-up together
NAME = re.compile(r"[^/\\\0.][^/\\\0]*")
DIGEST = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")  # git's sha1, or sha256
LEFT_BYTES = 500_000_000  # left free on the disk, in addition to the download


@dataclass(frozen=True)
class RemoteFile:
    """A file of the repository. `digest` is what its blob is called: sha256 of a large file, git's sha1 of a small."""

    name: str
    size: Count
    digest: str

    @property
    def algorithm(self) -> str:
        return "sha256" if len(self.digest) == 64 else "sha1"


@dataclass(frozen=True)
class Offer:
    """What a model of the hub is and what it takes to have it: the `files` that are needed, and its config.json."""

    name: ModelName
    commit: str
    files: tuple[RemoteFile, ...]
    config: Mapping[str, Any]

    @property
    def total_bytes(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def missing_bytes(self) -> int:
        """Bytes still to be fetched, of partly downloaded files too; files with the same content count once."""
        files = {file.digest: file.size - _held_bytes(self.name, self.commit, file) for file in self.files}
        return sum(files.values())

    @property
    def free_bytes(self) -> int:
        """Of the disk that the hub's cache is on."""
        folder = hub_internals.cache_folder()
        while not folder.exists():
            folder = folder.parent
        return shutil.disk_usage(folder).free

    @property
    def disk_refusal(self) -> str | None:
        """Why the disk cannot take it, None where it can."""
        missing = self.missing_bytes
        if missing + LEFT_BYTES <= (free := self.free_bytes):
            return None
        return (
            f"{self.name} is {in_bytes(missing)} to download and {in_bytes(free)} is free on the disk of "
            f"{hub_internals.cache_folder()}; free some, or set HF_HOME to a folder on another disk"
        )


def held(name: ModelName) -> Path | None:
    """The folder of a complete Hub model on this computer, or None. Uses no network."""
    try:
        folder = hub_internals.held_snapshot(name.repo, name.revision)
        return folder if folder is not None and _is_whole(folder) else None
    except (OSError, ValueError, RecursionError):
        return None


def is_away(text: str) -> bool:
    """Whether this names a model of the hub that is not on this computer, or not whole."""
    try:
        name = model_name(text)
    except HeadroomError:  # `identify` reports the error
        return False
    return bool(name.repo) and held(name) is None


def found(name: ModelName) -> Path:
    """The folder of a hub model; NotHere where it has to be fetched first."""
    folder = held(name)
    if folder is None:
        raise NotHere(
            str(name),
            f"{name} is not on this computer, and nothing is downloaded without being asked for: "
            "give --download, or a folder",
        )
    return folder


def look_up(text: str) -> Offer:
    """What the hub says of a model: one small request, and two more for config.json and the index of its weights.

    HeadroomError: no network, no such model or revision, gated, or nothing that can be used here.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

    from engine.checkpoints.fetching import describe_error

    name = model_name(text)
    if not name.repo:
        raise HeadroomError(f"{name} is not a Hub model id; use one such as facebook/opt-125m")
    _reach(name)
    hub_internals.disable_telemetry()

    def ask() -> tuple[str, dict[str, RemoteFile], dict[str, Any], list[RemoteFile]]:
        info = HfApi().model_info(name.repo, revision=name.revision, files_metadata=True, timeout=ANSWER_S)
        files = {file.name: file for file in map(_remote_file, info.siblings or []) if file is not None}
        commit = str(info.sha)
        if not DIGEST.fullmatch(commit):
            raise HeadroomError(f"the hub gives no commit for {name} but {commit[:60]!r}; try again later")
        return commit, files, _asked(name, commit, files, "config.json"), _weights(name, commit, files)

    try:
        commit, files, config, weights = _within(LOOK_UP_S, ask)
    except GatedRepoError as error:
        raise HeadroomError(f"{name} cannot be downloaded: {describe_error(error)}") from error
    except RevisionNotFoundError as error:
        raise HeadroomError(f"{name.repo} has no revision {name.revision!r} on the hub; look at its page") from error
    except RepositoryNotFoundError as error:
        raise HeadroomError(
            f"{name.repo!r} does not exist on the Hub or is private; check the name, or run `hf auth login`"
        ) from error
    except HeadroomError:
        raise
    except TimeoutError as error:
        line = f"{host()} sends its answer too slowly"
        raise HeadroomError(f"{name} could not be looked up: {line} ({error}); try again later") from error
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        line = f"what {host()} says of its files cannot be read ({type(error).__name__})"
        raise HeadroomError(f"{name} could not be looked up: {line}; try again later") from error
    except Exception as error:  # what the network can do is not all in one class
        raise HeadroomError(f"{name} could not be looked up: {describe_error(error)}") from error
    if not any(files.keys() >= set(each) for each in TOKENIZER_SETS):
        raise HeadroomError(f"{name} has no tokenizer on the hub; download it into a folder and add one")
    small = [files[each] for each in SMALL if each in files]
    return Offer(name, commit, (*small, *weights), config)


def download(offer: Offer) -> Generator[Progress[Path], None, None]:
    """Downloads missing files in a separate process: yields Progress in bytes; the last value is the folder.

    Closing the generator ends that process at once; received bytes are kept, and the next download resumes.
    HeadroomError: the disk is too small, or what the server or the disk did.
    """
    if offer.disk_refusal:
        raise HeadroomError(offer.disk_refusal)
    total, missing = offer.total_bytes, offer.missing_bytes
    yield Progress(total - missing, total)
    hub_internals.disable_telemetry()
    wanted = [
        {
            "url": _address(offer.name.repo, offer.commit, file.name),
            "to": str(blob := hub_internals.blob_file(offer.name.repo, file.digest)),
            "unfinished": str(hub_internals.unfinished_file(blob)),
            "size": file.size,
            "algorithm": file.algorithm,
            "digest": file.digest,
        }
        for file in offer.files
        if not _link(offer.name, offer.commit, file).exists()
    ]
    # -P: modules next to it must not shadow others of the same name
    process = subprocess.Popen(
        [sys.executable, "-P", str(FETCHER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(json.dumps(wanted).encode() + b"\n")
        process.stdin.flush()
        ending = b""
        for line in process.stdout:
            if not line.strip().isdigit():
                ending = line.strip()
                break
            yield Progress(min(total, total - missing + int(line)), total)
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()
    if ending != b"done":
        why = json.loads(ending) if ending else "the process that fetches it has ended; try again"
        raise HeadroomError(f"{offer.name}: {why}")
    yield Progress(total, total, _finish(offer))


def host() -> str:
    """Who is asked: `huggingface.co`, or what HF_ENDPOINT names."""
    from huggingface_hub import constants

    return urlsplit(constants.ENDPOINT).netloc


def in_bytes(count: int) -> str:
    """Such as "251 MB" or "13.2 GB"."""
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.0f} MB" if count >= 1e6 else f"{count:,} B"


def _within(seconds: float, function: Callable[..., T], *arguments: Any) -> T:
    """What the function gives or raises; TimeoutError after so many seconds, which to find an address may exceed."""
    answer: Future[T] = Future()

    def call() -> None:
        try:
            answer.set_result(function(*arguments))
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=call, daemon=True, name="hub").start()  # no exit waits for it
    try:
        return answer.result(seconds)
    except TimeoutError:
        if answer.done():  # it raised this itself
            raise
        raise TimeoutError(f"no answer within {seconds:.0f} seconds") from None


def _reach(name: ModelName) -> None:
    """HeadroomError within REACHED_S where the hub cannot be reached; behind a proxy that is not tried."""
    from urllib.request import getproxies, proxy_bypass

    from huggingface_hub import constants

    folder_works = "a folder works without"
    if constants.is_offline_mode():
        raise HeadroomError(f"{name} is not on this computer and HF_HUB_OFFLINE is set: unset it; {folder_works}")
    parts = urlsplit(constants.ENDPOINT)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    proxies = getproxies()
    if (parts.scheme in proxies or "all" in proxies) and not proxy_bypass(host):
        return
    try:
        _within(REACHED_S, socket.create_connection, (host, port), REACHED_S).close()
    except OSError as error:
        line = f"{name} cannot be looked up: no network, or {host} does not answer; {folder_works}"
        raise HeadroomError(line) from error


def _remote_file(found: Any) -> RemoteFile | None:
    """A file in the root of the repository, as the hub lists it; None where it lies in a folder, or has no digest."""
    digest = found.lfs.sha256 if found.lfs is not None else found.blob_id
    try:
        file = convert({"name": found.rfilename, "size": found.size, "digest": digest}, RemoteFile, "the hub's list")
    except InvalidFile:
        return None
    return file if NAME.fullmatch(file.name) and DIGEST.fullmatch(file.digest) else None


def _weights(name: ModelName, commit: str, files: Mapping[str, RemoteFile]) -> list[RemoteFile]:
    """The files that hold the weights: one kind of them, and the index where they are several."""
    for index, single in zip(INDEXES, SINGLE, strict=True):
        if index in files:
            shards = _shards(_asked(name, commit, files, index))
            if lacking := shards - files.keys():
                raise HeadroomError(f"{name} is not whole on the hub: {min(lacking)} is missing there")
            return [files[index], *(files[shard] for shard in sorted(shards))]
        if single in files:
            return [files[single]]
    raise HeadroomError(f"{name} has no weights that can be read here (model.safetensors or pytorch_model.bin)")


def _asked(name: ModelName, commit: str, files: Collection[str], file: str) -> dict[str, Any]:
    """A small JSON file of the repository, read without keeping it."""
    from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

    if file not in files:
        raise HeadroomError(f"{name} has no {file} on the hub: it is not a transformers model")
    content, url = b"", _address(name.repo, commit, file)
    with get_session().stream("GET", url, headers=build_hf_headers(), timeout=ANSWER_S) as response:
        if response.status_code >= 400:
            response.read()
        hf_raise_for_status(response)
        for piece in response.iter_bytes():
            content += piece
            if len(content) > ASKED_BYTES:
                raise HeadroomError(f"{file} of {name} is larger than {in_bytes(ASKED_BYTES)}; it is not read")
    try:
        return decode_json(content, dict[str, Any], file, max_int=math.inf)  # as `weight_files.read_json` does
    except InvalidFile as error:
        raise HeadroomError(f"{file} of {name} is not a JSON object ({error}); look at its page on the hub") from error


def _shards(index: Mapping[str, Any]) -> set[str]:
    named = index.get("weight_map")
    return {str(each) for each in named.values()} if isinstance(named, dict) else set()


def _is_whole(folder: Path) -> bool:
    """Whether config, a tokenizer and one kind of weights are all there."""
    names = {file.name for file in folder.iterdir() if file.is_file()}
    if "config.json" not in names or not any(names >= set(each) for each in TOKENIZER_SETS):
        return False
    for index, single in zip(INDEXES, SINGLE, strict=True):
        if index in names:
            return _shards(read_json(folder / index, dict[str, Any])) <= names
        if single in names:
            return True
    return any(Path(name).match("*.safetensors") or Path(name).match("pytorch_model*.bin") for name in names)


def _finish(offer: Offer) -> Path:
    """The snapshot, with links to what has arrived; weights last, so that a snapshot with weights is whole."""
    for file in offer.files:
        if not _link(offer.name, offer.commit, file).exists():
            hub_internals.link_blob(offer.name.repo, offer.commit, file.name, file.digest)
    if offer.name.revision != offer.commit:
        hub_internals.write_ref(offer.name.repo, offer.name.revision, offer.commit)
    return hub_internals.snapshot_folder(offer.name.repo, offer.commit)


def _held_bytes(name: ModelName, commit: str, file: RemoteFile) -> int:
    blob = hub_internals.blob_file(name.repo, file.digest)
    if blob.exists() or _link(name, commit, file).exists():
        return file.size
    try:
        size = hub_internals.unfinished_file(blob).stat().st_size
    except OSError:
        return 0
    return size if size <= file.size else 0


def _link(name: ModelName, commit: str, file: RemoteFile) -> Path:
    return hub_internals.snapshot_folder(name.repo, commit) / file.name


def _address(repo: str, commit: str, file: str) -> str:
    from huggingface_hub import constants, hf_hub_url

    return hf_hub_url(repo, file, revision=commit, endpoint=constants.ENDPOINT)
