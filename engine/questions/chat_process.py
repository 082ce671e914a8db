"""Renders chats with a model's chat template: standard input to standard output, in a process that is started for it.

A template comes with a checkpoint and is a program. It runs in jinja's sandbox, and this process limits its own time
and memory, because a sandbox limits neither. It imports nothing else of Headroom.
"""

import json
import sys
from datetime import datetime
from typing import Any

from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import CallBlock
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

OUTPUT_CHARACTERS = 100_000_000


class GenerationBlocks(Extension):
    """`{% generation %}` marks what the assistant says; the text inside is rendered as it is, in a scope of its own."""

    tags = {"generation"}

    def parse(self, parser: Any) -> Any:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return CallBlock(self.call_method("_content"), [], [], body).set_lineno(line)

    def _content(self, caller: Any) -> str:
        return caller()


class Dict:
    """`dict` in a template: what it makes, without the attributes of the type."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


class PlainNamespace(Namespace):
    """`namespace` in a template; it holds no attribute that begins with an underscore, as Python's own do."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # so that an attribute may be called `self`
        self, *rest = args
        attributes = dict(*rest, **kwargs)
        for name in attributes:
            refuse_underscore(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        refuse_underscore(name)
        Namespace.__setitem__(self, name, value)


def refuse_underscore(name: Any) -> None:
    """SecurityError for such a name."""
    if str(name).startswith("_"):
        raise SecurityError(f"a namespace cannot have the attribute {name!r}")


def main() -> None:
    """Writes {"texts": one per conversation}, or {"error": one line}."""
    try:
        asked = json.load(sys.stdin)
        limit_resources(asked.pop("cpu_seconds"), asked.pop("memory_bytes"))
        answer: dict[str, Any] = {"texts": rendered(**asked)}
    except MemoryError:
        answer = {"error": "it takes too much memory"}
    except Exception as error:  # the template may raise anything
        answer = {"error": " ".join(str(error).split())[:200] or type(error).__name__}
    json.dump(answer, sys.stdout)


def limit_resources(cpu_seconds: int, memory_bytes: int) -> None:
    """Limits the processor time and the memory of this process, where the system can."""
    try:
        import resource
    except ImportError:  # Windows: the caller's time limit remains
        return
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))


def rendered(source: str, tokens: dict[str, str], conversations: list[list[dict[str, str]]], today: str) -> list[str]:
    """The text of each conversation, up to where the assistant answers, from what transformers gives a template. The
    date is `today`: a prompt must not change with the day."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationBlocks, loopcontrols]
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = raise_exception
    environment.globals |= {"dict": Dict(), "namespace": PlainNamespace}
    environment.globals["strftime_now"] = datetime.fromisoformat(today).strftime
    template, texts, n_characters = environment.from_string(source), list[str](), 0
    given: dict[str, Any] = {"tools": None, "documents": None, "add_generation_prompt": True, **tokens}
    for messages in conversations:
        try:
            text = template.render(messages=messages, **given)
        except TemplateError:  # as the harness does: some templates have no system message
            others = [message for message in messages if message["role"] != "system"]
            if len(others) == len(messages):
                raise
            text = template.render(messages=others, **given)
        texts.append(text)
        if (n_characters := n_characters + len(text)) > OUTPUT_CHARACTERS:
            raise ValueError(f"it writes more than {OUTPUT_CHARACTERS:,} characters")
    return texts


def raise_exception(message: str) -> None:
    """What a template calls to refuse a conversation."""
    raise TemplateError(message)


def to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None,
            sort_keys: bool = False) -> str:  # fmt: skip
    """The filter `tojson`, without jinja's escapes for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


if __name__ == "__main__":
    main()
