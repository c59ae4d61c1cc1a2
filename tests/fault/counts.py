"""What the tests of this folder went through, counted; `make fault` prints it at the end."""

import os
from collections import Counter

import pytest

counts: Counter[str] = Counter()
FULL = os.environ.get("GRINNDER_FULL_MATRIX") == "1"
full_only = pytest.mark.skipif(not FULL, reason="minutes: make fault runs it (GRINNDER_FULL_MATRIX=1)")
