"""BrowserOS's batches: /tasks/batch/{id}."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.http.dialects.browseros import batch_view

if TYPE_CHECKING:
    from rota.http.call import Call


async def get_one(call: Call) -> Any:
    """GET /tasks/batch/{id}."""
    return call.json(await call.sight.show_batch(call.params["id"], batch_view))


async def cancel(call: Call) -> Any:
    """DELETE /tasks/batch/{id}."""
    batch_id = call.params["id"]
    count = await call.bridge.cancel_batch(batch_id, "", call.by)
    return call.json({"batchId": batch_id, "state": "cancelled", "cancelled": count})
