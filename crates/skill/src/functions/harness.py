"""Calls one function of a skill's Python file: python3 -c <this text> FILE FUNCTION ARGUMENTS

ARGUMENTS is a JSON object. What the function returns goes to standard output, text as text and the rest as JSON, with
exit code 0; the text of an error goes there with exit code 1. What the file prints is kept apart, on standard error.
The file is imported from the skill's folder; then the function starts in the working directory, so that files which
it writes by a relative path are delivered. KNACK_CONFIG has the values of the function's configuration, as JSON.
Python 3.9 and later, nothing but the standard library.
"""

import asyncio
import base64
import collections.abc
import contextvars
import dataclasses
import datetime
import decimal
import enum
import importlib.util
import inspect
import json
import os
import pathlib
import reprlib
import sys
import traceback
import types
import typing
import uuid

# Longest name of an artifact's file, in characters: with four bytes each it is below the 255 of a file system.
NAME_MAX = 50
# Ends of the names of an artifact's file, by language and then by type; everything else is text.
ENDS = {
    "bash": ".sh", "c": ".c", "cpp": ".cpp", "css": ".css", "csv": ".csv", "go": ".go", "html": ".html",
    "java": ".java", "javascript": ".js", "json": ".json", "jsx": ".jsx", "markdown": ".md", "mermaid": ".mmd",
    "python": ".py", "react": ".jsx", "ruby": ".rb", "rust": ".rs", "shell": ".sh", "sql": ".sql", "svg": ".svg",
    "tsx": ".tsx", "typescript": ".ts", "xml": ".xml", "yaml": ".yaml",
}
# What an artifact is called, and the member that names it.
NEW, UPDATE = ("Artifact", "title"), ("Updated artifact", "id")
# Types that are written as their text.
AS_TEXT = (decimal.Decimal, uuid.UUID, pathlib.PurePath)


class Failure(Exception):
    """An error whose text is complete."""


def main():
    result = keep_standard_output()
    path, name, arguments = sys.argv[1:4]
    try:
        text, code = call(path, name, json.loads(arguments), context()), 0
    except BaseException as error:
        tell(error)
        text, code = message(error), 1
    sys.stdout.flush()
    with open(result, "wb") as file:
        file.write(text.encode("utf-8", "backslashreplace") + b"\n")
    sys.exit(code)


def keep_standard_output():
    """Standard output for the result alone; what is printed from now on, by child processes too, is standard error."""
    result = os.dup(1)
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)
    return result


class SkillContext:
    """What a function may take besides a model's arguments: the values of its configuration, alone and by the tool's name, and
    where progress and artifacts go. What else Tukuy's context has is absent here, which functions ask before they use it."""

    sandbox = bot_id = chat_id = bot_models = None

    def __init__(self, configs):
        self.config = next(iter(configs.values()), {})
        self.tool_configs = configs

    async def on_tool_output(self, call, text):
        """Progress is what a function prints: its output is read when it has ended."""
        print(text, flush=True)

    async def on_artifact(self, value):
        """Delivered as a file, as an artifact that the function returns."""
        members = json.loads(as_json(value))
        if not isinstance(members, dict):
            raise TypeError("an artifact is a dict with type, title and content")
        is_update = members.get("__artifact_update__")
        print(artifact(members, *(UPDATE if is_update else NEW)), flush=True)


def context():
    """The values of the configuration; nothing of them stays in the environment, which child processes would get."""
    text = os.environ.pop("KNACK_CONFIG", None)
    if text is None:
        return SkillContext({})
    told = json.loads(text)
    values = told["values"]
    for name, secret in told["secrets"].items():
        value = os.environ.pop(secret["variable"], None)
        if value is None:
            raise Failure(f"the configuration {name} has no value")
        values[name] = fitting(secret["param"], value)
    return SkillContext({told["tool"]: values})


def fitting(param, text):
    """The value that a text means for a parameter. The texts of errors do not show it: it is a secret."""
    kind, options = param["type"], param.get("options")
    if kind in ("number", "boolean", "multiselect", "string[]", "number[]", "list", "map"):
        try:
            value = json.loads(text, parse_constant=lambda word: word)
        except ValueError:
            value = text
    else:
        value = text
    items = value if isinstance(value, list) else [value]
    shapes = {"number": (int, float), "boolean": bool, "map": dict}
    shape = shapes.get(kind, list if kind in ("multiselect", "string[]", "number[]", "list") else str)
    fits = isinstance(value, shape) and (kind != "number" or type(value) is not bool)
    if kind in ("multiselect", "string[]"):
        fits = fits and all(isinstance(one, str) for one in items)
    if kind in ("number", "number[]"):
        low, high = param.get("min"), param.get("max")
        fits = fits and all(type(one) in (int, float) and (low is None or one >= low) and (high is None or one <= high)
                            for one in items)
    if kind in ("select", "multiselect"):
        fits = fits and all(one in (options or ()) for one in items)
    if kind == "map":
        fits = fits and all(isinstance(one, str) for one in value.values())
    if kind in ("multiselect", "string[]", "number[]", "list", "map"):
        low, high = param.get("minItems"), param.get("maxItems")
        fits = fits and (low is None or len(value) >= low) and (high is None or len(value) <= high)
    if not fits:
        raise Failure(f"the value of the configuration {param['name']} does not fit its declaration")
    return value


