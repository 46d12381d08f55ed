"""``python -m rlbench``."""

from __future__ import annotations

import sys

if not sys.flags.safe_path:
    del sys.path[0]  # the current folder, whose files would be imported

from rlbench.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
