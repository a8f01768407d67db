"""A models file is read whole or refused with file, table and entry."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.errors import ConfigError
from tasks.models import BUNDLED, Models, load_models


def load(tmp_path: Path, text: str) -> Models:
    path = tmp_path / "models.toml"
    path.write_text(text, "utf-8")
    return load_models(path)


def test_without_a_file_the_bundled_model_is_served() -> None:
    models = load_models(None)
    assert (models.names, models.default, models.get("tiny"), models.get("x")) == (("tiny",), BUNDLED, BUNDLED, None)


def test_the_first_table_is_the_default(tmp_path: Path) -> None:
    text = """
        [zebra]
        source = "x/zebra"
        max_batch_rows = 16
        defaults = { height = 1024, width = 768, guidance_scale = 3.5 }
        limits = { size_multiple = 16 }
        loras = { ink = "x/ink" }
        [ant]
        source = "x/ant"
        modality = "video"
    """
    models = load(tmp_path, text)
    assert models.names == ("zebra", "ant")
    assert models.default.defaults.width == 768
    assert [spec.name for spec in models] == ["zebra", "ant"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["has no model"]),
        ("[m]", ["[m.source]", "required"]),
        ("m = 1", ["m", "table"]),
        ("[m]\nsource = 'x'\nname = 'y'", ["[m.name]"]),
        ("[m]\nsource = 'x'\nmax_batch_row = 4", ["[m.max_batch_row]"]),
        ("[m]\nsource = 'x'\nmax_batch_rows = 0", ["[m.max_batch_rows]"]),
        ("[m]\nsource = 'x'\nmodality = 'text'", ["[m.modality]"]),
        ("['a b']\nsource = 'x'", ["[a b.name]"]),
        ("[m]\nsource = 'x'\nlimits.max_steps = 0", ["[m.limits.max_steps]"]),
        ("[m]\nsource = 'x'\ndefaults.num_inference_steps = 0", ["[m.defaults.num_inference_steps]"]),
        ("[m]\nsource = 'x'\ndefaults.num_inference_steps = 200", ["[m]", "max_steps"]),
        ("[m]\nsource = 'x'\ndefaults.height = 500", ["[m]", "defaults.height"]),
        ("[m]\nsource = 'x'\nsizes = [[512, 500]]", ["[m]", "sizes", "500"]),
        ("[m]\nsource = 'x'\nsizes = [[512, 4096]]", ["[m]", "sizes", "4096"]),
        ("[m]\nsource = 'x'\nsizes = [[512]]", ["[m.sizes.0"]),
        ("[m]\nsource = 'x'\ndefaults.output_format = 'mp4'", ["[m]", "output_format"]),
        ("[m]\nsource = 'x'\nlimits.max_pixels = 1000", ["[m]", "max_pixels"]),
        ("[m]\nsource = 'x'\nmodality = 'video'\ndefaults.num_frames = 999", ["[m]", "max_frames"]),
        ("[m", ["not TOML"]),
    ],
)
def test_a_wrong_entry_is_named(tmp_path: Path, text: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    message = str(caught.value)
    assert "models.toml" in message
    assert "Value error" not in message
    assert all(word in message for word in words), message


def test_a_missing_or_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"SAFELIGHT_MODELS: cannot read .*nowhere\.toml"):
        load_models(tmp_path / "nowhere.toml")
    with pytest.raises(ConfigError, match="SAFELIGHT_MODELS: cannot read"):
        load_models(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b"# \xe9")
    with pytest.raises(ConfigError, match="not TOML"):
        load_models(tmp_path / "latin.toml")