def call(path, name, arguments, given):
    module = imported(path)
    function = inner(getattr(module, name, None))
    if not callable(function):
        raise Failure(f"{path} has no function {name}")
    positional, named = bound(function, arguments, given)
    value = function(*positional, **named)
    if inspect.isawaitable(value):
        value = asyncio.run(finished(value))
    return shown(value)


async def finished(value):
    return await value


def imported(path):
    full = os.path.abspath(path)
    folder, file = os.path.split(full)
    # As for a script: its own folder, not the current one.
    sys.path[:1] = [folder] if sys.path[:1] == [""] else [folder, *sys.path[:1]]
    sys.argv = [full]
    stand_in_for_decorators()
    stand_in_for_the_bridge()
    os.chdir(os.environ.get("KNACK_WORK_DIR", "."))
    stem = file[:-len(".py")]
    # A file may have the name of a module that is loaded already.
    name = "skill_" + stem if stem in sys.modules else stem
    spec = importlib.util.spec_from_file_location(name, full)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise Failure(f"{path} cannot be imported: {message(error)}") from error
    return module


class Names(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return name


class Declared(metaclass=Names):
    """Anything but a decorator: it is read from the text of the file, and means nothing when the function runs."""

    def __init__(self, *values, **members):
        self.__dict__.update(members)


def skill(*functions, **keywords):
    """The decorator: the declaration is made without running it, so that the function stays as it is."""
    def keep(function):
        function.__skill__ = Declared(**keywords)
        return function
    return keep(functions[0]) if functions else keep


def stand_in_for_decorators():
    """The modules of `from tukuy.skills import skill`, where that package is not installed."""
    if importlib.util.find_spec("tukuy"):
        return
    for name in ("tukuy", "tukuy.context", "tukuy.skill", "tukuy.skills"):
        module = types.ModuleType(name)
        module.skill = module.tool = skill
        module.__path__ = []
        module.SkillContext = SkillContext
        module.__getattr__ = lambda wanted: getattr(Names, wanted) if wanted.startswith("__") else Declared
        sys.modules[name] = module


def stand_in_for_the_bridge():
    """The module that has the id of the call, which Tukuy's functions ask for before they report progress."""
    if importlib.util.find_spec("prompture"):
        return
    path = "prompture", "integrations", "tukuy_bridge"
    for depth in range(1, len(path) + 1):
        name = ".".join(path[:depth])
        module = sys.modules[name] = types.ModuleType(name)
        module.__path__ = []
    module.current_tool_call_id = contextvars.ContextVar("current_tool_call_id", default="call")


def inner(found):
    """The function in the object that a decorator of a package made."""
    if not inspect.isroutine(found):
        for attribute in ("func", "coroutine", "fn"):
            wrapped = getattr(found, attribute, None)
            if inspect.isroutine(wrapped):
                return wrapped
    return found


def bound(function, arguments, given):
    """The arguments as the function takes them: positional ones, and the others by name. A context is none of the model's."""
    parameters = list(inspect.signature(function).parameters.values())
    hints = types_of(function, parameters)
    takers = [one.name for one in parameters if is_context(hints.get(one.name, one.annotation))]
    fillable = [one for one in parameters
                if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD) and one.name not in takers]
    if len(fillable) == 1 and is_model(hints.get(fillable[0].name)):
        # The schema of the tool is that of the model.
        arguments = {fillable[0].name: arguments}
    named = {name: argument(name, value, hints.get(name)) for name, value in arguments.items() if name not in takers}
    named.update(dict.fromkeys(takers, given))
    positional = []
    for one in parameters:
        if one.kind != one.POSITIONAL_ONLY or (one.name not in named and one.default is one.empty):
            break
        # One that is left out keeps its place.
        positional.append(named.pop(one.name, one.default))
    return positional, named


def argument(name, value, kind):
    """The argument of a parameter. The model that sent a wrong one needs its name; the errors of a model have those of its fields."""
    try:
        return converted(value, kind)
    except (ValueError, ArithmeticError) as error:
        if is_model(kind):
            raise
        wanted = kind.__name__ if isinstance(kind, type) else str(kind).replace("typing.", "")
        # Of a number that cannot be read the text is an internal name.
        reason = "" if isinstance(error, ArithmeticError) else f": {message(error)}"
        raise ValueError(f"{name}: {reprlib.repr(value)} cannot be read as {wanted}{reason}") from None


