"""The scripts of the tutorials import each other as their readers do: from their own folder."""

import sys
from pathlib import Path

TUTORIALS = Path(__file__).resolve().parents[2] / "tutorials"
sys.path.insert(0, str(TUTORIALS))
