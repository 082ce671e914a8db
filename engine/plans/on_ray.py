"""Runs a plan with Ray actors, and checks that they see the same files as the driver.

Where an actor's process or machine is lost, what it had in hand is free at once, and another takes its place. Nothing
rests on that: its lease runs out all the same, and ordinary workers may work on the plan at the same time.
"""

import os
import platform
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from engine.errors import HeadroomError, NotHere
from engine.models.session import Session
from engine.placement.devices import device_class, free_bytes
from engine.placement.needs import load_needs
from engine.plans.actors import Errand, digest_of
from engine.plans.cells import Plan, read_plan
from engine.plans.claims import Claims
from engine.plans.clusters import opened, share_of
from engine.plans.crews import Crew
from engine.plans.measuring import Here
from engine.plans.worker import Tally
from engine.progress import tell
from engine.records import Record, canonical_key, encode


@dataclass(frozen=True)
class RayOptions:
    """What a user wants of Ray: at which address ("": a cluster of this computer's own), how many workers, and CPUs and
    GPUs for each (None: what fits). `has_cache`: the store's folder was named, and is meant on every machine;
    `may_fetch`: rows of tasks may come from the hub."""

    address: str = ""
    workers: int | None = None
    cpus: float | None = None
    gpus: float | None = None
    has_cache: bool = False
    may_fetch: bool = False


@dataclass(frozen=True)
class Done:
    """What the actors have done together, how many there were at once, and how many took the place of a lost one."""

    tally: Tally
    workers: int
    restarts: int


def work_on_ray(
    asked: RayOptions, session: Session, plan_file: str, claims: Claims, here: Here, say: Callable[[str], None]
) -> Done:
    """Has every cell measured that no other worker takes; `say` is given what ought to be known.

    HeadroomError where Ray is not there or has not what was asked for, where no worker can begin, and where all of them
    have ended before the plan has; NotHere where on a cluster of this computer's own something is to be fetched.
    """
    digest, plan = digest_of(plan_file), read_plan(plan_file)
    most = sys.maxsize if asked.address else _most_in_memory(session, plan, here)
    tell.get()(0, len(plan.cells), "joining a Ray cluster" if asked.address else "starting Ray on this computer", None)
    with opened(asked.address) as ray, _marked(claims) as mark, _meeting(session) as meeting:
        share = share_of(ray, asked.workers, asked.cpus, asked.gpus, most)
        errand = Errand(
            host=platform.node(), folder=os.getcwd(), plan=os.path.abspath(plan_file), digest=digest,
            claims=os.path.abspath(claims.folder), mark=mark, lease_s=claims.lease_s, retried=claims.retried(),
            cache=str(session.store.directory), has_cache=asked.has_cache, shared=_shared(), meeting=meeting,
            model=here.model, data_dir=here.data_dir and os.path.abspath(here.data_dir), may_fetch=asked.may_fetch,
        )  # fmt: skip
        crew = Crew(ray, share, errand, plan, claims, say)
        try:
            crew.work()
        except NotHere as error:
            if not asked.address:
                raise
            raise HeadroomError(str(error)) from error  # a download here would not help there
    return Done(crew.tally(), share.workers, crew.n_restarts)


def _most_in_memory(session: Session, plan: Plan, here: Here) -> int:
    """How many workers this computer's main memory holds, one at least; what lies on GPUs Ray counts by itself."""
    if device_class() == "cuda":
        return sys.maxsize
    needed = [1]
    for setting in (here.setting(group) for group in plan.groups):
        identity = session.target(setting.spec, setting.bos).identity
        needed.append(load_needs(identity.model_config, setting.spec.precision).total)
    return max(1, free_bytes() // max(needed))


def _shared() -> str | None:
    """The results that are shared, as they are named from any folder."""
    shared = os.environ.get("HEADROOM_SHARED") or None
    return shared if shared is None or "://" in shared else os.path.abspath(os.path.expanduser(shared))


@contextmanager
def _marked(claims: Claims) -> Iterator[str]:
    """Context in which a file lies in the folder of claims, by which others know that it is the same folder: its path.
    HeadroomError where nothing can be written there."""
    file = Path(os.path.abspath(claims.folder)) / f"driver-{secrets.token_hex(8)}"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    except OSError as error:
        raise claims.refused(error) from error
    try:
        yield str(file)
    finally:
        with suppress(OSError):
            file.unlink()


@contextmanager
def _meeting(session: Session) -> Iterator[str]:
    """Context in which a record lies in the store, and with those who share its results, by which others know that they
    see the same: its key."""
    from cache.remote import shared_folder
    from cache.shared import name_of

    key = canonical_key("meeting", {"token": secrets.token_hex(16)})
    session.store.put(key, encode(Record({}, {"kind": "meeting"})))
    try:
        yield key
    finally:
        session.store.delete(key)
        if address := _shared():
            with suppress(OSError):
                shared_folder(address).remove(name_of(key))
