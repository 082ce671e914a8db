"""A stand-in for the hub on this computer: one model's files at a limited rate, with every request noted. Its revisions
hold the same files, unless one has some `own`.

It answers what huggingface.co answers: the list of a repository's files with sizes and digests, and the files
themselves, from any byte on. As a program of its own: `python -m tests.hub_stand_in FOLDER` says its address.
"""

import hashlib
import json
import sys
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"
OTHER_COMMIT = "89abcdef0123456789abcdef0123456789abcdef"
PIECE = 1 << 16


class Hub:
    """A repository `someone/tiny` with these files: `main` and `step1000` are two commits of it."""

    def __init__(self, files, bytes_per_s=None):
        self.files = dict(files)  # name -> content
        self.told = b""  # what it answers instead of its list of files
        self.drip_s = 0.0  # for each byte
        self.own = {}  # commit -> name -> content, where a revision differs
        self.bytes_per_s = bytes_per_s
        self.ignores_range = False
        self.requests, self.sent_bytes = [], 0  # (method, path, Range or ""); of file contents
        self.revisions = {each: each for each in (COMMIT, OTHER_COMMIT)} | {"main": COMMIT, "step1000": OTHER_COMMIT}

    def files_at(self, revision):
        return self.files | self.own.get(self.revisions[revision], {})

    def listing(self, commit):
        siblings = []
        for name, content in self.files_at(commit).items():
            git = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
            entry = {"rfilename": name, "size": len(content), "blobId": git}
            if len(content) > 10_000 and not name.endswith(".json"):
                sha256 = hashlib.sha256(content).hexdigest()
                entry["lfs"] = {"sha256": sha256, "size": len(content), "pointerSize": 130}
            siblings.append(entry)
        return {"id": "someone/tiny", "sha": commit, "siblings": siblings, "tags": [], "private": False}


def handler_of(hub):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else each answer waits 40 ms for the one before to be acknowledged

        def do_GET(self):
            hub.requests.append((self.command, self.path, self.headers.get("Range", "")))
            parts = self.path.partition("?")[0].strip("/").split("/")
            if parts[:2] == ["api", "models"]:
                return self.tell_of("/".join(parts[2:4]), parts[5] if len(parts) > 5 else "main")
            if parts[:2] == ["someone", "gated"]:
                return self.refuse(401, "GatedRepo")  # anybody may list it
            if parts[2:3] == ["resolve"] and parts[3] in hub.revisions:
                content = hub.files_at(parts[3]).get("/".join(parts[4:]))
                if content is not None:
                    return self.send(content)
            self.refuse(404, "EntryNotFound")

        def tell_of(self, repo, revision):
            if repo not in ("someone/tiny", "someone/gated"):
                return self.refuse(401, "RepoNotFound")
            if revision not in hub.revisions:
                return self.refuse(404, "RevisionNotFound")
            content = hub.told or json.dumps(hub.listing(hub.revisions[revision])).encode()
            self.begin(200, len(content))
            self.wfile.write(content)

        def send(self, content):
            start = (
                0
                if hub.ignores_range
                else int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")[0])
            )
            where = {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"}
            self.begin(206, len(content) - start, where) if start else self.begin(200, len(content))
            size = 1 if hub.drip_s else PIECE
            for at in range(start, len(content), size):
                piece = content[at : at + size]
                self.wfile.write(piece)
                time.sleep(hub.drip_s)
                hub.sent_bytes += len(piece)
                if hub.bytes_per_s and len(content) > PIECE:
                    time.sleep(len(piece) / hub.bytes_per_s)

        def refuse(self, code, error):
            self.begin(code, 0, {"X-Error-Code": error})

        def begin(self, code, length, more=None):
            self.send_response(code)
            for name, value in ({"Content-Length": str(length)} | (more or {})).items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *arguments):
            pass

        def handle(self):
            try:
                super().handle()
            except ConnectionError:
                pass  # who was asking has gone

    return Handler


@contextmanager
def served(hub):
    """The address of the hub, while it is served."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(hub))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def files_of(folder):
    """The files of a model folder, as the hub has them."""
    return {file.name: file.read_bytes() for file in Path(folder).iterdir() if file.is_file()}


def environment(address, cache):
    """What a process has in its environment that is to ask this hub."""
    return {"HF_ENDPOINT": address, "HF_HUB_CACHE": str(cache), "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_TELEMETRY": "1"}


def use(monkeypatch, address, cache):
    """Has this process ask that hub."""
    from huggingface_hub import constants

    for name, value in environment(address, cache).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(constants, "ENDPOINT", address)
    template = address + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)


if __name__ == "__main__":  # FOLDER [BYTES_PER_S [EXTRA_MB]]: to be looked at by hand
    found = files_of(sys.argv[1])
    if len(sys.argv) > 3:
        found["model.safetensors"] += b"\0" * (1_000_000 * int(sys.argv[3]))
    stand_in = Hub(found, float(sys.argv[2]) if len(sys.argv) > 2 else None)
    with served(stand_in) as at:
        print(at, flush=True)
        told = 0
        while True:
            time.sleep(1)
            if len(stand_in.requests) > told:
                print(*stand_in.requests[told:], stand_in.sent_bytes, sep="\n", flush=True)
                told = len(stand_in.requests)