def types_of(function, parameters):
    """The types of the parameters, as far as they are known at run time."""
    try:
        return typing.get_type_hints(function)
    except Exception:
        # A type that only a checker knows hides no other one.
        known = {}
        for one in parameters:
            try:
                kind = one.annotation
                known[one.name] = eval(kind, function.__globals__) if isinstance(kind, str) else kind
            except Exception:
                continue
        return known


def is_context(kind):
    if isinstance(kind, str):
        return kind.split(".")[-1].split(" ")[0].rstrip("]") == "SkillContext"
    inside = typing.get_args(kind)
    return getattr(kind, "__name__", "") == "SkillContext" or any(is_context(one) for one in inside)


def is_model(kind):
    return isinstance(kind, type) and (hasattr(kind, "model_validate") or hasattr(kind, "parse_obj"))


def converted(value, kind):
    """A JSON value as the type that the function declares, where JSON has no such type."""
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if getattr(origin, "_name", "") in SAID_OF_MEMBERS or hasattr(kind, "__metadata__"):
        return converted(value, inside[0])
    if origin in UNIONS:
        return of_union(value, inside)
    if origin is typing.Literal:
        return of_literal(value, inside)
    if is_model(kind):
        return kind.model_validate(value) if hasattr(kind, "model_validate") else kind.parse_obj(value)
    if isinstance(value, list):
        return of_list(value, origin or kind, inside)
    if isinstance(value, dict):
        return of_object(value, kind, origin, inside)
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if kind is float and type(value) is int:
        return float(value)
    if kind is bytes and isinstance(value, str):
        return base64.b64decode(value, validate=True)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return member(value, kind)
    if isinstance(value, str) and isinstance(kind, type) and kind in FROM_TEXT:
        return FROM_TEXT[kind](value)
    return value


# What a TypedDict says of a member besides its type.
SAID_OF_MEMBERS = ("Required", "NotRequired", "ReadOnly")
# `int | str` has a type of its own from Python 3.10 on.
UNIONS = [typing.Union, getattr(types, "UnionType", typing.Union)]
# What a list becomes; any other type of a list is one.
FROM_LIST = {set: set, frozenset: frozenset, tuple: tuple, collections.abc.Set: set, collections.abc.MutableSet: set}


def of_union(value, kinds):
    """The value as one of several types: as the one that it has already, else as the first that it can be made."""
    if type(value) in kinds:
        return value
    kinds = [kind for kind in kinds if kind is not type(None)]
    if len(kinds) == 1:
        return converted(value, kinds[0])
    refused = None
    for kind in kinds:
        if may_be(value, kind):
            try:
                return converted(value, kind)
            except (ValueError, TypeError, ArithmeticError) as error:
                refused = refused or error
    if refused:
        raise refused
    return value


def may_be(value, kind):
    """Whether the form of a JSON value is that of a type. What is in it shows when it is made."""
    origin = typing.get_origin(kind) or kind
    if origin is typing.Literal:
        return of_literal(value, typing.get_args(kind), None) is not None
    if isinstance(value, list):
        return origin in FROM_LIST or origin in LISTS
    if isinstance(value, dict):
        return is_model(kind) or is_record(kind) or origin in MAPPINGS
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return True
    if isinstance(value, str):
        return kind is bytes or kind in FROM_TEXT
    return kind in (int, float) and type(value) in (int, float) and (kind is float or float(value).is_integer())


LISTS = (list, collections.abc.Sequence, collections.abc.MutableSequence, collections.abc.Iterable, collections.abc.Collection)
MAPPINGS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)


def of_literal(value, choices, other=...):
    """The choice that a value means, or its text."""
    for said in (lambda one: one, lambda one: str(one)):
        for one in choices:
            plain_one = one.value if isinstance(one, enum.Enum) else one
            if said(plain_one) == value and isinstance(value, bool) == isinstance(said(plain_one), bool):
                return one
    return value if other is ... else other


def of_list(values, kind, inside):
    make = FROM_LIST.get(kind, list)
    if issubclass(make, tuple) and inside and inside[-1] is not ...:
        return tuple(converted(one, part) for one, part in zip(values, inside)) + tuple(values[len(inside):])
    return make(converted(one, inside[0]) for one in values) if inside else make(values)


def of_object(value, kind, origin, inside):
    if is_record(kind):
        return record(value, kind)
    if origin in MAPPINGS and len(inside) == 2:
        return {key_of(name, inside[0]): argument(name, one, inside[1]) for name, one in value.items()}
    return value


def key_of(name, kind):
    """A key as its type: in JSON it is a text."""
    if kind in (int, float):
        return kind(name)
    return converted(name, kind)


