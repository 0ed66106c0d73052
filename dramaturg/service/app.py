"""The interface of a service to the code that starts it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from dramaturg.service.contract import Contract


class App(Protocol):
    """A service that can be started, in a process alone or with others.

    By convention a service's ``app.py`` has a class ``App``: without arguments it reads its settings from the
    environment, with ``settings=`` it takes them as given.

    A service whose callers are outside of the platform has the attribute ``public = True``: it requires
    authentication unless it listens on loopback alone. Other services run under the batch policy of Linux
    (sched(7)), which takes less processor time.

    A service that is also served over other protocols has a method ``fronts``, which takes the settings of
    the server and returns the ``Front`` of each.
    """

    @property
    def name(self) -> str:
        """The name under which the service is started, for example "critic"."""

    def open(self) -> AbstractAsyncContextManager[Sequence[Contract]]:
        """Opens the resources of the service, yields its contracts, and closes the resources."""
