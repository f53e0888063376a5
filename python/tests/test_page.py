"""Examples of the package's page, run as they stand there."""

import re
import shutil
from pathlib import Path

import pytest

import itg

PAGE = Path(__file__).parent.parent / "python.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S)


def test_the_page_has_examples() -> None:
    assert len(EXAMPLES) >= 2


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs(
    example: str, simulated: itg.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, log in zip(["recv.itg", "send.itg"], simulated.logs):
        shutil.copy(log, tmp_path / name)
    exec(compile(example, str(PAGE), "exec"), {})
    assert len(capsys.readouterr().out.splitlines()) > 3, "it prints something"
