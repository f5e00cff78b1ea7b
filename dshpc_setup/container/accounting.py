"""Slurm's accounting in the controller's container: MariaDB, slurmdbd, and the users' associations.

Nobody has a password: the database listens on a socket, in a folder of Slurm's user alone, and lets in
whom the kernel says is that user. slurmctld begins when slurmdbd answers; where that does not come up, jobs
go on with what slurmctld knows of the last time, and it sends later what it owes.
See docs/decisions/0057-accounting.md.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import time

from dshpc_setup.container import accounts, daemons, network
from dshpc_setup.container.run import Run
from dshpc_setup.errors import DshpcError, Fix
from dshpc_setup.files.storage import cannot_write, read_text, replace_bytes, replace_text
from dshpc_setup.machine import Machine
from dshpc_setup.plan.model import DATABASE_PORT
from dshpc_setup.slurm import associations, slurm_conf
from dshpc_setup.slurm.client import Slurm
from dshpc_setup.slurm.paths import Paths

DATABASE, DAEMON, KEEPER = "mariadb", "slurmdbd", "associations"
_MADE_S = 120.0
_READY_S = 60.0  # after a kill it reads its log first
_LISTENS_S = 60.0  # at the first start it makes its tables
_ENDED_S = 30.0  # the database writes down what it holds in memory
_ASK_S = 10.0
_POLL_S = 0.02
_NEW_BYTES = 200 << 20  # logs and tables of an empty database, and some jobs

# What Slurm asks for: locks that a roll-up of a month holds, and reads that see what was written since.
# MariaDB has the latter otherwise since 11.6.2
_SERVER = """\
[mariadbd]
datadir={folder}/mariadb
tmpdir={folder}/tmp
socket={socket}
pid-file={run}/ready
skip-networking
skip-name-resolve
skip-log-bin
innodb_snapshot_isolation=off
innodb_lock_wait_timeout=900
innodb_buffer_pool_size=256M
innodb_buffer_pool_size_max=256M
innodb_log_file_size=64M
innodb_undo_tablespaces=0
max_allowed_packet=16M
performance_schema=off
silent-startup
"""
# What mariadb-install-db does, less the tables of help texts and of performance: that script wants the
# client's package, which is as large as a third of the server's. The user of that name becomes the
# owner. slurmdbd would make its own database, and end at its next question (error 5027, seen with 24.11.5)
EMPTY = """\
name=$1
shift
{ printf '%s\\n' 'create database mysql;' 'use mysql;' "set @auth_root_socket='$name';"
cat /usr/share/mariadb/mariadb_system_tables.sql /usr/share/mariadb/mariadb_system_tables_data.sql
echo 'create database slurm_acct_db;'
} | mariadbd "$@" --bootstrap
"""
_DAEMON = """\
AuthType=auth/slurm
DbdHost={host}
DbdPort={port}
SlurmUser=slurm
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser={user}
StorageLoc=slurm_acct_db
PidFile=/run/slurmdbd/slurmdbd.pid
CommunicationParameters=NoInAddrAny
Parameters=PreserveCaseUser
"""


def is_on(run: Run) -> bool:
    return run.settings.accounting == "on" and not run.is_worker


def is_as_wanted(run: Run, told: object) -> bool:
    """Whether what the status tells of it, and what runs, is what the setting says: a switch that was killed
    may have left its services up, and slurmctld without them."""
    return is_on(run) == bool(told) == os.path.exists(run.paths.database_conf)


def prepare(run: Run) -> None:
    """Step "database": its folders, its files, and an empty one where there is none; DshpcError."""
    if not is_on(run):
        return
    with run.status.step("database"):
        _make_folders(run)
        if not os.path.isdir(f"{run.paths.database}/mariadb"):
            _make_database(run)


def refuse_hopeless(run: Run, conf: str) -> None:
    """DshpcError where it could not come up beside what runs here, as far as a look can tell."""
    if not is_on(run) or _is_up(run.machine, run.paths, DAEMON):
        return
    port, _ = _address(run, conf)
    if network.listens(port):
        raise _port_taken(port)
    if os.path.isdir(f"{run.paths.database}/mariadb"):
        return
    found = os.statvfs(run.paths.state)
    room = found.f_bavail * found.f_frsize
    if found.f_blocks and room < _NEW_BYTES:
        raise DshpcError(
            f"There is no room for an accounting database: {room >> 20} MiB are left in the state volume.",
            f"An empty one takes {_NEW_BYTES >> 20} MiB.",
            (
                Fix("See what is full", "docker system df; df -h", step="look"),
                "Make room on the disk that the state volume is kept on.",
            ),
        )


def _make_folders(run: Run) -> None:
    paths, slurm = run.paths, run.slurm
    closed = (paths.database, f"{paths.database}/tmp", f"{paths.run}/database")
    for folder, mode in (*((each, 0o700) for each in closed), (paths.at("/run/slurmdbd"), 0o755)):
        try:
            os.makedirs(folder, exist_ok=True)
            os.chown(folder, *slurm)
            os.chmod(folder, mode)
        except OSError as error:
            raise cannot_write(folder, error) from None
    replace_text(f"{paths.run}/database/my.cnf", server_conf(paths), sync=False)
    _adopt(run)


def _adopt(run: Run) -> None:
    """What is there belongs to Slurm's user, whose number may have been another in an old image."""
    for folder, names, files in os.walk(run.paths.database):
        for path in (f"{folder}/{name}" for name in (*names, *files)):
            if os.lstat(path).st_uid != run.slurm[0]:
                os.lchown(path, *run.slurm)


