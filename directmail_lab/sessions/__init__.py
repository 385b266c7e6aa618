"""A session sends requests: its calls, its modes, its httpx clients and what a request passes."""
