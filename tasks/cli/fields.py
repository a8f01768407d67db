"""The fields of a request as options of `submit`: one row a field. A test compares it with `GenerationRequest`."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from tasks.cli import complete
from tasks.errors import InvalidRequest


@dataclass(frozen=True)
class FieldOption:
    """`kind` is what typer parses; the option's name is the field's, with dashes, unless `flags` says otherwise."""

    field: str
    kind: Any
    help: str
    metavar: str | None = None
    flags: tuple[str, ...] = ()
    #: What a shell offers for it.
    values: Callable[[str], list[str]] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return self.flags or (f"--{self.field.replace('_', '-')}",)

    @property
    def parameter(self) -> inspect.Parameter:
        option = typer.Option(
            *self.names, help=self.help, metavar=self.metavar, show_default=False, autocompletion=self.values
        )
        default = False if self.kind is bool else None
        kind = bool if self.kind is bool else self.kind | None
        return inspect.Parameter(
            self.field, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, option]
        )


FIELD_OPTIONS = (
    FieldOption(
        "model",
        str,
        "A served model (see `safelight models`); default: the first.",
        "NAME",
        ("--model", "-m"),
        complete.models,
    ),
    FieldOption("negative_prompt", str, "What should not appear.", flags=("--negative-prompt", "-n")),
    FieldOption("height", int, "Pixels."),
    FieldOption("width", int, "Pixels."),
    FieldOption("num_inference_steps", int, "Denoising steps.", flags=("--num-inference-steps", "--steps")),
    FieldOption(
        "guidance_scale", float, "How closely it follows the prompt.", flags=("--guidance-scale", "--guidance")
    ),
    FieldOption("seed", int, "Same seed, same picture; drawn and recorded when absent."),
    FieldOption("num_outputs", int, "1 to 16 pictures; picture k uses seed + k."),
    FieldOption("image", str, "Start from this image: a file, or an s3://, https:// or data: URI.", "IMAGE"),
    FieldOption("mask_image", str, "Repaint the white of this mask; needs --image.", "IMAGE"),
    FieldOption("strength", float, "How far to move from --image, above 0 to 1."),
    FieldOption("num_frames", int, "Video: frames."),
    FieldOption("fps", float, "Video: frames a second."),
    FieldOption("duration_s", float, "Audio or video: seconds."),
    FieldOption(
        "noise_scheduler", str, "One of the model's own (see `safelight models`).", "NAME", values=complete.schedulers
    ),
    FieldOption("loras", list[str], "An adapter and its scale (default 1); repeatable.", "NAME[:SCALE]", ("--lora",)),
    FieldOption(
        "output_format", str, "png, jpeg, webp / mp4, webp, gif / wav, flac.", "FORMAT", values=complete.formats
    ),
    FieldOption("priority", int, "0 to 9, 9 first; default 5."),
    FieldOption("deadline_s", float, "Fail if it has not succeeded by then, in seconds from now."),
    FieldOption("exact", bool, "Never share a batch: the same bits as a run alone."),
    FieldOption("group", str, "A name to list or abort jobs by."),
    FieldOption("supersede", bool, "Abort the older jobs of --group."),
    FieldOption("webhook_url", str, "Told when the job ends.", "URL"),
    FieldOption("preview_every", int, "A preview each so many steps; 0: none."),
    FieldOption("output_prefix", str, "Put before the object keys of the outputs.", "PATH"),
    FieldOption("metadata", str, "A JSON object of yours, returned as it is.", "JSON"),
)


def with_field_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace `**fields` in the signature of a command by one option a field."""
    signature = inspect.signature(command, eval_str=True)
    own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    parameters = [*own, *(option.parameter for option in FIELD_OPTIONS)]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def given_fields(options: Mapping[str, Any], sets: Sequence[str] = ()) -> dict[str, Any]:
    """The fields that the command line named, as a request holds them; `--set` wins. Raises `InvalidRequest`."""
    given = {name: value for name, value in options.items() if not (value is None or value is False or value == [])}
    return sendable(given | set_fields(sets))


def sendable(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Local files, adapters and JSON as a request holds them; the rest as it is. Raises `InvalidRequest`."""
    from tasks.cli.values import FIELD_VALUES

    return {name: FIELD_VALUES[name](value) if name in FIELD_VALUES else value for name, value in fields.items()}


def set_fields(sets: Sequence[str]) -> dict[str, Any]:
    """`FIELD=VALUE` each: text where the field is text, JSON elsewhere. Raises `InvalidRequest`."""
    found = {}
    for text in sets:
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name:
            raise InvalidRequest("set", f"{text!r} is not FIELD=VALUE, as in --set seed=7")
        found[name] = value if name in _TEXTS else _json_or_text(value)
    return found


#: Fields that are text, whatever the text looks like.
_TEXTS = frozenset({"prompt", *(option.field for option in FIELD_OPTIONS if option.kind is str)})


def _json_or_text(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value
