"""The list of cases, and how one fails."""
import os

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
CASES = []


def case(function):
    CASES.append(function)
    return function


def expect(condition, why):
    if not condition:
        raise AssertionError(why)
