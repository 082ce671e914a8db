"""P3: two processes may share a store, and threads one `Store`: no error, no bad value, nothing lost."""

import subprocess
import sys
import threading
import time

from cache import opening
from tests.conftest import HANG_S, REPOSITORY

COMMON = """
import sys, time
from cache import open_store
folder, start, who = sys.argv[1], float(sys.argv[2]), sys.argv[3]
def blob(who, i):
    return f"{who} {i} ".encode() * (20 if i % 3 else 8_000)
time.sleep(max(0.0, start - time.time()))  # all at once, so that they make the store together
store = open_store(folder)
assert store.notice is None, store.notice
"""
WRITER = (
    COMMON
    + """
for turn in range(3):
    for i in range(150):
        assert store.put(f"both {i}", blob(who, i)), store.notice
        assert store.put(f"{who} {i}", blob(who, i)), store.notice
        assert store.get(f"{who} {i}") == blob(who, i), i
"""
)
READER = (
    COMMON
    + """
n_found, end = 0, time.monotonic() + float(sys.argv[4])
while n_found < 150 and time.monotonic() < end:
    got = [store.get(f"both {i}") for i in range(150)]
    wrong = [i for i, b in enumerate(got) if b not in (None, blob("one", i), blob("two", i))]
    assert not wrong and store.notice is None, (wrong, store.notice)
    n_found = sum(b is not None for b in got)
    assert all(key.split()[0] in ("both", "one", "two") for key in store.keys())
    assert store.verify().bad_keys == ()
assert n_found == 150, n_found
"""
)


def blob(who: str, i: int) -> bytes:
    return f"{who} {i} ".encode() * (20 if i % 3 else 8_000)


def test_two_writers_and_a_reader(opened, tmp_path):
    start = str(time.time() + 1.0)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path), start, who, str(HANG_S)],
            cwd=REPOSITORY,
            stderr=subprocess.PIPE,
            text=True,
        )
        for code, who in ((WRITER, "one"), (WRITER, "two"), (READER, "reader"))
    ]
    for process in processes:
        _, errors = process.communicate(timeout=HANG_S)
        assert process.returncode == 0, errors
    store = opened(tmp_path)
    for i in range(150):
        assert store.get(f"one {i}") == blob("one", i) and store.get(f"two {i}") == blob("two", i)
        assert store.get(f"both {i}") in (blob("one", i), blob("two", i))
    found = store.verify()
    assert (found.n_checked, found.bad_keys) == (450, ())
    assert len(list((tmp_path / "results").rglob("*.val"))) == 150  # files of entries that were replaced are gone
    assert [p.name for p in tmp_path.iterdir()] == ["results"]  # nobody took the other's work for damage


def test_threads_share_one_store(store):
    errors = []

    def work(who: str) -> None:
        try:
            for i in range(60):
                assert store.put(f"both {i}", blob(who, i)) is True
                assert store.put(f"{who} {i}", blob(who, i)) is True
                assert store.get(f"{who} {i}") == blob(who, i)
                assert store.get(f"both {i}") in [None, *(blob(str(n), i) for n in range(4))]
        except AssertionError as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(str(n),)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == [] and store.notice is None
    assert len(list(store.keys())) == 5 * 60


def test_a_forked_process_makes_its_own_connection(store, monkeypatch):
    ours = store._cache._con
    monkeypatch.setattr("os.getpid", lambda: 0)
    assert store._cache._con is not ours
    assert store.put("k", b"blob") is True and store.get("k") == b"blob"


def test_a_store_that_another_process_makes_meanwhile_is_shared_and_not_taken_for_remains(
    opened, tmp_path, monkeypatch
):
    real, others = opening.os.listdir, []

    def listdir(folder):
        if not others:  # just before the look into the folder
            others.append(None)
            others[0] = opened(tmp_path)
            assert others[0].put("theirs", b"theirs") is True
        return real(folder)

    monkeypatch.setattr(opening.os, "listdir", listdir)
    store = opened(tmp_path)
    assert store.get("theirs") == b"theirs"
    assert others[0].put("more", b"more") is True and store.get("more") == b"more"


def test_clearing_in_one_process_is_seen_in_another(opened, tmp_path):
    ours, theirs = opened(tmp_path), opened(tmp_path)
    ours.put("k", b"blob")
    assert theirs.get("k") == b"blob"
    assert theirs.clear() > len(b"blob")
    assert ours.put("after", b"blob") is True
    assert ours.get("k") is None and theirs.get("after") == b"blob"
