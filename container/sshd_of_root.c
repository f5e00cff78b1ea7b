/*
 * Preloaded into the sshd of a session in a job of root's (dshpc_setup/ssh/listener.py). As root it does two
 * things that take capabilities which the container has not, and ends where it cannot:
 *
 *   chroot      (SYS_CHROOT) the process that speaks to a client who is not known yet goes into an empty
 *               folder. The client is known here: the socket that it has come by is root's alone. That process
 *               still gives up root's rights, and its system calls are filtered.
 *   audit_open  (AUDIT_WRITE) the kernel's audit log is told of the login. The log is the machine's.
 */

#define EPROTONOSUPPORT 93 /* what sshd takes for a kernel without an audit log: audit-linux.c */

extern int *__errno_location(void);

int chroot(const char *path)
{
	(void) path;
	return 0;
}

int audit_open(void)
{
	*__errno_location() = EPROTONOSUPPORT;
	return -1;
}
