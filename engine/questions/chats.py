"""Prompts as chats: the chat template in a model folder, and texts rendered with it."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from engine.checkpoints.identity import Identity
from engine.checkpoints.tokenizer import tokenizer_settings
from engine.errors import HeadroomError
from engine.files import read_regular
from engine.questions.special_tokens import special_tokens

FILE, FOLDER = "chat_template.jinja", "additional_chat_templates"
PROCESS = Path(__file__).with_name("chat_process.py")
TODAY = "2024-07-26"  # for templates that write the date: the one that Llama 3 writes where it is given none
MOST_BYTES = 256_000  # of a template; the longest published ones have 20,000
CPU_SECONDS, MEMORY_BYTES = 20, 1 << 30  # for all texts of one call
Messages = Sequence[Mapping[str, str]]  # each has a role and a content


@dataclass(frozen=True)
class ChatTemplate:
    """The chat template of a model.

    source: the template, in jinja's language
    tokens: the special tokens that it may use, by name
    """

    source: str
    tokens: tuple[tuple[str, str], ...] = ()

    @cached_property
    def digest(self) -> str:
        """Identifies the template, for keys."""
        dated = [TODAY] if "strftime_now" in self.source else []
        content = json.dumps([self.source, self.tokens, *dated])
        return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()

    def __repr__(self) -> str:
        return f"ChatTemplate({self.digest})"

    def render(self, conversations: Sequence[Messages]) -> list[str]:
        """Returns the text of each conversation, up to where the assistant answers. HeadroomError: the template fails,
        or takes too long."""
        asked = {"source": self.source, "tokens": dict(self.tokens), "conversations": conversations, "today": TODAY}
        asked |= {"cpu_seconds": CPU_SECONDS, "memory_bytes": MEMORY_BYTES}
        command, given = [sys.executable, "-I", str(PROCESS)], json.dumps(asked).encode()
        try:
            done = subprocess.run(command, input=given, capture_output=True, timeout=3 * CPU_SECONDS, check=False)
            answer = json.loads(done.stdout) if done.returncode == 0 else {}
        except subprocess.TimeoutExpired:
            answer = {}
        if "texts" not in answer:
            problem = answer.get("error", "it takes too long")
            raise HeadroomError(f"the chat template cannot be rendered ({problem}); use the prompt as typed")
        return answer["texts"]

    def prompt(self, text: str) -> str:
        """Returns one message of the user as the model reads it, up to where the assistant answers."""
        return _prompt(self, text)


@lru_cache(maxsize=64)
def _prompt(template: ChatTemplate, text: str) -> str:
    return template.render([[{"role": "user", "content": text}]])[0]


def chat_template(identity: Identity) -> ChatTemplate:
    """Returns the chat template of a model. HeadroomError: it has none, or one that is too long."""
    found = _found(identity)
    if found is None and (names := ", ".join(sorted(_sources(identity.folder)))):
        raise HeadroomError(f"{identity.name} has chat templates ({names[:80]}) but none called default; copy the one "
                            f"to use into {FILE}, or use the prompt as typed")  # fmt: skip
    if found is None:
        raise HeadroomError(f"{identity.name} has no chat template; use the prompt as typed, or an instruct model")
    if len(found.source.encode()) > MOST_BYTES:
        raise HeadroomError(f"the chat template of {identity.name} has {len(found.source):,} characters; at most "
                            f"{MOST_BYTES:,} bytes are read; use the prompt as typed")  # fmt: skip
    return found


def _found(identity: Identity) -> ChatTemplate | None:
    files = [file.stat() for name in (FILE, FOLDER) if (file := identity.folder / name).exists()]
    stamp = identity.digest, *((stat.st_size, stat.st_mtime_ns) for stat in files)
    kinds = [str(identity.config.get(name) or "") for name in ("model_type", "tokenizer_class")]
    return _read(identity.folder, *kinds, stamp)


@lru_cache(maxsize=8)
def _read(folder: Path, model_type: str, tokenizer_class: str, _: object) -> ChatTemplate | None:
    """The template in a folder; `_` is what changes with its files."""
    source = _sources(folder).get("default", "")
    if not source.strip():
        return None
    return ChatTemplate(source, special_tokens(folder, model_type, tokenizer_class, source))


def _sources(folder: Path) -> dict[str, str]:
    """The templates by name. As in transformers, files of their own come before the tokenizer's settings."""
    files = {"default": folder / FILE} if (folder / FILE).is_file() else {}
    files |= {file.name.removesuffix(".jinja"): file for file in sorted((folder / FOLDER).glob("*.jinja"))}
    if files:
        return {name: read_regular(file, 4 * MOST_BYTES).decode("utf-8", "replace") for name, file in files.items()}
    written = tokenizer_settings(folder).get("chat_template")
    several = written if isinstance(written, list) else [{"name": "default", "template": written}]
    named = [(each.get("name"), each.get("template")) for each in several if isinstance(each, dict)]
    return {name: source for name, source in named if isinstance(name, str) and isinstance(source, str)}
