"""Strict models on pydantic-core, the half of pydantic that validates.

The other half makes that one's schemas from annotations, whatever these are: its import takes longer than an image's
whole Dockerfile. Manifests and facts are made of few kinds of value, which are read here.
"""

from __future__ import annotations

import copy
import inspect
import sys
import types
import typing
from collections.abc import Callable, Mapping
from functools import cache, reduce
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic_core import SchemaSerializer, SchemaValidator

if TYPE_CHECKING:
    from typing_extensions import Self

_Schema = Any  # what pydantic-core reads: dicts by its own rules
_SCALARS: dict[object, str] = {str: "str", bool: "bool", float: "float"}
_REQUIRED = object()

# The default of a mapping; each model gets one of its own.
EMPTY: Mapping[Any, Any] = types.MappingProxyType({})


class Mark:
    """What an annotation says of a value beside its type; pydantic itself can read it too."""

    def __init__(self, over: Callable[[_Schema], _Schema]) -> None:
        self.over = over

    def __get_pydantic_core_schema__(self, source: object, handler: Callable[[object], _Schema]) -> _Schema:
        return self.over(handler(source))


def after(function: Callable[[Any], object]) -> Mark:
    """What looks at a value when its type is right."""
    call = {"type": "no-info", "function": function}
    return Mark(lambda schema: {"type": "function-after", "function": call, "schema": schema})


def before(function: Callable[[Any], object]) -> Mark:
    """What makes the value from the one that was written."""
    call = {"type": "no-info", "function": function}
    return Mark(lambda schema: {"type": "function-before", "function": call, "schema": schema})


AT_LEAST_ONE = Mark(lambda schema: {**schema, "min_length": 1})


class Field:
    """A key of a model: its type with its marks, and what it is where nobody writes it."""

    __slots__ = ("annotation", "default")

    def __init__(self, annotation: Any, default: object) -> None:  # noqa: ANN401 (a type expression)
        self.annotation = annotation
        self.default = default

    @property
    def is_required(self) -> bool:
        return self.default is _REQUIRED


class Written:
    """What people write: nothing is converted, nothing is ignored, nothing changes later."""

    # All that pydantic-core sets.
    __slots__ = ("__dict__", "__pydantic_extra__", "__pydantic_fields_set__", "__pydantic_private__")
    model_config: ClassVar[Mapping[str, object]] = {"extra": "forbid"}  # for pydantic, which describes it for editors
    model_fields: ClassVar[Mapping[str, Field]] = EMPTY

    def __init_subclass__(cls) -> None:
        names = vars(sys.modules[cls.__module__])
        own = {name: text for name, text in inspect.get_annotations(cls).items() if name[0] != "_"}
        cls.model_fields = dict(cls.model_fields) | {
            name: Field(eval(text, names), cls.__dict__.get(name, _REQUIRED))  # noqa: S307 (the code's own annotations)
            for name, text in own.items()
        }

    def __init__(self, **values: object) -> None:
        _validator(type(self)).validate_python(values, self_instance=self)

    def __setattr__(self, name: str, value: object) -> None:
        if name[0] != "_":
            raise AttributeError(f"{type(self).__name__}.{name} never changes")
        super().__setattr__(name, value)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    __hash__ = None  # type: ignore[assignment]  # most hold mappings

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self.model_fields)})"

    @classmethod
    def model_validate(cls, value: object) -> Self:
        """The model that `value` is.

        Raises:
            pydantic_core.ValidationError
        """
        found: Self = _validator(cls).validate_python(value)
        return found

    def model_dump(
        self,
        *,
        mode: Literal["json", "python"] = "python",
        exclude: set[str] | None = None,
        exclude_defaults: bool = False,
    ) -> dict[str, Any]:
        """All keys with their values; models in it are dicts too."""
        found: dict[str, Any] = _serializer(type(self)).to_python(
            self, mode=mode, exclude=exclude, exclude_defaults=exclude_defaults
        )
        return found

    def model_dump_json(self) -> str:
        return _serializer(type(self)).to_json(self).decode()

    def model_copy(self, *, update: Mapping[str, object] | None = None) -> Self:
        """The same, but for what is updated; nothing is validated."""
        other = copy.copy(self)
        vars(other).update(update or {})
        return other

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> _Schema:
        return _whole(cls)


@cache
def _validator(model: type[Written]) -> SchemaValidator:
    return SchemaValidator(_whole(model))


@cache
def _serializer(model: type[Written]) -> SchemaSerializer:
    return SchemaSerializer(_whole(model))


@cache
def _whole(model: type[Written]) -> _Schema:
    """The schema of a model, with those of the models in it, each once."""
    within: dict[type[Written], _Schema] = {}
    schema = _of_model(model, within)
    return {"type": "definitions", "schema": schema, "definitions": list(within.values())} if within else schema


def _of_model(model: type[Written], within: dict[type[Written], _Schema]) -> _Schema:
    fields = {
        name: {"type": "model-field", "schema": _of_field(field, within)} for name, field in model.model_fields.items()
    }
    return {
        "type": "model",
        "cls": model,
        "ref": f"{model.__module__}.{model.__qualname__}:{id(model)}",
        "config": {"strict": True, "extra_fields_behavior": "forbid", "title": model.__name__},
        "schema": {"type": "model-fields", "fields": fields, "model_name": model.__name__},
    }


def _of_field(field: Field, within: dict[type[Written], _Schema]) -> _Schema:
    schema = _of(field.annotation, within)
    if field.is_required:
        return schema
    default = {"default_factory": dict} if field.default is EMPTY else {"default": field.default}
    return {"type": "default", "schema": schema, **default}


def _of(kind: Any, within: dict[type[Written], _Schema]) -> _Schema:  # noqa: ANN401 (a type expression)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return reduce(lambda schema, mark: mark.over(schema), arguments[1:], _of(arguments[0], within))
    if origin is Literal:
        return {"type": "literal", "expected": list(arguments)}
    if origin is Mapping:
        keys, values = (_of(each, within) for each in arguments)
        return {"type": "dict", "keys_schema": keys, "values_schema": values, "strict": False}
    if origin is tuple:
        return {"type": "tuple", "items_schema": [_of(arguments[0], within)], "variadic_item_index": 0}
    if type(None) in arguments:
        return {"type": "nullable", "schema": _of(arguments[0], within)}
    return {"type": _SCALARS[kind]} if kind in _SCALARS else _of_one_within(kind, within)


def _of_one_within(model: type[Written], within: dict[type[Written], _Schema]) -> _Schema:
    if model not in within:
        within[model] = _of_model(model, within)
    return {"type": "definition-ref", "schema_ref": within[model]["ref"]}
