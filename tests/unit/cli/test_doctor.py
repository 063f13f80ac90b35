import sys
from importlib import metadata

import pytest
from packaging.requirements import Requirement

from vcsd import errors
from vcsd.cli import doctor


def test_a_missing_package_is_broken():
    finding = doctor._requirement(Requirement("no-such-package>=1"))
    assert (finding.state, finding.detail) == ("broken", "not installed; needs >=1")


@pytest.mark.parametrize(("specifier", "state"), [(">=2.11,<2.14", "ok"), ("==2.13.0", "ok"), (">=2.14", "broken")])
def test_a_version_is_held_against_its_range_whatever_its_build(specifier, state, monkeypatch):
    monkeypatch.setattr(metadata, "version", lambda name: "2.13.0+cpu")
    assert doctor._requirement(Requirement(f"torch{specifier}")).state == state


def test_an_extra_that_lacks_a_package_says_how_to_get_it(monkeypatch):
    def version(name):
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(metadata, "version", version)
    finding = doctor._extra("peft")
    assert finding.state == "off"
    assert finding.detail == "pip install -c constraints.txt -e '.[peft]'"
    assert doctor._extra("data").detail == "pip install -c constraints.txt -e '.[data]'"


def test_an_extra_with_a_package_of_another_version_names_it(monkeypatch):
    monkeypatch.setattr(metadata, "version", lambda name: "0.19.1")
    assert doctor._extra("peft").detail.endswith("'.[peft]' (found peft 0.19.1 (<0.22,>=0.21))")


@pytest.mark.parametrize("extra", ["dev", "docs", "release"])
def test_an_extra_for_work_on_the_package_takes_one_short_line(extra, monkeypatch):
    monkeypatch.setattr(metadata, "version", lambda name: "0.0.1")
    finding = doctor._extra(extra)
    assert (finding.state, finding.detail) == ("off", "not complete; only for work on vcsd itself")


def test_outside_of_a_checkout_no_advice_needs_its_files(monkeypatch, tmp_path):
    def version(name):
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(errors, "__file__", str(tmp_path / "lib" / "vcsd" / "errors.py"))
    monkeypatch.setattr(metadata, "version", version)
    assert doctor._extra("peft").detail == "pip install 'vcsd[peft]'"
    assert "peft" in doctor._extras()
    assert not {"dev", "docs", "release"} & set(doctor._extras())


def test_the_requirements_of_an_extra_are_its_own():
    assert {finding.subject for finding in doctor._requirements("peft")} == {"peft"}
    assert "torch" in {finding.subject for finding in doctor._requirements(None)}
    assert "peft" not in {finding.subject for finding in doctor._requirements(None)}


def test_a_torchvision_that_does_not_fit_is_named(monkeypatch, tmp_path):
    (tmp_path / "torchvision.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torchvision", raising=False)
    finding = doctor._attempt("images", doctor._try_images)
    assert finding.state == "broken"
    assert "nms does not exist" in finding.detail
    assert "uninstall it" in finding.detail


def test_arithmetic_that_is_off_is_noticed(monkeypatch):
    import vcsd.core

    monkeypatch.setattr(vcsd.core, "forward_kl", vcsd.core.reverse_kl)
    assert doctor._attempt("arithmetic", doctor._try_arithmetic).state == "broken"
