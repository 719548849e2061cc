"""What the store keeps, and the commands that change it.

With several replicas, each applies the same commands in the same order and gets the same answers. So nothing here
depends on clocks, on the host, or on who asks first.
"""

from __future__ import annotations

import base64
import json
import struct
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from .messages import Invalid
from .protocol import CALLS
from .roll import NO_ROOM, Member, Roll
from .values import HOST, OverQuota, Values

Answer = tuple[dict[str, Any], bytes]
_SIZE = struct.Struct("<I")
_CLIENTS = 1 << 16  # maximum number whose last answers are kept
_ANSWERS = 1 << 10  # maximum number of answers kept for one client


class State:
    """The values, the members, and the answers to requests that may be repeated."""

    def __init__(self) -> None:
        self.values, self.roll = Values(), Roll()
        self.news = 0  # changes that members hear of with their next heartbeat
        self.replicas: dict[str, str] = {}  # the addresses for clients, of those that may keep the store
        self._answers: OrderedDict[str, _Answers] = OrderedDict()  # by the token of the client

    def apply(self, command: dict[str, Any], payload: bytes = b"") -> Answer:
        """Execute a command and return the answer. One that was executed before gets the same answer again."""
        try:
            number = command.get("number")
            if number is None:
                return self._execute(command, payload)
            answers = self._answers_for(command["token"])
            answers.forget(int(command["done"]))
            if (before := answers.find(number)) is None:
                before = answers.keep(number, self._execute(command, payload))
            return before
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            return {"error": "invalid", "why": f"{error!r:.200}"}, b""
        except OverQuota as error:
            return _refused(str(error))

    def _execute(self, command: dict[str, Any], payload: bytes) -> Answer:
        return _COMMANDS[command["do"]](self, command, payload)

    def _answers_for(self, token: str) -> _Answers:
        found = self._answers.setdefault(token, _Answers())
        self._answers.move_to_end(token)
        if len(self._answers) > _CLIENTS:
            self._answers.popitem(last=False)
        return found

    # ---- values ----

    def _may_change(self, key: str, token: Any) -> bool:
        """Whether a client may change a key: it must not belong to another member that is present."""
        owner = self.values.owner(key)
        if owner in (None, token):
            return True
        holder = self.roll.with_token(owner)
        return owner != HOST and (holder is None or holder.state != "here")

    def _set(self, command: dict[str, Any], payload: bytes) -> Answer:
        key, token = command["key"], command["token"]
        if token != HOST and not self._may_change(key, token):
            return ({}, b"") if self.values.get(key) == payload else _belongs(key)
        self.values.put(key, payload, token, limited=token != HOST)
        return {}, b""

    def _add(self, command: dict[str, Any], _: bytes) -> Answer:
        key = command["key"]
        if not self._may_change(key, command["token"]):
            return _belongs(key)
        total = int(self.values.get(key) or b"0") + command["amount"]
        if not -(1 << 63) <= total < 1 << 63:
            raise ValueError("the counter exceeds 64 bits")
        self.values.put(key, str(total).encode(), None)
        self.news += key == CALLS
        return {"total": total}, b""

    def _swap(self, command: dict[str, Any], payload: bytes) -> Answer:
        key, expected = command["key"], command["expected"].encode()
        now = self.values.get(key)
        if now == expected or (now is None and not expected):
            if not self._may_change(key, command["token"]):
                return _belongs(key)
            self.values.put(key, payload, None)
            now = payload
        return {}, expected if now is None else now

    def _delete(self, command: dict[str, Any], _: bytes) -> Answer:
        key = command["key"]
        if not self._may_change(key, command["token"]):
            return _belongs(key)
        return {"was": self.values.pop(key)}, b""

    # ---- members ----

    def _join(self, command: dict[str, Any], _: bytes) -> Answer:
        member = Member(command["name"], command["host"], command["pid"], token=command["token"])
        why = self.roll.join(member)
        return _refused(why) if why else ({}, b"")

    def _leave(self, command: dict[str, Any], _: bytes) -> Answer:
        self.roll.speaker(command["name"], command["token"]).state = "left"
        return {}, b""

    def _gone(self, command: dict[str, Any], _: bytes) -> Answer:
        name, token = command["name"], command["token"]
        me = self.roll.with_token(token)
        mine = me is not None and (name == me.name or name.endswith(f" of {me.name}") or me.name.startswith("node "))
        if token != HOST and not mine:
            raise ValueError(f"only {name} itself or a launcher may report it as gone")
        if not self.roll.has_room_for(name):
            return _refused(NO_ROOM)
        self.roll.mark_gone(name, command["host"], command["why"])
        self.news += 1
        return {}, b""

    def _lose(self, command: dict[str, Any], _: bytes) -> Answer:
        self.news += self.roll.lose(command["name"], command["of"], command["why"])
        return {}, b""

    def _come_back(self, command: dict[str, Any], _: bytes) -> Answer:
        self.roll.come_back(command["name"], command["of"])
        return {}, b""

    # ---- replicas ----

    def _offer(self, command: dict[str, Any], _: bytes) -> Answer:
        self.replicas[command["replica"]] = command["address"]
        return {}, b""

    def _withdraw(self, command: dict[str, Any], _: bytes) -> Answer:
        self.replicas.pop(command["replica"], None)
        return {}, b""

    # ---- copies ----

    def snapshot(self) -> bytes:
        """Return a copy of everything."""
        entries = list(self.values.listed())
        told = {
            "values": [[key, owner, len(value)] for key, owner, value in entries],
            "members": self.roll.listed(),
            "news": self.news,
            "replicas": self.replicas,
            "answers": [[token, answers.listed()] for token, answers in self._answers.items()],
        }
        said = json.dumps(told, separators=(",", ":")).encode()
        return b"".join((_SIZE.pack(len(said)), said, *(value for _, _, value in entries)))

    def restore(self, data: bytes) -> None:
        """Replace everything with a copy. Raises Invalid if it is damaged."""
        try:
            told, payload = unpack(data)
            values, at = Values(), 0
            for key, owner, size in told["values"]:
                values.put(_text(key), payload[at : at + size], owner, limited=False)
                at += size
            if at != len(payload):
                raise ValueError(f"{len(payload)} bytes for values of {at}")
            roll = Roll(told["members"])
            answers = OrderedDict((_text(token), _Answers.of(*kept)) for token, kept in told["answers"])
            replicas = {_text(name): _text(address) for name, address in told["replicas"].items()}
            news = int(told["news"])
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError, RecursionError) as error:
            raise Invalid(f"received a damaged snapshot of the store: {error!r:.200}") from error
        self.values.become(values)  # threads may wait for keys of this object
        self.roll, self.news, self.replicas, self._answers = roll, news, replicas, answers


