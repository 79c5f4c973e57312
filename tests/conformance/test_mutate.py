"""No mutated file is clean whose loader runs what is hidden in it, or that no writer makes: `mutate.py` for some seconds a format."""

import os

import mutate
import pytest
from program import BINARY

SECONDS = float(os.environ.get("T2C_MUTATE", 10))


@pytest.mark.parametrize("name", mutate.FORMATS)
def test_no_mutated_file_is_clean(name, table):
    counts, failed = mutate.attack(name, BINARY, SECONDS, seed=int(os.environ.get("T2C_SEED", 0)))
    table(f"mutated {name}: " + ", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
    assert [(outcome, file.steps, sorted(file.foreign)) for file, outcome in failed[:20]] == []
    # Otherwise no canary was reached, and the check would prove nothing.
    assert counts["stopped"] + counts["wrote"] > 0, counts
