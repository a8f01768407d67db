"""Which file a LoRA's source stands for."""

from pathlib import Path

import huggingface_hub
import pytest

from engine.adapters.lora_files import lora_file

HUB = {"a/one": ["README.md", "ink.safetensors", "old/x.safetensors"], "a/two": ["x.safetensors", "y.safetensors"]}


@pytest.fixture(autouse=True)
def hub(monkeypatch: pytest.MonkeyPatch) -> None:
    def download(repo: str, name: str, local_files_only: bool) -> str:
        return f"/cache/{repo}/{name}"

    monkeypatch.setattr(huggingface_hub, "list_repo_files", HUB.__getitem__)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)


def found(source: str, *, allow_pickle: bool = False, local_files_only: bool = False) -> str:
    return str(lora_file(source, allow_pickle=allow_pickle, local_files_only=local_files_only))


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (["ink.safetensors", "notes.txt", "ink.bin"], "ink.safetensors"),
        (["a.safetensors", "pytorch_lora_weights.safetensors"], "pytorch_lora_weights.safetensors"),
    ],
)
def test_a_folder_stands_for_its_one_file(tmp_path: Path, names: list[str], chosen: str) -> None:
    for name in names:
        (tmp_path / name).touch()
    assert found(str(tmp_path)) == str(tmp_path / chosen)
    assert found(str(tmp_path / chosen)) == str(tmp_path / chosen)


@pytest.mark.parametrize("names", [[], ["a.safetensors", "b.safetensors"], ["a.bin"]])
def test_a_folder_that_leaves_a_doubt_is_refused(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(ValueError, match=f"{tmp_path} should have one file that ends in"):
        found(str(tmp_path))


@pytest.mark.parametrize(
    ("source", "file"),
    [("a/one", "/cache/a/one/ink.safetensors"), ("a/two/y.safetensors", "/cache/a/two/y.safetensors")],
)
def test_hub_ids(source: str, file: str) -> None:
    assert found(source) == file


def test_without_the_hub_the_usual_name_is_taken() -> None:
    assert found("a/none", local_files_only=True) == "/cache/a/none/pytorch_lora_weights.safetensors"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("a/two", "a/two should have one file"),
        ("a/two/y.bin", "does not end in .safetensors"),
        ("ink.safetensors", "no path .* and no hub id"),
        ("/nowhere/ink.safetensors", "there is no file /nowhere/ink.safetensors"),
    ],
)
def test_what_cannot_be_found_is_told(source: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        found(source)
    if source.endswith(".bin"):
        assert found(source, allow_pickle=True) == "/cache/a/two/y.bin"
