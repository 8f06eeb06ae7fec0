"""These tests run scripts in the orders that their neighbours use (tests/simulator/orders.py)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
