"""The store keys that commands ask for, as literals, so that a change of keys is noticed.

As long as nothing is released, replace a literal when its keys are meant to change.
"""

import hashlib
import importlib.metadata
import shlex
from unittest.mock import Mock

import pytest

from cache import open_store
from engine.cli import parser
from engine.cli.options import request_of
from engine.models import loading
from engine.models.session import Session
from engine.requests.running import silent

VERSIONS = {"torch": "2.13.0+cpu", "transformers": "5.23.0", "lm_eval": "0.4.13", "bitsandbytes": "0.50.2"}
TASK = "--task demo_translation --limit 16"
KEYS = {
    f"evaluate {TASK} --shots 1 --mask L1H0 --precision fp32": "bde833424da2d020",
    f"evaluate {TASK} --shots 1 --same-examples": "09a3a4e32e398ce0",
    f"evaluate {TASK} --prune-heads 30 --order induction-protected --order-questions 16": "d1b9dc0d6cdcc5fd",
    f"importance {TASK} --score heads --out x.csv": "8244a71bb4cf57a6",
    f"importance {TASK} --score ffns --out x.csv": "343928d983c64312",
    "induction --out x.csv": "b6eb74e1a9d736e0",
    "losses --passage 'Three languages' --mask L1H0-4 --out x.csv": "dbcc5a20b265ed74",
    "attention --passage 'Three languages' --heads L1H0 --out x.csv": "ec9f5d6e61e425a2",
    "lens --passage 'Three languages' --precision bf16": "2721d142fab4a092",
    "continue --prompt 'Once upon a time' --out x.csv": "3543bb5d48cf748b",
    "attribute --passage 'Three languages' --fill mean --out x.csv": "90af22782785c89c",
    "perplexity --passage 'Three languages' --no-bos": "64528c8a7830e07a",
    "head L3H5": "7e35f11f560dff30",
    "mechanisms --tasks pairs_capital --limit 16": "b6eb74e1a9d736e0",
    "vector": "a9143e5035349211",
}


class ModelNeeded(Exception):
    pass


@pytest.mark.parametrize("line", KEYS)
def test_a_command_asks_for_these_keys(line, monkeypatch, tmp_path):
    """Up to the first record that is measured, which needs the model; on any machine as on a CPU."""
    asked, record, installed = list[str](), Session.record, importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: VERSIONS.get(name) or installed(name))
    monkeypatch.setenv("HEADROOM_PRODUCTS", "own")
    monkeypatch.setenv("HEADROOM_DEVICE", "cpu")
    monkeypatch.setattr(Session, "record", lambda self, key: asked.append(key) or record(self, key))
    monkeypatch.setattr(loading, "load", Mock(side_effect=ModelNeeded))
    store = open_store(tmp_path)
    with pytest.raises(ModelNeeded):
        request_of(parser().parse_args(shlex.split(line))).run(Session(store), silent)
    store.close()
    assert hashlib.blake2b("\n".join(asked).encode(), digest_size=8).hexdigest() == KEYS[line], asked
