"""What installs packages takes them from where pip would."""

from scripts.install import handed_on

SAID = """:env:.find-links='/wheels'
global.cert='/ca.crt'
global.extra-index-url='file:///a\\nfile:///b'
global.find-links='/old'
global.index-url='https://mirror/simple'
install.no-compile='yes'"""


def test_the_settings_of_pip_reach_uv():
    words = handed_on(SAID.splitlines())
    pairs = list(zip(words[::2], words[1::2], strict=True))
    assert sorted(pairs) == [
        ("--extra-index-url", "file:///a"),
        ("--extra-index-url", "file:///b"),
        ("--find-links", "/wheels"),
        ("--index-strategy", "unsafe-best-match"),
        ("--index-url", "https://mirror/simple"),
    ]
