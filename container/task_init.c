/*
 * A plugin of Slurm's (SPANK): runs a script before each task, as the task's user, and sets in the task's
 * environment what it prints as `export NAME=value` and `unset NAME`.
 *
 * That is what TaskProlog does, for less: Slurm starts a TaskProlog through one more slurmstepd, and goes
 * on 10 ms after its end, when it has killed what the script left behind (_kill_pg in
 * src/common/run_command.c). Of a job of 60 ms on a CPU of its own that was a sixth of all its time;
 * docs/decisions/0031-throughput.md.
 *
 * plugstack.conf names the script and its arguments. A task whose script cannot be run, fails or takes
 * longer than DEADLINE_S is not begun: it might compute on another job's GPU.
 */

#include "spank.h"

typedef struct { word opaque[32]; } spawn_actions; /* a posix_spawn_file_actions_t, which is smaller */
typedef struct { long seconds, nanoseconds; } timespec;

#define CLOCK_MONOTONIC 1
#define POLLIN 1
#define DEADLINE_S 30
#define MOST_BYTES 65536
#define MOST_ARGUMENTS 8

extern int clock_gettime(int, timespec *);
extern int posix_spawn(int *, const char *, const spawn_actions *, void *, char **, char **);
extern int posix_spawn_file_actions_init(spawn_actions *);
extern int posix_spawn_file_actions_adddup2(spawn_actions *, int, int);
extern int posix_spawn_file_actions_addopen(spawn_actions *, int, const char *, int, unsigned);
extern int posix_spawn_file_actions_destroy(spawn_actions *);
extern int spank_setenv(void *, const char *, const char *, int);
extern int spank_unsetenv(void *, const char *);

const char plugin_name[] = "dshpc_task_init";

/* Starts the script; its process id, and the end of a pipe that its output can be read from, or -1. */
static int start(char **argv, char **environment, int *output)
{
	spawn_actions actions;
	int ends[2], pid, failed;

	if (pipe2(ends, O_CLOEXEC))
		return -1;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", 0, 0);
	posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
	failed = posix_spawn(&pid, argv[0], &actions, NULL, argv, environment);
	posix_spawn_file_actions_destroy(&actions);
	close(ends[1]);
	*output = ends[0];
	if (!failed)
		return pid;
	close(ends[0]);
	return -1;
}

/* All that it prints, until it closes its output; how much that was, or -1 where the deadline came first. */
static int collect(int output, char *text, int most)
{
	timespec begun, now;
	poll_entry entry;
	int got, all = 0;

	entry.fd = output;
	entry.events = POLLIN;
	clock_gettime(CLOCK_MONOTONIC, &begun);
	for (;;) {
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (now.seconds - begun.seconds >= DEADLINE_S || all == most)
			return -1;
		if (poll(&entry, 1, 1000) <= 0)
			continue;
		got = read(output, text + all, most - all);
		if (!got)
			return all;
		if (got > 0)
			all += got;
		else if (*__errno_location() != EINTR)
			return -1;
	}
}

static void apply(void *spank, char *line)
{
	char *value;

	if (!strncmp(line, "unset ", 6)) {
		spank_unsetenv(spank, line + 6);
	} else if (!strncmp(line, "export ", 7) && (value = strchr(line, '='))) {
		*value = 0;
		spank_setenv(spank, line + 7, value + 1, 1);
	}
}

int slurm_spank_task_init(void *spank, int count, char **arguments)
{
	static char text[MOST_BYTES + 1];
	char **environment, *argv[MOST_ARGUMENTS + 1], *line, *end;
	int i, pid, output, all, status = -1;

	if (count < 1 || count > MOST_ARGUMENTS || spank_get_item(spank, S_JOB_ENV, &environment) ||
	    !environment) {
		slurm_error("task-init: plugstack.conf names no script, or the task has no environment");
		return -1;
	}
	for (i = 0; i < count; i++)
		argv[i] = arguments[i];
	argv[count] = NULL;
	pid = start(argv, environment, &output);
	if (pid < 0) {
		slurm_error("task-init: %s could not be started", argv[0]);
		return -1;
	}
	all = collect(output, text, MOST_BYTES);
	close(output);
	if (all < 0)
		kill(pid, SIGKILL);
	while (waitpid(pid, &status, 0) < 0 && *__errno_location() == EINTR)
		;
	if (all < 0 || status) {
		slurm_error("task-init: %s %s: the task is not begun", argv[0],
			    all < 0 ? "did not come to an end" : "failed");
		return -1;
	}
	text[all] = 0;
	for (line = text; (end = strchr(line, '\n')); line = end + 1) {
		*end = 0;
		apply(spank, line);
	}
	return 0;
}
