# /// script
# dependencies = ["space-one"]
# ///
import plain_module
from space import one
