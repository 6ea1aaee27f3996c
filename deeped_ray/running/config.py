"""A run is a file: settings typed by dataclasses, from YAML, flags and --set; unknown keys are refused.

A setting is a field of a dataclass, `rounds: Annotated[int, "rounds of messages"] = 5`. With FLAG beside its help text
it has a flag, for which --help shows the first sentence of that text; all others are keys only. A stage's settings form one section of the file. They may be spread
over several dataclasses: a field whose type is a dataclass is a group, and the keys of a group belong to the section.

    linker:              --set linker.rounds=10
      rounds: 10
"""

import argparse
import contextlib
import dataclasses
import difflib
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml

from deeped_ray.storage.location import Address, Location
from deeped_ray.types import DeepEdError

Config = TypeVar("Config")
Values = Mapping[str, Any]
FLAG, JOB_FLAG = "flag", "flag of its own job"
"""A setting with a flag: everywhere, or in its own job but not in the pipeline."""
REFERENCE = "docs/configuration.md lists all settings."
_EXPECTED = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


class Setting(NamedTuple):
    kind: Any
    """Its type without None."""
    is_optional: bool
    help: str
    default: Any
    flag: str | None
    """FLAG, JOB_FLAG or None."""


def settings_of(config: type[Any]) -> dict[str, Setting]:
    """The keys of a section, those of groups included."""
    found: dict[str, Setting] = {}
    hints = get_type_hints(config, include_extras=True)
    for field in dataclasses.fields(config):
        hint = hints[field.name]
        more = settings_of(hint) if _is_group(hint) else {field.name: _setting(hint, field.default)}
        assert not found.keys() & more.keys(), f"{config.__name__} has a key twice: {found.keys() & more.keys()}"
        found |= more
    return found


def _is_group(hint: Any) -> bool:
    return isinstance(hint, type) and dataclasses.is_dataclass(hint)


def _setting(hint: Any, default: Any) -> Setting:
    kind, help_text, *marks = get_args(hint)
    options = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    plain = next(option for option in options if option is not type(None))
    return Setting(plain, type(None) in options, help_text, default, marks[0] if marks else None)


# -- flags


def flags_of(config: type[Any], *, is_pipeline: bool = False) -> dict[str, Setting]:
    wanted = (FLAG,) if is_pipeline else (FLAG, JOB_FLAG)
    return {name: each for name, each in settings_of(config).items() if each.flag in wanted}


def add_flags(
    parser: argparse.ArgumentParser, config: type[Any], *, is_pipeline: bool = False, without: Iterable[str] = ()
) -> None:
    """The flags of a section, under its docstring; those that are not given leave no trace in the parsed arguments."""
    group = parser.add_argument_group((config.__doc__ or "").strip().splitlines()[0].rstrip("."))
    for name, setting in flags_of(config, is_pipeline=is_pipeline).items():
        if name in without:
            continue
        flag = "--" + name.replace("_", "-")
        default = "" if setting.default in (None, (), False) else f" (default: {setting.default})"
        text = setting.help.partition(". ")[0].rstrip(".") + default
        options: dict[str, Any] = {"help": text.replace("%", "%%"), "default": argparse.SUPPRESS}
        if setting.kind is bool:
            group.add_argument(flag, action="store_true", **options)
        elif get_origin(setting.kind) is tuple:
            group.add_argument(flag, action="append", metavar=_metavar(name), **options)
        elif get_origin(setting.kind) is Literal:
            group.add_argument(flag, choices=get_args(setting.kind), **options)
        else:
            metavar = {int: "N", float: "X"}.get(setting.kind) or _metavar(name)
            group.add_argument(flag, type=setting.kind, metavar=metavar, **options)


def _metavar(name: str) -> str:
    return name.rpartition("_")[2].upper()


def add_set(parser: argparse.ArgumentParser, example: str) -> None:
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help=f"any other setting, repeatable: {example}"
    )


def flags_given(args: argparse.Namespace, config: type[Any], *, is_pipeline: bool = False) -> dict[str, Any]:
    known = flags_of(config, is_pipeline=True) if is_pipeline else settings_of(config)
    return {name: value for name, value in vars(args).items() if name in known}


# -- files


