"""Who keeps commands: a program beside the server (keeper, ward), and the server's side of it."""
