/*
 * Preloaded into the slurmd of a node that takes the jobs of its owner alone: a task there is its owner's.
 *
 * The container has one id, so to the kernel each of its processes is root, and slurmd, which signs what
 * Slurm's programs say (auth/slurm, by the ids of who has connected to its socket), would have a job's srun
 * and sbatch speak for root. A task has a user namespace of its own (task_place.c), in which it is its
 * owner: who connects from another one than slurmd's is the user that DSHPC_OWNER names.
 * docs/decisions/0086-nodes-of-one-user.md
 */

typedef unsigned long word;
typedef struct { int pid; unsigned uid, gid; } credentials; /* struct ucred, socket(7) */

#define NULL ((void *) 0)
#define RTLD_NEXT ((void *) -1L)
#define SOL_SOCKET 1
#define SO_PEERCRED 17

extern void *dlsym(void *, const char *);
extern char *getenv(const char *);
extern unsigned long strtoul(const char *, char **, int);
extern int strcmp(const char *, const char *);
extern long readlink(const char *, char *, word);
extern int snprintf(char *, word, const char *, ...);

static int namespace_of(const char *process, char *text, int most)
{
	char path[64];
	long length;

	snprintf(path, sizeof(path), "/proc/%s/ns/user", process);
	length = readlink(path, text, most - 1);
	text[length < 0 ? 0 : length] = 0;
	return length > 0;
}

int getsockopt(int socket, int level, int name, void *value, unsigned *size)
{
	int (*next)(int, int, int, void *, unsigned *) = dlsym(RTLD_NEXT, "getsockopt");
	const char *owner = getenv("DSHPC_OWNER");
	char theirs[64], ours[64], process[16];
	credentials *who = value;
	int failed = next(socket, level, name, value, size);

	if (failed || level != SOL_SOCKET || name != SO_PEERCRED || !owner || who->uid)
		return failed;
	snprintf(process, sizeof(process), "%d", who->pid);
	if (namespace_of(process, theirs, sizeof(theirs)) && namespace_of("self", ours, sizeof(ours)) &&
	    strcmp(theirs, ours))
		who->uid = who->gid = (unsigned) strtoul(owner, NULL, 10);
	return 0;
}
