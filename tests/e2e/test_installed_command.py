"""The installed command, run as a user would run it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from forked_python import run_python
from vcsd.cli import main
from vcsd.config.shipped import shipped_names

ROOT = Path(__file__).parents[2]
VCSD = Path(sys.executable).parent / "vcsd"
pytestmark = [pytest.mark.e2e, pytest.mark.skipif(not VCSD.exists(), reason="vcsd is not installed here")]


def vcsd(*arguments):
    return subprocess.run([VCSD, *arguments], capture_output=True, text=True, cwd=ROOT, check=False)


def test_help_runs_without_torch():
    code = (
        "import sys; sys.argv = ['vcsd', '--help']; from vcsd.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print('heavy:', sorted({'torch', 'transformers', 'pydantic'} & set(sys.modules)))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "Usage: vcsd" in output
    assert output.strip().endswith("heavy: []")


@pytest.mark.parametrize(("chosen", "is_off"), [(None, True), ("0", False)])
def test_the_hubs_telemetry_is_off_unless_the_user_turns_it_on(chosen, is_off):
    """The client of the hub would ask for a list of coding agents, and name the one it runs under."""
    code = (
        "import sys; sys.argv = ['vcsd', '--version']; from vcsd.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "import huggingface_hub.constants; print(huggingface_hub.constants.HF_HUB_DISABLE_TELEMETRY)"
    )
    environment = {key: value for key, value in os.environ.items() if not key.endswith("DISABLE_TELEMETRY")}
    if chosen is not None:
        environment["HF_HUB_DISABLE_TELEMETRY"] = chosen
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split()[-1] == str(is_off)


def test_doctor_finds_this_environment_well():
    result = vcsd("doctor")
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_shipped_recipe_resolves(monkeypatch, capsys):
    for recipe in shipped_names():  # in this process: starting one takes seconds
        monkeypatch.setattr(sys, "argv", ["vcsd", "config", recipe])
        monkeypatch.chdir(ROOT)
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
        assert json.loads(capsys.readouterr().out)["method"]["name"]


def test_a_typo_in_an_override_is_explained_with_exit_code_two():
    result = vcsd("config", "recipes/paper/qwen3_vl_2b.yaml", "method.alhpa=1")
    assert result.returncode == 2
    assert "method.alhpa is not a key. Did you mean 'alpha'?" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_one_page_loop_runs_as_a_script():
    result = run_python(ROOT / "examples" / "loop.py", "--steps", "2")
    assert result.returncode == 0, result.stderr
    assert [line.split()[1] for line in result.stdout.splitlines()] == ["1", "2"]
