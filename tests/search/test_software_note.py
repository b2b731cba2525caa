"""A prediction for a cluster with ideal software says so, and where losses are known."""

from archplace.arch_configs import load_cluster
from archplace.search.software_note import fitted_clusters, software_note


def test_a_cluster_with_software_needs_no_note() -> None:
    assert software_note(load_cluster("a100-80gb-selene"), "a100-80gb") is None


def test_ideal_software_is_said_with_the_clusters_that_know_better() -> None:
    note = software_note(load_cluster("h100-superpod"), "h100-sxm")
    assert note is not None
    assert "h100-superpod has no section 'software'" in note
    assert note.endswith("h100-sxm-dgx, h100-sxm-mosaic.")


def test_without_kin_no_cluster_is_named() -> None:
    for accelerator in (None, "mi210"):
        note = software_note(load_cluster("flat-4gib"), accelerator)
        assert note is not None
        assert "Fitted" not in note


def test_fitted_clusters_consist_of_the_accelerator() -> None:
    assert fitted_clusters("tpu-v5p") == ("tpu-v5p",)
    assert "a100-superpod" not in fitted_clusters("a100-80gb")
