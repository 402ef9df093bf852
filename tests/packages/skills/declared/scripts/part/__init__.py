from .inner import ONE
from ..sibling import __doc__ as beside
