from pathlib import Path

import pytest

from deeped_ray.evaluation.datasets import dataset_path, read_dataset, read_datasets
from deeped_ray.storage.location import Location
from deeped_ray.types import DeepEdError


@pytest.mark.parametrize(
    "spec", ["nonsense", "aida:", "mini:x", "mini:", "other:file", "aida:/no/file", "wned:/no/folder", "jsonl:/no/file"]
)
def test_an_unreadable_data_set_is_named(spec: str) -> None:
    with pytest.raises(DeepEdError, match="Cannot read") as error:
        read_dataset(spec)
    assert "\n" not in str(error.value)


def test_a_folder_where_a_file_is_expected_is_told_apart(tmp_path: Path) -> None:
    with pytest.raises(DeepEdError, match="Is a directory"):
        read_dataset(f"aida:{tmp_path}")


def test_a_file_without_documents_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(DeepEdError, match="holds no document"):
        read_dataset(f"jsonl:{tmp_path / 'empty'}")


def test_several_data_sets_are_read_in_order() -> None:
    dev, test = read_dataset("mini:dev"), read_dataset("mini:test")
    assert read_datasets(["mini:test", "mini:dev"]) == test + dev


def test_a_folder_is_known_by_its_annotations(tmp_path: Path) -> None:
    (tmp_path / "set.xml").touch()
    assert dataset_path(f"wned:{tmp_path}") == Location(tmp_path / "set.xml")
    assert dataset_path(f"jsonl:{tmp_path / 'x'}") == Location(tmp_path / "x")
