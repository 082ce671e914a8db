"""Every run names its slowest tests, and those over a second that do not say why."""

from types import SimpleNamespace

from tests.conftest import N_SHOWN, slowest_lines


def report(name, seconds, *properties):
    return SimpleNamespace(nodeid=name, duration=seconds, user_properties=properties)


def test_the_slowest_come_first_with_their_set_up_and_their_reason():
    lines = slowest_lines(
        [report("a", 0.75), report("b", 0.5), report("a", 1.5), report("c", 9, ("slow", "trains a model"))]
    )
    assert lines == [
        "  9.00 s  c  (trains a model)",
        "  2.25 s  a  (no reason given: @pytest.mark.slow)",
        "  0.50 s  b",
    ]


def test_no_more_are_listed_than_asked_for():
    assert len(slowest_lines(report(str(number), number) for number in range(50))) == N_SHOWN == 20
