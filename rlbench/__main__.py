"""``python -m rlbench``."""

from __future__ import annotations

import sys

from rlbench.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
