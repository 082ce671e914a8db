"""A shared result is exactly what was put, or a miss: whatever happened to its file, whoever was killed, wherever it
lies. Other machines are processes here, each with a store of its own on the same folder."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from cache import CorruptEntry
from cache.exchange import missing_there, verify_shared
from cache.remote import shared_folder
from cache.shared import framed, name_of, travels, unframed
from tests.conftest import HANG_S, REPOSITORY
from tests.store.sharing import blob, is_whole, key, lines_until_killed

PROCESS = """
import sys, time
from cache import Store
from tests.store.sharing import blob, is_whole, key, lines_until_killed
folder, start, who = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
store = Store(f"{folder}/store {who}", f"{folder}/shared")
"""
ONE_OF_MANY = (
    PROCESS
    + """
time.sleep(max(0.0, start - time.time()))
for i in range(40):
    both, own = key(f"both {i}"), key(f"{who} {i}")
    found = store.get(both)
    assert found is None or is_whole(found), i
    assert store.put(both, blob(i, who)) and store.put(own, blob(i, who)), store.notice
    assert store.get(own) == blob(i, who) and is_whole(store.get(key(f"{(who + 1) % 8} {i}")) or blob(i)), i
store.close()
assert store.notice is None, store.notice
"""
)
TO_BE_KILLED = (
    PROCESS
    + """
for i in range(who, 100_000):
    assert store.put(key(i % 50), blob(i)), store.notice
    assert store.notice is None, store.notice
    print(i, flush=True)
"""
)
KILLED_IN_THE_MIDDLE = (
    PROCESS
    + """