def read_config(file: Address) -> dict[str, Any]:
    """A YAML file as written by hand or by --print-config, or the manifest of a knowledge base."""
    try:
        content = yaml.safe_load(Location(file).read_bytes())
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise DeepEdError(f"Cannot read the config file {file}: {' '.join(str(error).split())}.") from error
    if not isinstance(content, dict):
        raise DeepEdError(f"{file} is not a config file: expected sections with settings. {REFERENCE}")
    if "parts" not in content:
        return content
    records = sorted(content["parts"].values(), key=lambda record: str(record.get("created")))
    return {section: values for record in records for section, values in record.get("settings", {}).items()}


def parse_sets(given: Sequence[str]) -> dict[str, Any]:
    """`["linker.rounds=10"]` as {"linker": {"rounds": 10}}."""
    found: dict[str, Any] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals:
            raise DeepEdError(f"--set {text} has no value. Write --set KEY=VALUE, as in --set linker.rounds=10.")
        section, dot, name = key.strip().partition(".")
        parsed = yaml.safe_load(value)
        if dot:
            found.setdefault(section, {})[name] = parsed
        else:
            found[section] = parsed
    return found


def merge(*layers: Values) -> dict[str, Any]:
    """Later ones win, key by key."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            is_section = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
            merged[key] = {**merged[key], **value} if is_section else value
    return merged


# -- values into dataclasses


def check_keys(values: Values, sections: Mapping[str, type[Any]], *, top: Iterable[str] = ()) -> None:
    """Refuse what nobody would read, and name what was probably meant."""
    keys = {section: settings_of(config) for section, config in sections.items()}
    known = [*top, *sections, *(f"{section}.{name}" for section in keys for name in keys[section])]
    for section, content in values.items():
        if section in sections and not isinstance(content, Mapping):
            raise DeepEdError(
                f"{section} is {content!r}: expected settings, as in {section}.{next(iter(keys[section]))}."
            )
        given = [f"{section}.{name}" for name in content] if isinstance(content, Mapping) else [section]
        for key in given:
            if key not in known:
                raise DeepEdError(f"There is no setting {key}.{_hint(key, known)} {REFERENCE}")


def _hint(key: str, known: Sequence[str]) -> str:
    name = key.rpartition(".")[2]
    elsewhere = [other for other in known if other.rpartition(".")[2] == name]
    near = elsewhere or difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    return f" Did you mean {' or '.join(near)}?" if near else ""


def make(config: type[Config], values: Values, *, section: str = "") -> Config:
    """The dataclass with these values, checked against its types; what it refuses is named with its section."""
    prefix = f"{section}." if section else ""
    hints = get_type_hints(config, include_extras=True)
    arguments: dict[str, Any] = {}
    for field in dataclasses.fields(config):  # type: ignore[arg-type]
        hint = hints[field.name]
        if _is_group(hint):
            arguments[field.name] = make(hint, values, section=section)
        elif field.name in values:
            arguments[field.name] = _checked(_setting(hint, None), values[field.name], prefix + field.name)
    try:
        return config(**arguments)
    except DeepEdError as error:
        raise DeepEdError(
            f"{section}: {error}" if section and not str(error).startswith(section) else str(error)
        ) from None


def _checked(setting: Setting, value: Any, key: str) -> Any:
    kind = setting.kind
    if value is None and setting.is_optional:
        return None
    if get_origin(kind) is tuple:
        items = [value] if isinstance(value, str) else value
        if isinstance(items, list | tuple) and all(isinstance(item, str) for item in items):
            return tuple(items)
        raise DeepEdError(f"{key} is {value!r}: expected a list of texts.")
    if get_origin(kind) is Literal:
        if value in get_args(kind):
            return value
        raise DeepEdError(f"{key} is {value!r}: expected {', '.join(map(str, get_args(kind)))}.")
    if kind is float and type(value) in (int, str):  # YAML takes 1e-4 for text
        with contextlib.suppress(ValueError):
            return float(value)
    if type(value) is not kind:
        raise DeepEdError(f"{key} is {value!r}: expected {_EXPECTED[kind]}.")
    return value


def plain(config: Any) -> dict[str, Any]:
    """A section as a file has it: groups flattened, tuples as lists."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            values |= plain(value)
        else:
            values[field.name] = list(value) if isinstance(value, tuple) else value
    return values
