"""The seccomp profiles of a container in the isolation tier `enforced`, and of one whose jobs run in images
(`containers: on`), as the engine reads them. Pure.

An engine's own profile opens all that SYS_ADMIN may do as soon as a container has that capability, and to
every process of it: `unshare -Ur` then gives a job of a user all capabilities in a namespace. This one is
a list of what programs need, as the engine's for a container without SYS_ADMIN, and beside it two calls
by their arguments: the remount of what is mounted already, and the two orders of bpf(2) with which Slurm
writes device rules in version 2 of control groups.

What Slurm's node daemon and with it every job may call of this once the start is over is less still: see
container/confined.py.

The profile for images opens, to every process, a namespace of users with one of mounts, and what is
mounted in
it: see oci/entering.py. No other kind of namespace, and so nothing of networks, control groups or /proc.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

_CLONE_NEW = 0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_OF_IMAGES = 0x10000000 | 0x20000  # CLONE_NEWUSER, CLONE_NEWNS
_REMOUNT_BIND = 0x20 | 0x1000  # MS_REMOUNT, MS_BIND
_PROG_LOAD, _PROG_ATTACH = 5, 8  # linux/bpf.h
_VSOCK = 40  # AF_VSOCK: reaches the host of a virtual machine
_PERSONALITIES = (
    0x0,
    0x8,
    0x20000,
    0x20008,
    0xFFFFFFFF,
)  # Linux, PER_LINUX32, UNAME26, the question
_NO_RANDOMIZE = 0x40000  # a debugger starts a program so
_EPERM, _ENOSYS = 1, 38

_FILES = """
access chdir chmod chown chown32 close close_range copy_file_range creat dup dup2 dup3 faccessat faccessat2
fadvise64 fadvise64_64 fallocate fchdir fchmod fchmodat fchmodat2 fchown fchown32 fchownat fcntl fcntl64
fdatasync fgetxattr flistxattr flock fremovexattr fsetxattr fstat fstat64 fstatat64 fstatfs fstatfs64 fsync
ftruncate ftruncate64 futimesat getcwd getdents getdents64 getxattr getxattrat lchown lchown32 lgetxattr link
linkat listxattr listxattrat llistxattr _llseek lremovexattr lseek lsetxattr lstat lstat64 mkdir mkdirat mknod
mknodat name_to_handle_at newfstatat open openat openat2 pread64 preadv preadv2 pwrite64 pwritev pwritev2 read
readahead readlink readlinkat readv removexattr removexattrat rename renameat renameat2 rmdir sendfile
sendfile64 setxattr setxattrat splice stat stat64 statfs statfs64 statx symlink symlinkat sync sync_file_range
sync_file_range2 syncfs tee truncate truncate64 umask unlink unlinkat utime utimensat utimensat_time64 utimes
vmsplice write writev
"""
_WAITING = """
_newselect epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait
epoll_wait_old eventfd eventfd2 fanotify_mark inotify_add_watch inotify_init inotify_init1 inotify_rm_watch
io_cancel io_destroy io_getevents io_pgetevents io_pgetevents_time64 io_setup io_submit pipe pipe2 poll ppoll
ppoll_time64 pselect6 pselect6_time64 select signalfd signalfd4
"""
_MEMORY = """
brk madvise map_shadow_stack membarrier memfd_create memfd_secret mincore mlock mlock2 mlockall mmap mmap2
mprotect mremap mseal msync munlock munlockall munmap pkey_alloc pkey_free pkey_mprotect process_mrelease
remap_file_pages
"""
_MESSAGES = """
accept accept4 bind connect getpeername getsockname getsockopt ipc listen mq_getsetattr mq_notify mq_open
mq_timedreceive mq_timedreceive_time64 mq_timedsend mq_timedsend_time64 mq_unlink msgctl msgget msgrcv msgsnd
recv recvfrom recvmmsg recvmmsg_time64 recvmsg semctl semget semop semtimedop semtimedop_time64 send sendmmsg
sendmsg sendto setsockopt shmat shmctl shmdt shmget shutdown socketcall socketpair
"""
_PROCESSES = """
arch_prctl capget capset execve execveat exit exit_group fork get_robust_list get_thread_area getcpu getegid
getegid32 geteuid geteuid32 getgid getgid32 getgroups getgroups32 getpgid getpgrp getpid getppid getpriority
getresgid getresgid32 getresuid getresuid32 getrlimit getrusage getsid gettid getuid getuid32 ioctl ioprio_get
ioprio_set kill landlock_add_rule landlock_create_ruleset landlock_restrict_self modify_ldt pause pidfd_open
pidfd_send_signal prctl prlimit64 process_vm_readv process_vm_writev ptrace restart_syscall riscv_flush_icache
rseq rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait
rt_sigtimedwait_time64 rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min sched_getaffinity
sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval sched_rr_get_interval_time64
sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield seccomp set_robust_list
set_thread_area set_tid_address setfsgid setfsgid32 setfsuid setfsuid32 setgid setgid32 setgroups setgroups32
setpgid setpriority setregid setregid32 setresgid setresgid32 setresuid setresuid32 setreuid setreuid32
setrlimit setsid setuid setuid32 sigaltstack sigprocmask sigreturn swapcontext sysinfo tgkill tkill ugetrlimit
uname vfork wait4 waitid waitpid
"""
_TIME = """
adjtimex alarm clock_adjtime clock_adjtime64 clock_getres clock_getres_time64 clock_gettime clock_gettime64
clock_nanosleep clock_nanosleep_time64 futex futex_requeue futex_time64 futex_wait futex_waitv futex_wake
getitimer getrandom gettimeofday nanosleep setitimer time timer_create timer_delete timer_getoverrun
timer_gettime timer_gettime64 timer_settime timer_settime64 timerfd_create timerfd_gettime timerfd_gettime64
timerfd_settime timerfd_settime64 times
"""
_ARM = "arm_fadvise64_64 arm_sync_file_range breakpoint cacheflush set_tls"
_ALLOWED = (_FILES, _WAITING, _MEMORY, _MESSAGES, _PROCESSES, _TIME, _ARM)

# What the C library and `mount` try first, and go on without where the kernel is too old for it: a
# refusal would be taken for the kernel's last word. The flags of clone3 lie in memory, where no filter
# looks.
_TOO_NEW = "clone3 fsconfig fsmount fsopen fspick mount_setattr move_mount open_tree open_tree_attr"

_ARCHITECTURES = (
    ("X86_64", ("X86", "X32")),
    ("AARCH64", ("ARM",)),
    ("PPC64LE", ()),
    ("RISCV64", ()),
)


def profile(cgroup_version: int | None, *, profiling: bool = False) -> str:
    """The text of the profile; `cgroup_version` None: not known, `profiling`: for AMD's tools."""
    rules = [_allow(["mount"], (3, _REMOUNT_BIND, "MASKED_EQ", _REMOUNT_BIND))]
    if cgroup_version != 1:
        rules += (_allow(["bpf"], (0, order, "EQ")) for order in (_PROG_LOAD, _PROG_ATTACH))
    return _text(rules, profiling=profiling)


