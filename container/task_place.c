/*
 * A plugin of Slurm's (SPANK): what is done for each task as root, before its program begins. Every task of
 * a job gets the same, and no other process.
 *
 * 1. Its oom_score_adj, which all its processes inherit: where memory runs out, the kernel ends a job
 *    before Slurm's daemons. Slurm itself sets each task to 0, and the engine may give the daemons less
 *    than that only where it has a right that many have not (CAP_SYS_RESOURCE).
 * 2. A record of whose it is and since when, for what it may leave in shared memory (shared-memory).
 * 3. In the tier `enforced`, slurmstepd leaves the control group of the job's memory, into which Slurm
 *    puts it: there it was what the kernel ended where a job was over its memory.
 * 4. There, the job has at most half of the container's processes, all its tasks together.
 * 5. On a node that takes the jobs of its owner alone, a user namespace in which it is that one: the container
 *    has one id, and to Slurm's programs a job there would be root's (owner.c).
 *
 * docs/decisions/0027-seccomp-and-memory.md. What does not succeed is told where Slurm's own errors are; the task
 * begins all the same, and is no worse off than under Slurm without this.
 */

#include "spank.h"

#define ENOENT 2
#define ESRCH 3
#define S_TASK_PID 14
#define MOST_BYTES 4096
#define TRIES 3

#define OOM_SCORE_ADJ "500\n"
#define RECORDS "/run/dshpc/shared-memory"
#define NEWUSER 0x10000000
#define VERSION_2 "/sys/fs/cgroup/cgroup.controllers"

extern int unshare(int);
extern int mkdir(const char *, unsigned);
extern long time(void *);
extern int getpid(void);
extern int atoi(const char *);
extern char *getenv(const char *);
extern char *strstr(const char *, const char *);

const char plugin_name[] = "dshpc_task_place";

static int put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), length = strlen(text), failed;

	if (fd < 0)
		return -1;
	failed = write(fd, text, length) != length;
	close(fd);
	return failed ? -1 : 0;
}

static void put_or_tell(const char *path, const char *text)
{
	if (put(path, text) && *__errno_location() != ENOENT && *__errno_location() != ESRCH)
		slurm_error("task-place: %s could not be written: error %d", path, *__errno_location());
}

/* The control group of a process in a controller ("" in version 2, where one is for all), or NULL. */
static char *group_of(const char *process, const char *controller, char *text)
{
	char path[64], *line, *end, *names, *group, *found;
	int length = strlen(controller);

	snprintf(path, sizeof(path), "/proc/%s/cgroup", process);
	if (text_of(path, text, MOST_BYTES) < 0)
		return NULL;
	for (line = text; (end = strchr(line, '\n')); line = end + 1) { /* 4:memory,pids:/dshpc/job_1 */
		*end = 0;
		if (!(names = strchr(line, ':')) || !(group = strchr(++names, ':')))
			continue;
		*group++ = 0;
		if (!length && !*names)
			return group;
		for (found = names; length && (found = strstr(found, controller)); found += length)
			if ((found == names || found[-1] == ',') && (!found[length] || found[length] == ','))
				return group;
	}
	return NULL;
}

/* The part of a control group's path that begins with the job's; the last such, as all this may itself be
 * in a job's group of the machine's own Slurm. */
static char *job_in(char *group)
{
	char *found = NULL;

	while (group && (group = strstr(group, "/job_")))
		found = group++;
	return found;
}

/* Not where it is in no job's group, as under a slurm.conf of the user's own that limits no memory. */
static void leave_memory(int version)
{
	char text[MOST_BYTES];
	char *job = job_in(group_of("self", version == 1 ? "memory" : "", text));

	if (job && strstr(job, "/step_") && !strstr(job, "/task_"))
		put_or_tell(version == 1 ? "/sys/fs/cgroup/memory/cgroup.procs" :
			    "/sys/fs/cgroup/init/cgroup.procs", "0");
}

