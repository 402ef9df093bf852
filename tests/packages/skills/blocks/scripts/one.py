# /// script
# requires-python = ">=3.8"
# dependencies = ["plain-package"]
# ///
import plain_module