def is_record(kind):
    """A dataclass, a TypedDict or a NamedTuple."""
    if not isinstance(kind, type):
        return False
    is_typed_dict = issubclass(kind, dict) and hasattr(kind, "__required_keys__")
    return is_typed_dict or dataclasses.is_dataclass(kind) or (issubclass(kind, tuple) and hasattr(kind, "_fields"))


def record(members, kind):
    """The record with these members, each as its own type."""
    try:
        hints = typing.get_type_hints(kind)
    except Exception:
        # A type that only a checker knows.
        hints = {}
    # Of an argument that is no field, the type is that of the class InitVar.
    hints = {name: getattr(hint, "type", hint) if isinstance(hint, dataclasses.InitVar) else hint for name, hint in hints.items()}
    members = {name: argument(name, one, hints.get(name)) for name, one in members.items()}
    try:
        return kind(**members)
    except TypeError as error:
        raise ValueError(message(error)) from None


def moment(text):
    """The time that a text in the form of ISO 8601 means."""
    # Python reads the Z of UTC from 3.11 on.
    return datetime.datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text)


# Types whose schema is that of a text, and what makes them of one.
FROM_TEXT = {
    datetime.datetime: moment, datetime.date: datetime.date.fromisoformat,
    datetime.time: datetime.time.fromisoformat, decimal.Decimal: decimal.Decimal, uuid.UUID: uuid.UUID,
    pathlib.Path: pathlib.Path, pathlib.PurePath: pathlib.PurePath,
}


def member(value, kind):
    """The member of an enumeration that a value means, or its text where the schema asks for one, or a name."""
    for said in (lambda one: one.value, lambda one: str(one.value), lambda one: one.name):
        for one in kind:
            if said(one) == value:
                return one
    if isinstance(value, str) and value in kind.__members__:
        # A second name of a member.
        return kind.__members__[value]
    raise ValueError(f"{value!r} is none of {', '.join(repr(one.value) for one in kind)}")


def shown(value):
    """The text of a result; an artifact is written to a file."""
    text = value if type(value) is str else as_json(value)
    members = None
    if "__artifact" in text:
        try:
            members = json.loads(text)
        except ValueError:
            pass
    if isinstance(members, dict):
        if members.get("__artifact__"):
            return artifact(members, *NEW)
        if members.get("__artifact_update__"):
            return artifact(members, *UPDATE)
    return text


def artifact(members, what, title):
    """Writes the content of an artifact to a file, and tells what it is."""
    named = members.pop(title, None)
    rest = {name: value for name, value in members.items() if not name.startswith("__artifact")}
    content = rest.pop("content", None)
    if content is not None:
        write(named if isinstance(named, str) else "", rest, content)
    text = f"[{what}: {named if isinstance(named, str) else ''}]"
    return text + ("\n" + as_json(rest) if rest else "")


def write(title, members, content):
    kinds = [str(members.get(member, "")).lower() for member in ("language", "type")]
    end = next((ENDS[kind] for kind in kinds if kind in ENDS), ".txt")
    if not isinstance(content, str):
        content, end = as_json(content), ".json"
    legal = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in title)
    stem = legal[:-len(end)] if legal.endswith(end) else legal
    stem = stem.strip("-.")[:NAME_MAX] or "artifact"
    for number in range(1, 1000):
        try:
            with open(f"{stem}{end}" if number == 1 else f"{stem}-{number}{end}", "x", encoding="utf-8") as file:
                file.write(content)
            return
        except FileExistsError:
            # A file of that name that the function wrote stays as it is.
            continue


def as_json(value):
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, default=plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise Failure(f"the result has no form as JSON: {message(error)}") from None


def plain(value):
    """A value that JSON has, for one that it does not have."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if is_model(type(value)):
        return value.dict()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (set, frozenset, range, types.GeneratorType)):
        return list(value)
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, AS_TEXT):
        return str(value)
    if hasattr(value, "tolist"):
        # Arrays and numbers of numpy.
        return value.tolist()
    raise TypeError(f"a value of the type {type(value).__name__} is no text, number, list or dict")


def message(error):
    """The text of an error; its kind too where the text alone says nothing."""
    kind, text = type(error).__name__, str(error)
    if isinstance(error, SystemExit):
        return f"the function ended the program with exit code {error.code or 0}, and returned nothing"
    if not text:
        return kind
    return f"{kind}: {text}" if isinstance(error, (KeyError, StopIteration)) else text


def tell(error):
    """The traceback for the author, from the first call in the file on."""
    if isinstance(error, Failure):
        error = error.__cause__
    if error is None or isinstance(error, SystemExit):
        return
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != sys.argv[0]:
        trace = trace.tb_next
    sys.stdout.flush()
    traceback.print_exception(type(error), error, trace)


main()
