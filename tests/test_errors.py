"""Messages speak the language of whoever reads them: options at the command line, keywords in Python."""

import sys

import pytest

import newfound
from newfound.app import main as cli
from newfound.errors import UserError, for_the_command_line, option
from newfound.runs.folder import RunFolder


def test_the_same_mistake_at_the_command_line_and_in_python(tmp_path, monkeypatch, capsys):
    (tmp_path / "photos").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").touch()
    with pytest.raises(
        UserError,
        match=r"discover with the same folder, resume=True\. For another run choose another folder with out=, ",
    ):
        newfound.discover(tmp_path / "photos", out=tmp_path / "run")
    monkeypatch.setattr(sys, "argv", ["newfound", "discover", f"{tmp_path}/photos", "--out", f"{tmp_path}/run"])
    with pytest.raises(SystemExit):
        cli.main()
    assert (
        "For another run choose another folder with --out, or replace this one with --out and --overwrite."
        in capsys.readouterr().err
    )
    assert option("out") == "out="  # once the command is done


def test_an_error_keeps_the_words_of_its_reader(tmp_path):
    """Also of a reader inside another."""
    (tmp_path / "else").touch()
    with for_the_command_line():
        with for_the_command_line(), pytest.raises(UserError, match="--out"):
            RunFolder(tmp_path).check_place(resume=False)
        with pytest.raises(UserError, match="--out"):
            RunFolder(tmp_path).check_place(resume=False)
    with pytest.raises(UserError, match="with out="):
        RunFolder(tmp_path).check_place(resume=False)