def for_images(*, profiling: bool = False) -> str:
    """The text of the profile for jobs in images; `profiling`: for AMD's tools."""
    others = 0xFFFFFFFF & ~_OF_IMAGES
    rules = [
        _allow(["unshare"], (0, others, "MASKED_EQ", 0)),
        _allow(["chroot", "mount", "pivot_root", "umount2"]),
    ]
    return _text(rules, profiling=profiling)


def _text(more: list[dict[str, Any]], *, profiling: bool) -> str:
    """With what every container's programs need, and these rules."""
    names = sorted({name for text in _ALLOWED for name in text.split()})
    rules = [
        _allow(names),
        _allow(["socket"], (0, _VSOCK, "NE")),
        *(_allow(["personality"], (0, value, "EQ")) for value in _PERSONALITIES),
        _allow(["clone"], (0, _CLONE_NEW, "MASKED_EQ", 0)),
        *more,
    ]
    if profiling:
        rules += [
            _allow(["kcmp", "perf_event_open", "pidfd_getfd", "process_madvise"]),
            *(_allow(["personality"], (0, _NO_RANDOMIZE | flag, "EQ")) for flag in (0, 0x20000)),
        ]
    refused = {"names": _TOO_NEW.split(), "action": "SCMP_ACT_ERRNO", "errnoRet": _ENOSYS}
    value = {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": _EPERM,
        "archMap": [
            {
                "architecture": f"SCMP_ARCH_{name}",
                "subArchitectures": [f"SCMP_ARCH_{each}" for each in others],
            }
            for name, others in _ARCHITECTURES
        ],
        "syscalls": [*rules, refused],
    }
    return json.dumps(value, indent=1) + "\n"


def file_name(text: str) -> str:
    """In the project's folder: another text, another name, so that compose sees a change of it."""
    return f"seccomp-{hashlib.sha256(text.encode()).hexdigest()[:12]}.json"


def _allow(names: list[str], argument: tuple[Any, ...] | None = None) -> dict[str, Any]:
    """`argument`: its place, a value, how they compare, and what is left of it under the value's mask."""
    rule: dict[str, Any] = {"names": names, "action": "SCMP_ACT_ALLOW"}
    if argument is not None:
        index, value, how, *second = argument
        compared = {"index": index, "value": value, "op": f"SCMP_CMP_{how}"}
        if second:
            compared["valueTwo"] = second[0]
        rule["args"] = [compared]
    return rule