def server_conf(paths: Paths) -> str:
    """MariaDB's file."""
    run = f"{paths.run}/database"
    return _SERVER.format(folder=paths.database, run=run, socket=paths.database_socket)


def _user(run: Run) -> str:
    """Slurm's user by the name that the kernel's number has: where all are root, that is root."""
    return pwd.getpwuid(run.slurm[0]).pw_name


def _make_database(run: Run) -> None:
    """An empty one, in its place when it is whole."""
    import shutil

    new = f"{run.paths.database}/mariadb.new"
    shutil.rmtree(new, ignore_errors=True)
    os.mkdir(new, 0o700)
    os.chown(new, *run.slurm)
    done = run.machine.run(
        [
            *_as_slurm(run),
            *("sh", "-euc", EMPTY, "sh", _user(run)),
            f"--defaults-file={run.paths.run}/database/my.cnf",
            f"--datadir={new}",
            *(["--user=root"] if run.slurm[0] == 0 else []),
        ],
        deadline_s=_MADE_S,
        cwd="/",
    )
    if not done.ok:
        shutil.rmtree(new, ignore_errors=True)
        raise DshpcError(
            "The accounting database could not be made.",
            done.text or f"mariadbd --bootstrap: {done.state}",
            (
                Fix("See whether the disk is full", "docker system df; df -h", step="look"),
                Fix("Then start the cluster again", "dshpc restart", step="after", does="restart"),
            ),
        )
    os.rename(new, f"{run.paths.database}/mariadb")
    run.status.say("An accounting database for this cluster was made.")


def _as_slurm(run: Run) -> list[str]:
    if run.slurm[0] == 0:
        return []
    uid, gid = run.slurm
    return ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--"]


def bring_up(run: Run, conf: str) -> None:
    """Step "accounting": the database and slurmdbd, before slurmctld is started with this slurm.conf; what
    is up already stays so.

    DshpcError where they do not come up and slurmctld has never been registered: it would wait for them
    for ever. Later that is a note, and jobs run.
    """
    if not is_on(run):
        return
    machine, paths = run.machine, run.paths
    with run.status.step("accounting"):
        port, host = _address(run, conf)
        if network.listens(port) and not _is_up(machine, paths, DAEMON):
            raise _port_taken(port)
        _write_daemon(run, host, port)
        up = _bring_up(run, port)
        known = read_text(_registered(paths))
        if not up and known is None:
            end(run)
            raise DshpcError(
                "The accounting database does not come up.",
                "slurmctld would wait for it, as it has never known it. What MariaDB and slurmdbd say stands "
                "in the container's log.",
                (
                    Fix("See", "dshpc logs", step="look"),
                    Fix(
                        "Or continue without accounting, on the host",
                        "configure-environment --accounting off",
                    ),
                ),
            )
        if up:
            _agree_on_number(paths, known)
        else:
            run.status.note(
                "The accounting does not come up: jobs run, and slurmctld keeps the records. "
                "See: dshpc logs"
            )
    run.status.values["accounting"] = {"port": port}


def _address(run: Run, conf: str) -> tuple[int, str]:
    """Port and host at which slurmctld looks for slurmdbd."""
    port = int(slurm_conf.last(conf, "AccountingStoragePort") or DATABASE_PORT)
    return port, slurm_conf.last(conf, "AccountingStorageHost") or run.settings.prefix


def _write_daemon(run: Run, host: str, port: int) -> None:
    folder = f"{run.paths.run}/database"
    text = daemon_conf(host, port, _user(run), by_rest=run.settings.rest != "off")
    if text != read_text(run.paths.database_conf):
        # slurmdbd insists on 0600, though there is no secret in it
        replace_bytes(run.paths.database_conf, text.encode(), 0o600, run.slurm, sync=False)
        _end_daemon(run.machine, run.paths, DAEMON)  # one that runs has read another one
    # Where the keys are: it looks beside the file that SLURM_CONF names
    for name in ("slurm.key", "slurm.jwks"):
        with contextlib.suppress(FileExistsError):
            os.symlink(f"{run.paths.etc_slurm}/{name}", f"{folder}/{name}")


def daemon_conf(host: str, port: int, user: str, *, by_rest: bool = False) -> str:
    """slurmdbd's file; `user` is Slurm's by the name that its number has. `by_rest`: clients of slurmrestd
    come with tokens of theirs."""
    more = (
        f"AuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key={Paths().rest_key}\n" if by_rest else ""
    )
    return _DAEMON.format(host=host, port=port, user=user) + more


