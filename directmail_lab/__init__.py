"""Explore a direct mail service's HTTP API in JupyterLab, with recorded sessions.

>>> import directmail_lab as dm
>>> dm.replay("first-look")  # doctest: +SKIP
>>> dm.me()  # doctest: +SKIP
"""

import lazy_loader

__version__ = "0.1.0"

# `__init__.pyi` lists the public names and the modules they come from; a module is imported when
# one of its names is first used.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
