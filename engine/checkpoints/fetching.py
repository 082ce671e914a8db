"""A process that downloads files of the hub: `engine.checkpoints.hub` runs it and names the files on standard input.

It ends as soon as that is closed, however the app ended. It resumes a file that an earlier process left unfinished,
where huggingface_hub itself would start over (which it does too if the server cannot resume), and renames each file
once its digest is verified. On standard output it says five times a second how many bytes it has written, at last
"done" or the error.
"""

import hashlib
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from filelock import lock_descriptor

TICK_S = 0.2
TRIES = 4  # without a byte in between
WAIT_S = 10.0  # for the next byte
SLOW_S, SLOWEST_BYTES_PER_S = 30.0, 1_000  # a server that sends less for so long would never be done


class NotResumed(Exception):
    """The server sends a file from another byte on than it was asked for."""


class Wrong(Exception):
    """A download error, in one line."""


def main() -> None:
    files = json.loads(sys.stdin.readline())
    written = [0]  # bytes of this process
    result: list[str] = []

    def fetch_all() -> None:
        try:
            for file in files:
                fetch(file, written)
            result.append("done")
        except Wrong as error:
            result.append(json.dumps(str(error)))
        except Exception as error:
            result.append(json.dumps(describe_error(error)))

    threading.Thread(target=_end_with_the_parent, daemon=True).start()
    threading.Thread(target=fetch_all, daemon=True).start()
    while not result:
        _say(written[0])
        time.sleep(TICK_S)
    _say(written[0])
    _say(result[0])
    os._exit(0)


def fetch(file: dict[str, Any], written: list[int]) -> None:
    """Fetches one file: "url", "to", "unfinished", "size", "algorithm", "digest". Raises Wrong for other content."""
    to = Path(file["to"])
    if to.exists():
        return
    to.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(file["unfinished"])
    with unfinished.open("ab+") as partial:
        if not lock_descriptor(partial.fileno(), blocking=False):  # the system frees it when that process ends
            raise Wrong(f"another process is fetching {to.name} already; wait for that one, or end it")
        digest = _digest_of(partial, file)
        tries = n_restarts = 0
        while partial.tell() < file["size"]:
            before = partial.tell()
            try:
                _receive(file, partial, digest, written)
            except NotResumed as error:
                n_restarts += 1
                if n_restarts == TRIES or not before:
                    raise Wrong(f"the server of {file['url']} does not resume a file; try again later") from error
                partial.truncate(0)
                digest = _digest_of(partial, file)
                continue
            except Exception as error:
                tries = 1 if partial.tell() > before else tries + 1
                if tries >= TRIES or not _is_of_the_network(error):
                    raise
                time.sleep(1)
                continue
            if partial.tell() == before:
                raise Wrong(f"the hub ended {to.name} after {before:,} of {file['size']:,} bytes; try again later")
        partial.flush()
        os.fsync(partial.fileno())
        if partial.tell() != file["size"] or digest.hexdigest() != file["digest"]:
            partial.truncate(0)
            raise Wrong(f"what arrived of {file['url']} is not what the hub describes; it was deleted, try again")
    os.replace(unfinished, to)


def _receive(file: dict[str, Any], partial: Any, digest: Any, written: list[int]) -> None:
    from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status

    headers = {**build_hf_headers(), "Accept-Encoding": "identity", "Range": f"bytes={partial.tell()}-"}
    with get_session().stream("GET", file["url"], headers=headers, timeout=WAIT_S) as response:
        if response.status_code >= 400:
            response.read()
        hf_raise_for_status(response)
        start = response.headers.get("Content-Range", "bytes 0-").removeprefix("bytes ").partition("-")[0]
        if response.status_code != 206 and partial.tell() or start != str(partial.tell()):
            raise NotResumed
        since, counted = time.monotonic(), partial.tell()
        for piece in response.iter_raw():
            if time.monotonic() - since > SLOW_S:
                if partial.tell() - counted < SLOW_S * SLOWEST_BYTES_PER_S:
                    raise Wrong(
                        f"{file['url']} comes at less than {SLOWEST_BYTES_PER_S:,} bytes a second; try again later"
                    )
                since, counted = time.monotonic(), partial.tell()
            if partial.tell() + len(piece) > file["size"]:
                partial.truncate(0)
                raise Wrong(f"{file['url']} is longer than the {file['size']:,} bytes that the hub says; nothing kept")
            partial.write(piece)
            digest.update(piece)
            written[0] += len(piece)
            partial.flush()


def _digest_of(partial: Any, file: dict[str, Any]) -> Any:
    """The digest of the bytes already there; leaves the file at its end. A file that is too long is truncated to
    nothing."""
    size = os.fstat(partial.fileno()).st_size
    if size > file["size"]:
        partial.truncate(0)
    digest = hashlib.new(file["algorithm"])
    if file["algorithm"] == "sha1":  # as git names a file
        digest.update(f"blob {file['size']}\0".encode())
    partial.seek(0)
    return hashlib.file_digest(partial, lambda: digest)


def describe_error(error: BaseException) -> str:
    """What went wrong with the hub, in one line without the server's own words."""
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError

    if isinstance(error, GatedRepoError):
        return "its owner wants a form agreed to first (gated): do that on its page, then `hf auth login`"
    if isinstance(error, HfHubHTTPError):
        return f"the hub answered {error.response.status_code}; try again later"
    if isinstance(error, OSError) and error.errno is not None and not isinstance(error, ConnectionError):
        return f"{error.strerror or error}: {error.filename or ''}".rstrip(": ")
    if _is_of_the_network(error):
        return "the connection was lost; try again"
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _is_of_the_network(error: BaseException) -> bool:
    """Also of the library below huggingface_hub, which has been another one with every version."""
    names = {each.__name__ for each in type(error).__mro__}
    return isinstance(error, (ConnectionError, TimeoutError)) or "TransportError" in names


def _end_with_the_parent() -> None:
    while sys.stdin.buffer.read(1):
        pass
    os._exit(0)


def _say(what: object) -> None:
    try:
        print(what, flush=True)
    except OSError:
        os._exit(0)


if __name__ == "__main__":
    main()