def _is_up(machine: Machine, paths: Paths, service: str) -> bool:
    asked = machine.run(["s6-svstat", "-o", "up", f"{paths.services}/{service}"], deadline_s=_ASK_S)
    return asked.ok and asked.stdout.strip() == "true"


def _end_daemon(machine: Machine, paths: Paths, service: str) -> None:
    """And wait for its end, so that what is started next finds the place free."""
    daemons.take_down(machine, paths, service)
    argv = ["s6-svwait", "-D", "-t", f"{_ENDED_S * 1000:.0f}", f"{paths.services}/{service}"]
    machine.run(argv, deadline_s=_ENDED_S + _ASK_S)


def end(run: Run) -> None:
    """Nothing of it runs any more, and slurmctld is to know none; what was counted stays."""
    if not os.path.exists(run.paths.database_conf):
        return
    for service in (KEEPER, DAEMON, DATABASE):
        _end_daemon(run.machine, run.paths, service)
    os.unlink(run.paths.database_conf)
    run.status.values["accounting"] = None


def _bring_up(run: Run, port: int) -> bool:
    machine, paths = run.machine, run.paths
    ready = f"{paths.run}/database/ready"  # it listens some time before it has read its tables
    if not _is_up(machine, paths, DATABASE):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(ready)
    daemons.order_up(machine, paths, DATABASE)
    until = time.monotonic() + _READY_S
    while not os.path.exists(ready):
        if daemons.has_ended(paths, DATABASE) or time.monotonic() >= until:
            return False
        time.sleep(_POLL_S)
    daemons.order_up(machine, paths, DAEMON)
    return network.wait_listening(port, _LISTENS_S, lambda: daemons.has_ended(paths, DATABASE))


def _registered(paths: Paths) -> str:
    """Beside the database: the name and number by which slurmctld was registered in it."""
    return f"{paths.database}/registered"


def _agree_on_number(paths: Paths, known: str | None) -> None:
    """slurmdbd gives each cluster a number, and slurmctld ends where it has another one of its own, made
    before there was accounting ("CLUSTER ID MISMATCH", 24.11.5). Without one it takes slurmdbd's."""
    path = f"{paths.state}/slurmctld/clustername"
    own = read_text(path)
    if own is not None and own != known and "|" in own:
        owner = os.stat(path)
        name = own.partition("|")[0].encode()
        replace_bytes(path, name, 0o600, (owner.st_uid, owner.st_gid))


def registered(run: Run) -> None:
    """After slurmctld is up: what is known of it from now on, and the users who have no association yet."""
    if not is_on(run) or run.status.values["accounting"] is None:
        return
    own = read_text(f"{run.paths.state}/slurmctld/clustername")
    if own is not None and "|" in own and own != read_text(_registered(run.paths)):
        replace_text(_registered(run.paths), own)
    associate(run.machine, run.paths, run.settings.prefix)
    # Of what ended while accounting was off, or was owed by a slurmctld that was killed
    associations.close_lost(Slurm(run.machine), run.settings.prefix, deadline_s=_ASK_S)
    daemons.order_up(run.machine, run.paths, KEEPER)


def associate(machine: Machine, paths: Paths, cluster: str) -> bool:
    """All users that are known get an association where they have none; False where that was not possible."""
    began = time.time()
    names = associations.nameable(_logins(paths))
    slurm = Slurm(machine)
    found = associations.members(slurm, cluster, deadline_s=_ASK_S).value
    if found is None:
        return False
    accounts_there, users_there = found
    missing = [name for name in names if name not in users_there]
    has_account = not missing or associations.ACCOUNT in accounts_there
    if not has_account and not associations.add_account(slurm, cluster, deadline_s=_ASK_S).ok:
        return False
    if missing and not associations.add_users(slurm, cluster, missing, deadline_s=_ASK_S).ok:
        return False
    mark = f"{paths.run}/database/associated"
    replace_text(mark, "", sync=False)
    os.utime(mark, (began, began))
    return True


def _logins(paths: Paths) -> list[str]:
    """By the names that they have in the container."""
    found = []
    for user in accounts.from_text(read_text(f"{paths.state}/users") or ""):
        with contextlib.suppress(KeyError):
            found.append(pwd.getpwuid(user.uid).pw_name)
    return [name for name in dict.fromkeys(found) if name != "root"]


def renew_key(machine: Machine, paths: Paths) -> None:
    """slurmdbd reads the key as it starts: it is started again where it runs, before others sign with it."""
    text = read_text(paths.database_conf)
    if text is None or not _is_up(machine, paths, DAEMON):
        return
    port = int(slurm_conf.last(text, "DbdPort") or DATABASE_PORT)
    daemons.restart(machine, paths, DAEMON, port)


def _port_taken(port: int) -> DshpcError:
    return DshpcError(
        f"Another program listens on port {port} already, which slurmdbd needs.",
        "The container shares its network with the host or with another cluster.",
        (
            Fix(
                "Choose other ports, on the host",
                "configure-environment --slurm-ports 6817,6818,6829",
            ),
            "With the built-in engine, have other ports chosen: configure-environment",
        ),
    )
