"""How a job stands, in words and as a share of a bar: takes a JobStatus. No streamlit here."""

from typing import Any

from engine.progress import in_time
from engine.slots import JobStatus
from engine.views.words import capitalized

LONG_S = 10.0  # from which a button states its duration
SILENT_S = 3.0  # from which a step without a count or forecast says how long it has run


def describe_job(job: JobStatus[Any], what: str, ahead: JobStatus[Any] | None = None) -> str:
    """Returns text such as "Full model: 312 of 500 done, about 12 s left", or the work `ahead` that it waits for."""
    if job.state == "running":
        what = named(job, what)
        if job.stopping:
            return f"{what}: stopping"
        words = f"{what}: {job.done:,} of {job.total:,} done" if job.done else f"{what} …"
        if not job.done and job.left_s is None and job.seconds >= SILENT_S:
            words += f" ({in_time(job.seconds)} so far)"
        return words + ("" if job.left_s is None else f", about {in_time(job.left_s)} left")
    if ahead is None:
        return f"{what}: about to begin"
    if ahead.elsewhere:
        wait = "" if ahead.left_s is None else f"about {in_time(ahead.left_s)}"
        about = [each for each in (ahead.about or ahead.title[:1].lower() + ahead.title[1:], wait) if each]
        return f"{what}: waiting for another tab" + (f" ({', '.join(about)})" if about else "")
    other = ahead.title or ahead.message or "other work"
    words = [other[:1].lower() + other[1:]]
    if ahead.done < ahead.total:
        words.append(f"{ahead.done:,} of {ahead.total:,} done")
    if ahead.left_s is not None:
        words.append(f"about {in_time(ahead.left_s)}")
    return f"{what}: waiting for: {', '.join(words)}"


def share_done(job: JobStatus[Any]) -> float:
    """Returns the share of a job that is done, by the time if nothing is counted yet."""
    if job.done and job.total:
        return min(1.0, job.done / job.total)
    return 0.0 if job.left_s is None else job.seconds / max(job.seconds + job.left_s, 1e-9)


def named(job: JobStatus[Any], title: str) -> str:
    """Returns the step that a job's numbers count, such as "Ranking heads", or the job's `title`."""
    return capitalized(job.message) or title


def stopped(job: JobStatus[Any]) -> str:
    """Returns text such as "stopped at 48 of 64"."""
    return f"stopped at {job.done:,} of {job.total:,}" if job.total else "stopped before it began"


def cost_in_words(takes_s: float | None, least_s: float = LONG_S) -> str:
    """Returns the end of a button's label, ", about 2 min here"; "" if it is short or unknown."""
    return "" if takes_s is None or takes_s < least_s else f", about {in_time(takes_s)} here"
