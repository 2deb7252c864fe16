"""One stream as a state machine, shared by SotW and delta: messages and snapshots in, responses out.

Order
    The types of a stream and what they owe each other: `rules.py`. One type: `subscription.py`.
Newest state
    Responses are computed one at a time, when they can be written. A slow client skips what lies
    between; nothing is queued for it.
Short way
    A change of weights needs none of the rules at a client that has everything else: `plan.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import DecodeError

from fleet.errors import PeerError
from fleet.names import SERVED_TYPES, TYPE_ENDPOINT
from xds_server.discovery.budget import NameBudget
from xds_server.discovery.changes import ABSENT, Changes
from xds_server.discovery.client import Client, client_of
from xds_server.discovery.plan import Plan, Plans, Response, nonce_field, only_endpoints_differ
from xds_server.discovery.rules import Rules
from xds_server.discovery.subscription import Subscription

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from xds_server.discovery.answers import Answer
    from xds_server.snapshot.snapshot import Resource, Snapshot

_NO_PLAN: Final = Plan(0, "", {}, "", None)
"""For streams without endpoints."""
DEFAULT_MAX_NAMES: Final = 20_000


class Variant(ABC):
    """One stream as a state machine: requests and snapshots in, responses out, no I/O.

    `next_nonce` must never repeat. `only_type` is the type of a separate service; None is ADS, with all
    types of `served`.
    Without `lingers` nothing waits for `let_go`. Without `plans` nothing is shared with other streams,
    and every change goes by the rules. `budget` is that of all streams together.
    """

    name: str
    newest_only: bool
    """Whether only the newest response of a type can still be answered."""

    def __init__(
        self,
        next_nonce: Callable[[], str],
        *,
        only_type: str | None = None,
        served: Collection[str] = SERVED_TYPES,
        max_names: int = DEFAULT_MAX_NAMES,
        lingers: bool = False,
        plans: Plans | None = None,
        budget: NameBudget | None = None,
    ) -> None:
        self.client: Client | None = None
        self.subscriptions: dict[str, Subscription] = {}
        self._next_nonce = next_nonce
        self._only_type = only_type
        self._served = served
        self._max_names = max_names
        self._snapshot: Snapshot | None = None
        self._rules = Rules(self.subscriptions, lingers=lingers)
        self._plans = plans
        self._budget = budget or NameBudget()
        self._name_bytes = 0
        self._clean: Snapshot | None = None
        """The snapshot under which nothing is due, held or lingering."""
        self._plan: Plan | None = None
        """Whose response was the last of endpoints; None also when the client has changed its names since."""
        self._plan_number = 0
        self.unserved_requests = 0

    @property
    def clean(self) -> bool:
        """Whether nothing is to be done until the next snapshot or subscription."""
        return self._clean is not None

    def on_request(self, request: Any) -> list[Response]:
        """Take a request; return every response that is due now.

        Raises:
            PeerError: the request breaks the protocol.
        """
        self.receive(request)
        return self._drain()

    def on_snapshot(self, snapshot: Snapshot) -> list[Response]:
        """Take the newest snapshot; return every response that is due now."""
        self._snapshot = snapshot
        return self._drain()

    def hear(self, message: bytes) -> Answer | None:
        """Take a serialised request without computing responses; return the ACK or NACK it carries.

        Raises:
            PeerError: the bytes are no request, or it breaks the protocol.
        """
        plan = self._plan
        if plan is not None and message == plan.ack:
            return self.subscriptions[TYPE_ENDPOINT].answer(plan.nonce, None)
        try:
            request = self.decode(message)
        except DecodeError as error:
            raise PeerError("the message is no discovery request") from error
        answer = self.receive(request)
        if plan is not None and plan is self._plan and self._clean is not None:
            plain = answer is not None and answer.error is None and request.response_nonce == plan.nonce
            # Without its type a message means something else on a stream of another service.
            if plain and request.type_url == TYPE_ENDPOINT:
                plan.learn(message)
        return answer

    def receive(self, request: Any) -> Answer | None:
        """Take a request without computing responses; return the ACK or NACK it carries.

        Raises:
            PeerError: the request breaks the protocol.
        """
        if self.client is None:
            self.client = client_of(request)
        type_url = self._type_of(request)
        if type_url is None:
            return None
        subscription = self.subscriptions.get(type_url)
        if subscription is None:
            subscription = Subscription(type_url, max_names=self._max_names, newest_only=self.newest_only)
            self._begin(subscription, request)
            self.subscriptions[type_url] = subscription
            self._count_names()
            self._clean = None
            return None
        key = subscription.key
        answer = self._continue(subscription, request)
        if subscription.key != key:
            self._count_names()
            self._plan = None
        if self._clean is not None and not subscription.settled(self._clean.version(type_url)):
            self._clean = None
        return answer

    def leave(self) -> None:
        """Give back what the stream's names have taken of the budget: it has ended."""
        self._budget.change(self._name_bytes, 0)
        self._name_bytes = 0

    def _count_names(self) -> None:
        now = sum(held.name_bytes for held in self.subscriptions.values())
        self._budget.change(self._name_bytes, now)
        self._name_bytes = now

    def next_response(self, snapshot: Snapshot | None) -> Response | None:
        """Compute the first response that is due under `snapshot`; None when the client is up to date."""
        self._snapshot = snapshot
        if snapshot is None or snapshot is self._clean:
            return None
        before, self._clean = self._clean, None
        if before is not None and only_endpoints_differ(before, snapshot):
            endpoints = self.subscriptions.get(TYPE_ENDPOINT)
            plan = _NO_PLAN if endpoints is None else self._step(endpoints, before, snapshot)
            if plan is not None:
                self._clean = snapshot
                return plan.response
        response = self._by_the_rules(snapshot)
        if response is None and self._plans is not None and not self.holding() and not self.lingering():
            self._clean = snapshot
        return response

    def _step(self, endpoints: Subscription, before: Snapshot, snapshot: Snapshot) -> Plan | None:
        """Take a clean stream to `snapshot` by a shared plan; None: it needs the rules."""
        assert self._plans is not None
        if endpoints.refused:
            return None  # What this client refused goes alone, and other clients share plans.
        plan = self._plans.step(endpoints, before.version(TYPE_ENDPOINT), snapshot, self._plan_number)
        if plan is None:
            return None
        self._rules.pass_over(plan.given, snapshot)
        endpoints.follow(plan.given, plan.version)
        if plan.response is not None:
            endpoints.sent(plan.nonce, plan.version, plan.given)
            self._plan, self._plan_number = plan, plan.number
        return plan

    def holding(self) -> bool:
        """Whether listeners or routes wait for the client to take up its clusters."""
        return self._snapshot is not None and self._clean is None and self._rules.holding(self._snapshot)

    def release(self) -> None:
        """End the wait of listeners and routes until the next change of clusters."""
        self._clean = None
        self._rules.release()

    def lingering(self) -> bool:
        """Whether nothing but `let_go` keeps clusters or endpoints that are no more."""
        return self._snapshot is not None and self._clean is None and self._rules.lingering(self._snapshot)

    def let_go(self) -> None:
        """Take away what lingers now."""
        self._clean = None
        self._rules.let_go()

    def _by_the_rules(self, snapshot: Snapshot) -> Response | None:
        while (due := self._rules.next_due(snapshot)) is not None:
            response = self._respond(*due, snapshot)
            # Nothing to say means it is recorded now, and what waited for it may go.
            if response is not None:
                return response
        return None

    def _send(
        self,
        subscription: Subscription,
        version: str,
        resources: Sequence[Resource],
        gone: Sequence[str] = (),
        missing: Sequence[str] = (),
    ) -> Response:
        """Note and make a response. Who refuses to hear that a name is `missing` has lost nothing by it."""
        nonce, type_url = self._next_nonce(), subscription.type_url
        carried: dict[str, str] = {}
        if not (self.newest_only and subscription.full_state):
            carried = {resource.name: resource.version for resource in resources}
            carried.update(dict.fromkeys(gone, ABSENT))
        subscription.sent(nonce, version, carried)
        body = self.compose if self._plans is None else self._plans.body
        data = body(type_url, version, resources, (*missing, *gone)) + nonce_field(nonce)
        return Response(type_url, version, data)

    def _drain(self) -> list[Response]:
        responses = []
        while (response := self.next_response(self._snapshot)) is not None:
            responses.append(response)
        return responses

    def _type_of(self, request: Any) -> str | None:
        """Return the type that a request is about; None for one that this ADS does not serve.

        Such a request stays unanswered: an Envoy that also asks for secrets or runtime values here must
        not lose its clusters over it.
        """
        type_url: str = request.type_url or self._only_type or ""
        if type_url in self._served and self._only_type in (None, type_url):
            return type_url
        if self._only_type is None and type_url:
            self.unserved_requests += 1
            return None
        allowed = ", ".join(self._served if self._only_type is None else (self._only_type,))
        raise PeerError(f"type_url {type_url[:200]!r} is not served here, allowed: {allowed}")

    @staticmethod
    @abstractmethod
    def decode(message: bytes) -> Any:
        """Return the request that the bytes are; `DecodeError` if none."""

    @staticmethod
    @abstractmethod
    def compose(type_url: str, version: str, resources: Sequence[Resource], removed: Sequence[str]) -> bytes:
        """Serialise a response without nonce."""

    @abstractmethod
    def _begin(self, subscription: Subscription, request: Any) -> None:
        """Take the first request of a type."""

    @abstractmethod
    def _continue(self, subscription: Subscription, request: Any) -> Answer | None:
        """Take a later request of a type."""

    @abstractmethod
    def _respond(self, subscription: Subscription, changes: Changes, snapshot: Snapshot) -> Response | None:
        """Make the response for `changes` and record it; None if there is nothing to say after all."""
