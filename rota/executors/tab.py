"""Executes an attempt on a browser tab, as the PinchTab document tells.

POST {url}/tabs/{tabId}/action with `action` as `kind`, `ref` when there is one, and every key of
`params` merged in; `kind` and `tabId` cannot be overridden by params.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from rota.domain.commands import Outcome
from rota.executors.http import HttpExecutor

if TYPE_CHECKING:
    from rota.executors.port import Attempt

NO_TAB = "tabId is required for task execution"


class TabExecutor(HttpExecutor):
    """POSTs attempts to a tab's action endpoint."""

    def refusal(self, attempt: Attempt) -> Outcome | None:
        if not attempt.tab:
            return Outcome(ok=False, code="tab_required", error=NO_TAB)
        if not attempt.tab.strip("."):  # a path of dots would lead elsewhere
            return Outcome(ok=False, code="tab_invalid", error="tabId must not be only dots")
        return None

    def address(self, attempt: Attempt) -> str:
        return f"{self._url}/tabs/{quote(attempt.tab or '', safe='')}/action"

    def body(self, attempt: Attempt) -> dict[str, Any]:
        """Merge params under `kind` and `ref`."""
        body = {key: value for key, value in attempt.params.items() if key != "tabId"}
        body["kind"] = attempt.action
        if attempt.ref is not None:
            body["ref"] = attempt.ref
        return body
