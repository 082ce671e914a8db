"""Private and fragile parts of Ray. Read in version 2.60; each has a test in tests/engine/test_library_internals.py."""

from typing import Any

OWN = {  # settings of a local cluster; read when Ray is imported
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # 127.0.0.1 alone: else it listens at the address that others reach
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_prestart_worker_first_driver": "0",  # one process per core, not needed
    "RAY_AUTH_MODE": "token",  # no other user of this computer gets in; the token is the run's own, not one at home
}


def start(ray: Any, folder: str, **options: Any) -> None:
    """Starts a cluster of this computer's own with its sockets and logs in `folder`; no public option says where."""
    if ray._private.ray_constants.ENABLE_RAY_CLUSTER:
        raise RuntimeError("it was imported before, with other settings; start this in a new process")
    ray.init("local", include_dashboard=False, _temp_dir=folder, **options)