class _Answers:
    """The answers to a client's requests that it may not have received."""

    def __init__(self) -> None:
        self._done = 0  # it has received the answers to all requests before this one
        self._kept: dict[int, Answer] = {}

    def forget(self, done: int) -> None:
        """Forget the answers to the requests before `done`."""
        if done > self._done:
            self._done = done
            self._kept = {number: answer for number, answer in self._kept.items() if number >= done}

    def find(self, number: int) -> Answer | None:
        """Return the answer to a request, if it was executed."""
        if number < self._done:  # a late copy of a request whose answer has arrived
            return {"error": "invalid", "why": "the request is outdated"}, b""
        return self._kept.get(number)

    def keep(self, number: int, answer: Answer) -> Answer:
        """Keep the answer to a request, and return it."""
        self._kept[number] = answer
        if len(self._kept) > _ANSWERS:
            self.forget(min(self._kept) + 1)
        return answer

    def listed(self) -> list[Any]:
        """Return what is kept, for a copy."""
        kept = [[number, meta, base64.b64encode(data).decode()] for number, (meta, data) in self._kept.items()]
        return [self._done, kept]

    @staticmethod
    def of(done: int, kept: list[Any]) -> _Answers:
        """Return what was `listed`."""
        made = _Answers()
        made._done = int(done)
        made._kept = {int(number): (dict(meta), base64.b64decode(data)) for number, meta, data in kept}
        return made


_COMMANDS: dict[str, Callable[[State, dict[str, Any], bytes], Answer]] = {
    "set": State._set,
    "add": State._add,
    "swap": State._swap,
    "delete": State._delete,
    "join": State._join,
    "leave": State._leave,
    "gone": State._gone,
    "lose": State._lose,
    "come back": State._come_back,
    "offer": State._offer,
    "withdraw": State._withdraw,
}


def pack(command: dict[str, Any], payload: bytes) -> bytes:
    """Return a command as an entry of the log."""
    said = json.dumps(command, separators=(",", ":")).encode()
    return b"".join((_SIZE.pack(len(said)), said, payload))


def unpack(data: bytes) -> tuple[Any, bytes]:
    """Return what was packed. Raises ValueError if it is damaged."""
    if len(data) < _SIZE.size:
        raise ValueError(f"{len(data)} bytes are too few")
    end = _SIZE.size + _SIZE.unpack_from(data)[0]
    if end > len(data):
        raise ValueError(f"{len(data)} bytes, expected {end}")
    return json.loads(data[_SIZE.size : end]), data[end:]


def _refused(why: str) -> Answer:
    return {"error": "refused", "why": why}, b""


def _belongs(key: str) -> Answer:
    return _refused(f"the key {key!r:.80} belongs to another process")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, received {value!r:.40}")
    return value
