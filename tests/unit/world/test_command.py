"""`vcsd world`: help with an example, a sheet to look at, problems in words."""

import pytest
from PIL import Image
from typer.testing import CliRunner

from vcsd import cli
from vcsd.errors import ConfigError
from vcsd.world.bases import shipped_base


def run(*words):
    return CliRunner().invoke(cli.app, ["world", *words])


@pytest.mark.parametrize("command", ["pretrain", "sheet"])
def test_help_shows_an_example(command):
    assert f"vcsd world {command} " in run(command, "--help").output


def test_a_sheet_is_drawn(tmp_path):
    assert run("sheet", "--out", str(tmp_path / "sheet.png"), "--columns", "1").exit_code == 0
    assert Image.open(tmp_path / "sheet.png").height > 7 * 160


def test_an_unknown_parameter_is_named(tmp_path):
    result = run("pretrain", "--out", str(tmp_path), "--set", "blck_share=0")
    assert isinstance(result.exception, ConfigError)
    assert "Did you mean 'black_share'" in str(result.exception)


def test_a_family_without_a_shipped_base_is_refused():
    with pytest.raises(ConfigError, match=r"no base of 'llava' comes with this package.*vcsd world pretrain"):
        shipped_base("llava")
