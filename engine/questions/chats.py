"""Prompts as chats: the chat template in a model folder, and texts rendered with it."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from engine.checkpoints.identity import Identity
from engine.checkpoints.weight_files import read_json
from engine.errors import HeadroomError
from engine.files import read_regular

FILE, SETTINGS, OLD_SETTINGS = "chat_template.jinja", "tokenizer_config.json", "special_tokens_map.json"
PROCESS = Path(__file__).with_name("chat_process.py")
SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
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
        content = json.dumps([self.source, self.tokens])
        return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()

    def __repr__(self) -> str:
        return f"ChatTemplate({self.digest})"

    def render(self, conversations: Sequence[Messages]) -> list[str]:
        """Returns the text of each conversation, up to where the assistant answers. HeadroomError: the template fails,
        or takes too long."""
        asked = {"source": self.source, "tokens": dict(self.tokens), "conversations": conversations}
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


def has_chat_template(identity: Identity) -> bool:
    """Whether the model has a chat template."""
    return _found(identity.folder, identity.digest) is not None


def chat_template(identity: Identity) -> ChatTemplate:
    """Returns the chat template of a model. HeadroomError: it has none, or one that is too long."""
    found = _found(identity.folder, identity.digest)
    if found is None:
        raise HeadroomError(f"{identity.name} has no chat template; use the prompt as typed, or an instruct model")
    if len(found.source.encode()) > MOST_BYTES:
        raise HeadroomError(f"the chat template of {identity.name} has {len(found.source):,} characters; at most "
                            f"{MOST_BYTES:,} bytes are read; use the prompt as typed")  # fmt: skip
    return found


@lru_cache(maxsize=8)
def _found(folder: Path, _: str) -> ChatTemplate | None:
    """The template in a folder; like transformers, a file of its own comes before the tokenizer's settings."""
    settings = _settings(folder / SETTINGS)
    source = settings.get("chat_template")
    if isinstance(source, list):  # several, by name
        source = next((each.get("template") for each in source if each.get("name") == "default"), None)
    if (folder / FILE).is_file():
        source = read_regular(folder / FILE, 4 * MOST_BYTES).decode("utf-8", "replace")
    if not isinstance(source, str) or not source.strip():
        return None
    special = _settings(folder / OLD_SETTINGS) | {name: value for name, value in settings.items() if value}
    named = [(name, _text(special.get(name))) for name in SPECIAL]
    return ChatTemplate(source, tuple((name, text) for name, text in named if text))


def _settings(file: Path) -> dict[str, Any]:
    return dict(read_json(file, "the tokenizer is damaged")) if file.is_file() else {}


def _text(token: Any) -> str:
    found = token.get("content") if isinstance(token, dict) else token
    return found if isinstance(found, str) else ""
