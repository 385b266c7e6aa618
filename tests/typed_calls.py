"""Calls as a user's program has them: `mypy` accepts the first ones and refuses the second.

mypy checks this file; nothing runs it. A call that it no longer refuses is an unused ignore.
"""

from pathlib import Path

import directmail_lab as dm

dm.findings(["tour", dm.session(), Path("more")])
dm.openapi(Path("tour.har"))
dm.record("tour", record_mode="all")
dm.replay("tour", repeat="strict", timing=0.5)
status: int = dm.post("/v1/letters", json={}, if_sent="keep").status_code
count: int = len(dm.get_many(["/v1/users/me"] * 40))
dm.session().record("tour", match_on=["method"], ignore=["query:ts"], live=True)
first: int = next(dm.pages("/v1/lists", page="page")).status_code

dm.findings(3.5)  # type: ignore[arg-type]
dm.openapi(3.5)  # type: ignore[arg-type]
dm.record("tour", record_mode="sometimes")  # type: ignore[arg-type]
dm.session().record("tour", record_mode="sometimes")  # type: ignore[arg-type]
dm.session().post("/v1/letters", if_sent="never")  # type: ignore[arg-type]
dm.get(5)  # type: ignore[arg-type]
dm.get_many(5)  # type: ignore[arg-type]
dm.connect(cassette="tour")  # type: ignore[call-arg]
dm.post("/v1/letters", if_sent="never")  # type: ignore[arg-type]
dm.replay("tour", repeat="never")  # type: ignore[arg-type]
dm.replay("tour", timing="slowly")  # type: ignore[arg-type]
dm.connect(pace="fast")  # type: ignore[arg-type]
