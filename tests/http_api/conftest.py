"""What the tests of the native API need."""

from support.http_fixtures import hooks, serve, tab

__all__ = ["hooks", "serve", "tab"]