/* Slurm writes no such limit. In version 1 the group is ours, and services/tidy removes it; in version 2
 * it is the job's own. */
static void limit_processes(const char *task, int version)
{
	char text[MOST_BYTES], group[MOST_BYTES + 64], path[MOST_BYTES + 128], most[16];
	char *whole, *job, *end;
	int tries, all;

	if (text_of(version == 1 ? "/sys/fs/cgroup/pids/pids.max" : "/sys/fs/cgroup/pids.max", text, MOST_BYTES) < 0 ||
	    (all = atoi(text)) < 2) /* "max" */
		return;
	snprintf(most, sizeof(most), "%d\n", all / 2);
	if (!(whole = group_of(task, version == 1 ? "memory" : "", text)) || !(job = job_in(whole)))
		return;
	if ((end = strchr(job + 1, '/')))
		*end = 0;
	if (version == 2) {
		snprintf(path, sizeof(path), "/sys/fs/cgroup%s/pids.max", whole);
		put_or_tell(path, most);
		return;
	}
	mkdir("/sys/fs/cgroup/pids/dshpc", 0755);
	snprintf(group, sizeof(group), "/sys/fs/cgroup/pids/dshpc%s", job);
	for (tries = 0; tries < TRIES; tries++) { /* what is empty may be removed any moment */
		mkdir(group, 0755);
		snprintf(path, sizeof(path), "%s/pids.max", group);
		if (put(path, most))
			continue;
		snprintf(path, sizeof(path), "%s/cgroup.procs", group);
		if (!put(path, task))
			return;
	}
	slurm_error("task-place: %s could not be limited: error %d", group, *__errno_location());
}

/* An empty file, whose name is read: one for each task, so that nobody needs a lock. */
static void note_user(void *spank)
{
	char path[128];
	unsigned user, group;
	int fd;

	if (spank_get_item(spank, S_JOB_UID, &user) || spank_get_item(spank, S_JOB_GID, &group)) {
		slurm_error("task-place: Slurm does not say whose task it is: what it leaves in /dev/shm stays");
		return;
	}
	snprintf(path, sizeof(path), RECORDS "/%u.%u.%ld.%d", user, group, time(NULL), getpid());
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		slurm_error("task-place: %s could not be made: error %d", path, *__errno_location());
	else
		close(fd);
}

static void become_owner(void *spank)
{
	unsigned user, group;
	char text[32];

	if (spank_get_item(spank, S_JOB_UID, &user) || spank_get_item(spank, S_JOB_GID, &group) || !user)
		return;
	if (unshare(NEWUSER)) {
		slurm_error("task-place: no user namespace: error %d", *__errno_location());
		return;
	}
	put_or_tell("/proc/self/setgroups", "deny");
	snprintf(text, sizeof(text), "%u 0 1", user);
	put_or_tell("/proc/self/uid_map", text);
	snprintf(text, sizeof(text), "%u 0 1", group);
	put_or_tell("/proc/self/gid_map", text);
}

/* In the process that becomes the task, when Slurm has set its oom_score_adj to 0. */
int slurm_spank_task_init_privileged(void *spank, int count, char **arguments)
{
	put_or_tell("/proc/self/oom_score_adj", OOM_SCORE_ADJ);
	note_user(spank);
	if (getenv("DSHPC_OWNER"))
		become_owner(spank);
	return 0;
}

/* In slurmstepd, when the task has its control groups and waits to be let go. */
int slurm_spank_task_post_fork(void *spank, int count, char **arguments)
{
	const char *isolation = getenv("DSHPC_ISOLATION");
	char task[16];
	int pid, version = access(VERSION_2, 0) ? 1 : 2;

	if (!isolation || strcmp(isolation, "enforced"))
		return 0;
	leave_memory(version);
	if (spank_get_item(spank, S_TASK_PID, &pid)) {
		slurm_error("task-place: Slurm does not say what process the task is: its job is not limited");
		return 0;
	}
	snprintf(task, sizeof(task), "%d", pid);
	limit_processes(task, version);
	return 0;
}