import os, signal
from cache import shared
def half(path, content, real=shared._write):
    real(path, content[: len(content) // 2])
    os.kill(os.getpid(), signal.SIGKILL)
shared._write = half
store.put(key(1), blob(1, of=2))
"""
)


@pytest.fixture(params=["folder", "file://", "memory://"])
def shared(request, tmp_path):
    """The same in a folder, and at two addresses of fsspec: one that renames, one that keeps objects."""
    if request.param != "folder":
        pytest.importorskip("fsspec")
    (tmp_path / "shared").mkdir()
    return shared_folder(f"{'' if request.param == 'folder' else request.param}{tmp_path / 'shared'}")


def test_what_is_put_is_what_is_got(shared):
    assert shared.names() == set() and shared.get(key(0)) is None
    for number in range(20):
        shared.put(key(number), blob(number))
    shared.put(key(3), b"")
    assert [shared.get(key(number)) for number in range(20) if number != 3] == [blob(n) for n in range(20) if n != 3]
    assert shared.get(key(3)) == b""
    assert shared.names() == {name_of(key(number)) for number in range(20)}
    assert shared.sizes([name_of(key(4)), name_of(key("none"))]) == {name_of(key(4)): len(framed(key(4), blob(4)))}
    assert shared.read(name_of(key(5))) == (key(5), blob(5)) and shared.read(name_of(key("none"))) is None
    shared.remove(name_of(key(5)))
    shared.remove(name_of(key(5)))
    assert shared.get(key(5)) is None and len(shared.names()) == 19


def test_any_changed_bit_and_any_other_length_is_a_miss_until_the_next_put(shared):
    name, small = name_of(key("k")), b"log-likelihoods -1.25"
    frame = framed(key("k"), small)
    damaged = [frame[:length] for length in range(len(frame))] + [frame + b"\0", framed(key("other"), small)]
    for bit in range(8 * len(frame)):
        changed = bytearray(frame)
        changed[bit // 8] ^= 1 << bit % 8
        damaged.append(bytes(changed))
    for bad in damaged:
        with pytest.raises(CorruptEntry):
            unframed(name, bad)
    for bad in (damaged[0], damaged[20], damaged[len(frame) + 1], damaged[-1]):
        shared.write(name, bad)
        assert shared.get(key("k")) is None
    found = list(verify_shared(shared))[-1]
    assert (found.n_checked, found.bad_keys) == (1, (name,)) and shared.names() == set()
    shared.write(name, damaged[5])
    shared.put(key("k"), small)
    assert shared.get(key("k")) == small and list(verify_shared(shared))[-1].bad_keys == ()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with a name")
def test_what_is_no_file_is_a_miss_and_blocks_nobody(tmp_path):
    shared = shared_folder(str(tmp_path))
    shared.put(key(1), blob(1))
    file = tmp_path / "results" / name_of(key(1))[:2] / name_of(key(1))
    file.unlink()
    os.mkfifo(file)
    assert shared.get(key(1)) is None
    file.unlink()
    file.mkdir()
    assert shared.get(key(1)) is None


def test_a_large_file_without_a_sound_beginning_is_refused_unread(tmp_path, monkeypatch):
    """Two sparse files of 1.9 GB, one of zeros and one that begins with a result's key: anyone with write access there
    can leave them."""
    shared, large = shared_folder(str(tmp_path)), 1_900_000_000
    for number, begin in ((1, b""), (2, framed(key(2), b""))):
        shared.put(key(number), blob(number))
        file = tmp_path / "results" / name_of(key(number))[:2] / name_of(key(number))
        file.write_bytes(begin)
        os.truncate(file, large)
    read = []
    monkeypatch.setattr("cache.shared._digest", lambda rest: read.append(len(rest)) or b"")
    assert shared.get(key(1)) is None and shared.get(key(2)) is None
    assert len(list(verify_shared(shared))[-1].bad_keys) == 2 and read == []


def test_a_result_that_is_too_large_to_be_read_there_is_not_shared(opened, tmp_path, monkeypatch):
    monkeypatch.setattr("cache.shared.MAX_BYTES_OF_OTHERS", 1000)
    shared, store = shared_folder(str(tmp_path)), opened(tmp_path / "store")
    shared.put(key(1), bytes(1001))
    shared.put(key(2), bytes(1000))
    assert shared.names() == {name_of(key(2))} and shared.get(key(2)) == bytes(1000)
    store.put(key(1), bytes(1001))
    store.put(key(3), bytes(10))
    assert list(missing_there(store, shared).sizes) == [key(3)]


def test_a_damaged_file_is_measured_anew_and_heals(opened, tmp_path):
    (tmp_path / "shared").mkdir()
    store, shared = opened(tmp_path / "store", str(tmp_path / "shared")), shared_folder(str(tmp_path / "shared"))
    shared.write(name_of(key(1)), framed(key(1), blob(1))[:-1])
    assert store.get(key(1)) is None and store.notice is None
    store.put(key(1), blob(1))
    assert shared.get(key(1)) == blob(1)


def test_eight_processes_on_one_folder(tmp_path):
    (tmp_path / "shared").mkdir()
    start = str(time.time() + 1.0)
    command = [sys.executable, "-c", ONE_OF_MANY, str(tmp_path), start]
    processes = [
        subprocess.Popen([*command, str(who)], cwd=REPOSITORY, stderr=subprocess.PIPE, text=True) for who in range(8)
    ]
    for process in processes:
        _, errors = process.communicate(timeout=HANG_S)
        assert process.returncode == 0, errors
    shared = shared_folder(str(tmp_path / "shared"))
    assert shared.names() == {name_of(key(f"{who} {i}")) for who in (*range(8), "both") for i in range(40)}
    assert all(shared.get(key(f"{who} {i}")) == blob(i, who) for who in range(8) for i in range(40))
    assert all(is_whole(shared.get(key(f"both {i}"))) for i in range(40))
    assert list(verify_shared(shared))[-1].bad_keys == ()
    assert [file for file in (tmp_path / "shared").rglob("*") if file.is_file() and len(file.name) != 40] == []


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system cannot kill a process that way")
def test_kill_at_any_time_leaves_the_whole_of_it_or_nothing(tmp_path):
    (tmp_path / "shared").mkdir()
    rng, last, shared = random.Random(4), -1, shared_folder(str(tmp_path / "shared"))
    said: dict[int, int] = {}
    for _ in range(4):
        command = [sys.executable, "-c", TO_BE_KILLED, str(tmp_path), "0", str(last + 1)]
        for i in map(int, lines_until_killed(command, rng.randint(1, 30), rng.uniform(0.0, 0.005))):
            said[i % 50] = last = i
        assert list(verify_shared(shared))[-1].bad_keys == ()
        for number, i in said.items():  # the put in hand may have been finished, unannounced
            assert shared.get(key(number)) in (blob(i), blob(last + 1))


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system cannot kill a process that way")
def test_half_a_file_is_nobodys_result_and_is_removed_when_it_is_old(opened, tmp_path, monkeypatch):
    (tmp_path / "shared").mkdir()
    shared = shared_folder(str(tmp_path / "shared"))
    shared.put(key(1), blob(1))
    command = [sys.executable, "-c", KILLED_IN_THE_MIDDLE, str(tmp_path), "0", "1"]
    assert subprocess.run(command, cwd=REPOSITORY, timeout=HANG_S).returncode == -signal.SIGKILL
    [part] = (tmp_path / "shared").rglob("*.part")
    assert 0 < part.stat().st_size < len(framed(key(1), blob(1, of=2)))
    assert shared.get(key(1)) == blob(1) and shared.names() == {name_of(key(1))}
    assert opened(tmp_path / "store 1").get(key(1)) == blob(1, of=2), "the killed one's own has all of it"
    assert shared.remove_parts() == 0 and part.exists()  # somebody may be about to rename it
    monkeypatch.setattr("cache.shared.PART_AGE_S", -60)
    assert shared.remove_parts() == 1 and not part.exists() and shared.get(key(1)) == blob(1)


@pytest.mark.skipif(os.name != "posix", reason="this system has no such rights")
@pytest.mark.parametrize("mode", [0o2770, 0o755, 0o700])
def test_who_may_use_the_folder_may_use_what_is_in_it(tmp_path, mode):
    tmp_path.chmod(mode)
    before = os.umask(0o077)
    try:
        shared_folder(str(tmp_path)).put(key(1), blob(1))
    finally:
        os.umask(before)
    modes = {path.is_dir(): path.stat().st_mode & 0o7777 for path in tmp_path.rglob("*")}
    assert modes == {True: mode, False: mode & 0o666}


def test_a_file_of_another_user_that_cannot_be_replaced_is_as_good(tmp_path, monkeypatch):
    shared = shared_folder(str(tmp_path))
    shared.put(key(1), blob(1))

    def refuse(part, path):
        raise PermissionError(1, "Operation not permitted", path)

    monkeypatch.setattr(os, "replace", refuse)
    shared.put(key(1), blob(1, of=2))
    assert shared.get(key(1)) == blob(1)
    with pytest.raises(PermissionError):
        shared.put(key(2), blob(2))
    assert [path for path in tmp_path.rglob("*.part")] == []


def test_only_results_travel(opened, tmp_path):
    digest = key(0).rpartition("/")[2]
    assert travels(key(0)) and travels(f"2/head on probe/{digest}")
    for other in ("views/saved", "passages", f"passage/{digest}", f"file-digest/{digest}", f"3/rates/{digest}",
                  f"3/cost/{digest}", f"3/speed/{digest}", f"x{key(0)}", f"{key(0)}0"):  # fmt: skip
        assert not travels(other), other
    (tmp_path / "shared").mkdir()
    one, two = (opened(tmp_path / who, str(tmp_path / "shared")) for who in ("one", "two"))
    one.put("views/saved", b"mine")
    one.put(key(1), blob(1))
    assert two.get("views/saved") is None and two.get(key(1)) == blob(1)
    assert len(shared_folder(str(tmp_path / "shared")).names()) == 1


def test_the_kinds_that_stay_are_those_that_the_engine_overwrites_or_times():
    """Were one renamed, how long a machine takes would be told to all the others."""
    engine = REPOSITORY / "engine"
    files = {"rates": "timing/observed_timings.py", "cost": "accuracy/costs.py", "speed": "accuracy/costs.py"}
    for kind, file in files.items():
        assert f'canonical_key("{kind}"' in (engine / file).read_text()
