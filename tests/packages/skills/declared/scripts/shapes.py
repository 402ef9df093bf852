"""One import of each shape that skills write."""

from __future__ import annotations

import json, os.path
import plain_module as short
import sibling
import space.one
from plain_module import VALUE, deep
from plain_module.deep import (
    BELOW,
    FURTHER as renamed,
)
from scripts.part import inner
from scripts.part.inner import *
from space import two
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from never_there import Kind

try:
    import faster_if_it_is_there
except ImportError:
    faster_if_it_is_there = None


def late():
    import plain_module.deep
    return plain_module.deep.BELOW
