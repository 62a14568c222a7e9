"""What the README shows runs, and prints what it says."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_the_example_prints_what_the_readme_says() -> None:
    [example] = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    ran = subprocess.run(
        [sys.executable, "-c", example], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.stdout.split() == ["3", "7"], ran.stderr
