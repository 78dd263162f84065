"""Where in the history a reader wants to go on."""

from __future__ import annotations

from rota.errors import InvalidRequest


def check_after(after: int, head: int) -> None:
    """Refuse a seq that the log has not come to. Raises InvalidRequest.

    Nobody can have read that far: the reader knows another log, or this one before it was restored
    from a copy. Waiting would be silence until the log has caught up, and then a gap.
    """
    if after > head:
        msg = f"the log ends at seq {head}, before {after}"
        hint = "these are another log's numbers, or this one was restored: begin anew"
        details = {"after": after, "head": head}
        raise InvalidRequest(msg, code="seq_beyond_head", details=details, hint=hint)
