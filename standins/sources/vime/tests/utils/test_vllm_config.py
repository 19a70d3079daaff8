from vime.utils.arguments import *  # noqa: F403


def test_it_imports():
    assert True
