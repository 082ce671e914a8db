"""Private and fragile parts of huggingface_hub: how its cache is laid out, and what it adds to requests. Read in
version 2.4 (file_download.py, constants.py, utils/_headers.py); each has a test in
tests/engine/test_library_internals.py.

In `models--<owner>--<name>` lie `blobs/<digest>`, the files by content, `snapshots/<commit>`, the names that link to
them, and `refs/<revision>`, files that hold a commit. The app writes all of them itself: the library restarts a
download that was killed, and `engine.checkpoints.fetching` resumes it.
"""

import os
from collections.abc import Iterator
from pathlib import Path


def disable_telemetry() -> None:
    """Keeps the versions of installed libraries out of all requests from now on, also of processes that are started
    from here. A user's own setting in the environment stands. The library reads that once, when it is imported."""
    from huggingface_hub import constants

    if "HF_HUB_DISABLE_TELEMETRY" not in os.environ:
        os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
        constants.HF_HUB_DISABLE_TELEMETRY = True


def cache_folder() -> Path:
    """Where the library keeps what it has downloaded."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def repository_folder(repo: str) -> Path:
    """The folder of a model's repository in the cache."""
    return cache_folder() / f"models--{repo.replace('/', '--')}"


def snapshot_folder(repo: str, commit: str) -> Path:
    """The folder of a commit's files by name."""
    return repository_folder(repo) / "snapshots" / commit


def held_snapshot(repo: str, revision: str) -> Path | None:
    """The folder of a revision's files by name, whether or not all are there; None where it is not known. OSError or
    ValueError: what lies there cannot be read."""
    folder = snapshot_folder(repo, revision)
    if not (len(revision) == 40 and folder.is_dir()):
        folder = snapshot_folder(repo, _ref(repo, revision).read_text().strip())
    return folder if folder.parent.name == "snapshots" else None


def write_ref(repo: str, revision: str, commit: str) -> None:
    """Notes which commit a revision is."""
    ref = _ref(repo, revision)
    ref.parent.mkdir(parents=True, exist_ok=True)
    ref.write_text(commit)


def blob_file(repo: str, digest: str) -> Path:
    """A file by its content: sha256 of a large one, git's sha1 of a small one."""
    return repository_folder(repo) / "blobs" / digest


def unfinished_file(blob: Path) -> Path:
    """What has arrived of a blob so far."""
    return blob.with_name(f"{blob.name}.incomplete")


def link_blob(repo: str, commit: str, name: str, digest: str) -> None:
    """Puts a blob under its name into a snapshot."""
    link = snapshot_folder(repo, commit) / name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)  # one that leads nowhere
    try:
        link.symlink_to(Path("..", "..", "blobs", digest))
    except OSError:  # a system without links
        os.replace(blob_file(repo, digest), link)


def is_blob(file: Path) -> bool:
    """Whether a resolved file is a blob, whose name is the digest of its content."""
    return file.parent.name == "blobs"


def blobs_of(folder: Path) -> Path | None:
    """The folder of the blobs that the files of a snapshot's folder link to; None for other folders."""
    return folder.parent.parent / "blobs" if folder.parent.name == "snapshots" else None


def held_revisions() -> Iterator[tuple[str, str]]:
    """(repository, revision) of all models in the cache that have a name for a commit."""
    for refs in cache_folder().glob("models--*/refs"):
        repo = refs.parent.name.removeprefix("models--").replace("--", "/")
        yield from ((repo, str(file.relative_to(refs))) for file in refs.rglob("*") if file.is_file())


def _ref(repo: str, revision: str) -> Path:
    return repository_folder(repo) / "refs" / revision
