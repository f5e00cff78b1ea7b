"""Where things lie in the container; `root` is "" there and a folder of their own in tests."""

from __future__ import annotations

from dataclasses import dataclass

# Not /home: a work folder that lies there is mounted below it, and root would follow a path through a
# folder that a user can rename things in
HOMES = "/var/lib/dshpc/home"
LEFT_OUT = (
    "DSHPC_SIMULATE_WITHOUT"  # device files of the profile that the host keeps back, by commas
)
REST_LISTEN = (
    "DSHPC_REST_LISTEN"  # where slurmrestd listens in a container, if not where the setting says
)
SHARED_NETWORK = "DSHPC_SHARED_NETWORK"  # set where the nodes have the machine's network
LIVE = "/config/live.json"  # settings that may change while the container runs: variable -> text
TRIED = "DSHPC_LIVE"  # the same text, of settings that are tried only
HOME_ROOTS = "DSHPC_HOMES"  # folders above users' own homes, which are seen here, by ':'
ASK = "ask.conf"  # beside slurm.conf
FROM_HOST = "DSHPC_FROM_HOST=1"  # in the environment of what the host's dshpc asks of dshpc-node


# Users and groups as the controller has them, which workers link to
ACCOUNTS = "/var/lib/dshpc/state/accounts"


@dataclass(frozen=True)
class Paths:
    root: str = ""
    worker: str = ""  # its node; "" in the controller's container

    def at(self, path: str) -> str:
        return self.root + path

    @property
    def run(self) -> str:
        """Gone with every start."""
        return self.at("/run/dshpc")

    @property
    def state(self) -> str:
        """The state volume, one for all nodes: jobs, users."""
        return self.at("/var/lib/dshpc/state")

    @property
    def own(self) -> str:
        """What is this node's alone in it: last facts, last good configuration."""
        return f"{self.state}/nodes/{self.worker}" if self.worker else self.state

    @property
    def key(self) -> str:
        """The key of auth/slurm, in a volume of its own."""
        return self.at("/var/lib/dshpc/key/slurm.key")

    @property
    def rest_key(self) -> str:
        """The key that signs the tokens of slurmrestd's clients, where the setting `rest` wants them."""
        return self.at("/var/lib/dshpc/key/jwt_hs256.key")

    @property
    def rest_listen(self) -> str:
        """Where slurmrestd listens beside its socket, one line; there where it is to run at all."""
        return f"{self.run}/rest.listen"

    @property
    def rest_socket(self) -> str:
        return self.at("/run/dshpc/rest/slurmrestd.socket")

    @property
    def database(self) -> str:
        """Of the accounting, in the state volume: MariaDB's folder, and what is known of it."""
        return f"{self.state}/database"

    @property
    def database_conf(self) -> str:
        """slurmdbd's own file: there where it is to run at all."""
        return f"{self.run}/database/slurmdbd.conf"

    @property
    def database_socket(self) -> str:
        """Where slurmdbd's service has it looked for: Debian's own place for it differs by release."""
        return f"{self.run}/database/mysqld.sock"

    @property
    def homes(self) -> str:
        """The users' homes, in a volume of their own: a folder for each, and root's."""
        return self.at(HOMES)

    @property
    def config(self) -> str:
        """The project folder's `config/`, mounted read-only."""
        return self.at("/config")

    @property
    def etc_slurm(self) -> str:
        return self.at("/etc/slurm")

    @property
    def ask(self) -> str:
        """The slurm.conf for a Slurm program that is only asked something: see container/trial.py."""
        return f"{self.etc_slurm}/{ASK}"

    @property
    def gpu_type(self) -> str:
        """What GPU_TYPE the image was built for."""
        return self.at("/etc/dshpc/gpu-type")

    @property
    def status(self) -> str:
        return f"{self.run}/status.json"

    @property
    def services(self) -> str:
        return f"{self.run}/services"
