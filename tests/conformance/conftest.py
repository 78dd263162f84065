"""What every document's tests need."""

from support.http_fixtures import hooks, serve, tab

__all__ = ["hooks", "serve", "tab"]
