"""Local servers: one replays a recording for any client, one is the stand-in service."""
