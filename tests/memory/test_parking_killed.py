"""An engine killed while it parks: the next one finds what was complete, and nothing else."""

import os
import random
import subprocess
import sys
import time

from memory.memory_fakes import ORIGIN, SIZES, FakeState

from strata.memory import Memory, MemoryLimits, ParkingLimits

ENGINE = """
import sys
from pathlib import Path
from memory.memory_fakes import ORIGIN, SIZES, FakeState
from strata.memory import Memory, MemoryLimits, ParkingLimits, Why
parking = ParkingLimits(directory=Path(sys.argv[1]), min_free_bytes=0, disk_bytes=20 << 20)
memory = Memory(MemoryLimits(4096, conversations=1, parking=parking), SIZES, ORIGIN, lambda: FakeState(width=3000))
print(len(list(memory._parking)), flush=True)
number = int(sys.argv[2])
while True:
    number += 1
    first = number % 60 * 1000
    prompt = [first + at for at in range(400)]
    for turn in range(2):
        lane = memory.admit(prompt)
        lane.state.feed(prompt[lane.state.length:300 + 100 * turn])
        memory.checkpoint(lane, Why.TURN)
        lane.state.feed(prompt[lane.state.length:])
        memory.finish(lane)
        prompt = prompt + [first + 500 + at for at in range(50)]
"""


def test_the_next_engine_finds_whole_conversations(tmp_path):
    rng, env, found = random.Random(1), os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}, []
    for attempt in range(5):
        engine = subprocess.Popen(
            [sys.executable, "-c", ENGINE, str(tmp_path), str(attempt * 12)], stdout=subprocess.PIPE, env=env
        )
        assert engine.stdout is not None
        found.append(int(engine.stdout.readline()))
        time.sleep(rng.uniform(0.1, 0.4))
        engine.kill()
        engine.wait()
        engine.stdout.close()
    parking = ParkingLimits(directory=tmp_path, min_free_bytes=0)
    memory = Memory(MemoryLimits(4096, parking=parking), SIZES, ORIGIN, lambda: FakeState(width=3000))
    memory.check()
    parked = list(memory._parking)
    assert len(parked) > 0
    assert max(found) > 0, "no engine lived long enough to park"
    for one in parked:
        states = memory._parking.states(one)
        assert [state.length for state in states] == list(one.lengths)
        assert all(state.history == FakeState(state.tokens).history for state in states)
        assert all((state.rows[:, -1] == state.tokens).all() for state in states)
    assert {path.suffix for path in tmp_path.iterdir()} == {".conversation"}
