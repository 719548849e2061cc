"""Substitutes for the store and the processes of a job, for tests of a launcher's decisions."""

import dataclasses
import json

from neomx.comm.child import Failure


class Store:
    """The job's store, in memory."""

    address = "10.0.0.1:1"

    def __init__(self):
        self.values, self.gone, self.members = {}, {}, {}

    def get(self, key):
        return self.values.get(key)

    def set(self, key, value):
        self.values[key] = value

    def say(self, key, value):
        self.values[key] = json.dumps(value).encode()

    def mark_gone(self, name, code=None, why=""):
        self.gone[name] = why

    def lose(self, name, why):
        """Make the connection of a member end."""
        self.members[name] = dataclasses.replace(self.members[name], state="gone", why=why)

    def roster(self):
        return self.members

    def orders(self, node):
        found = []
        while (value := self.values.get(f"launch/order/{node}/{len(found)}")) is not None:
            found.append(json.loads(value))
        return found


class Process:
    """A started process, which ends when the test says so."""

    def __init__(self, command):
        self.name, self.environ, self.code, self.lines = command.name, command.environ, None, []

    def failure(self):
        return Failure(self.name, self.code, "here", self.lines)


class Tree:
    """The processes of this node."""

    def __init__(self):
        self.started, self.buried, self.refuses = {}, [], False

    def start(self, command):
        if self.refuses:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        self.started[command.name] = process = Process(command)
        return process

    def bury(self, child):
        self.buried.append(child.name)
