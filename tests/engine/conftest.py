"""The engine's tests share a fake model (`engine_fakes`) and a way to talk to an engine (`engine_talk`)."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
