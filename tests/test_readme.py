"""What the README shows runs, and prints what it says."""

import re
import subprocess
import sys
from pathlib import Path

from tests.patience import PATIENCE

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"


def test_the_example_prints_what_the_readme_says(tmp_path: Path) -> None:
    """As it says it is run: saved as a file, by the Python of the checkout."""
    text = README.read_text()
    [(example, name, how)] = re.findall(
        r"```python\n(.*?)```\n.*?save it there as `(.*?)`:\n\n```console\n(.*?)```",
        text,
        flags=re.DOTALL,
    )
    first, second = (line.removeprefix("$ ").split("#")[0].split() for line in how.splitlines())
    assert first == ["./coterie", "version"]
    assert (ROOT / first[0]).exists()
    assert second == [".venv/bin/python", name]
    (tmp_path / name).write_text(example)
    python = ROOT / second[0]
    ran = subprocess.run(
        [python if python.exists() else sys.executable, name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ran.stdout.split() == ["3", "7"], ran.stderr
