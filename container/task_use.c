/*
 * A plugin of Slurm's (SPANK): writes down, as root, what Slurm does not keep of a job: which GPUs it holds, where
 * its batch script writes its log, and what its programs have taken. dshpc_setup/usage/runs.py reads it.
 *
 * In a folder that root alone may enter, a file for each run of a job, JOB.RESTARTS, with lines:
 *
 *   start STEP SECONDS UID PLACES UUIDS LOG    of a step's first task: its GPUs by place in slurmd's list and by
 *                                              UUID, "-" where there are none or they are not known
 *   end STEP SECONDS STATUS KIB MS             of each task: its largest process, and the CPU time of all so far
 *
 * What fails is not told: the task runs as well without this.
 */

#include "spank.h"

#define O_APPEND 02000
#define SEEK_END 2
#define RUSAGE_CHILDREN -1
#define S_JOB_ID 2
#define S_JOB_STEPID 3
#define S_TASK_EXIT_STATUS 13

#define RUNS "/var/lib/dshpc/state/use/run"
#define MOST_BYTES 65536
#define MOST_UUIDS 4096
#define MOST_PATH 4096
#define MOST_FILE (1 << 20)

typedef struct { long seconds, microseconds; } interval;
typedef struct { interval user, system; long largest_kib, rest[13]; } resources;

extern long time(void *);
extern long lseek(int, long, int);
extern long readlink(const char *, char *, word);
extern int getrusage(int, void *);
extern word strspn(const char *, const char *);

const char plugin_name[] = "dshpc_task_use";

static const char *value_of(char **environment, const char *name)
{
	word length = strlen(name);

	for (; *environment; environment++)
		if (!strncmp(*environment, name, length) && (*environment)[length] == '=')
			return *environment + length + 1;
	return NULL;
}

static int consists_of(const char *text, const char *signs, word most)
{
	return text && *text && strspn(text, signs) == strlen(text) && strlen(text) < most;
}

static void append(void *spank, char **environment, const char *line)
{
	char path[96];
	const char *restarts = value_of(environment, "SLURM_RESTART_COUNT");
	unsigned job;
	int fd;

	if (spank_get_item(spank, S_JOB_ID, &job))
		return;
	snprintf(path, sizeof(path), RUNS "/%u.%s", job, consists_of(restarts, "0123456789", 10) ? restarts : "0");
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	if (lseek(fd, 0, SEEK_END) < MOST_FILE)
		write(fd, line, strlen(line));
	close(fd);
}

static int has(const char *list, const char *place)
{
	word length = strlen(place);

	for (; list; list = (list = strchr(list, ',')) ? list + 1 : NULL)
		if (!strncmp(list, place, length) && (!list[length] || list[length] == ','))
			return 1;
	return 0;
}

/* By the lines "gpu PLACE VENDOR NUMBER UUID" of the table; "-" where one of them is not known. */
static void find_uuids(const char *path, const char *places, char *uuids)
{
	static char table[MOST_BYTES];
	char *line, *end, *field[5];
	int all = 0, i;

	text_of(path, table, MOST_BYTES);
	for (line = table; (end = strchr(line, '\n')); line = end + 1) {
		*end = 0;
		for (i = 0; i < 5 && line; i++) {
			field[i] = line;
			if ((line = strchr(line, ' ')))
				*line++ = 0;
		}
		if (i < 5 || strcmp(field[0], "gpu") || !has(places, field[1]))
			continue;
		if (!strcmp(field[4], "-") || all + strlen(field[4]) + 2 > MOST_UUIDS) {
			all = 0;
			break;
		}
		all += snprintf(uuids + all, MOST_UUIDS - all, "%s%s", all ? "," : "", field[4]);
	}
	if (!all)
		snprintf(uuids, MOST_UUIDS, "-");
}

/* In the process that becomes the task, still as root. */
int slurm_spank_task_init_privileged(void *spank, int count, char **arguments)
{
	static char line[MOST_BYTES], uuids[MOST_UUIDS] = "-", log[MOST_PATH];
	char **environment;
	const char *places, *rank;
	unsigned user, step;
	long length;

	if (count != 1 || spank_get_item(spank, S_JOB_ENV, &environment) || !environment ||
	    spank_get_item(spank, S_JOB_UID, &user) || spank_get_item(spank, S_JOB_STEPID, &step))
		return 0;
	rank = value_of(environment, "SLURM_LOCALID");
	if (rank && strcmp(rank, "0"))
		return 0;
	places = value_of(environment, "SLURM_JOB_GPUS");
	if (!places || !*places)
		places = value_of(environment, "SLURM_STEP_GPUS");
	if (consists_of(places, "0123456789,", MOST_UUIDS))
		find_uuids(arguments[0], places, uuids);
	else
		places = "-";
	length = readlink("/proc/self/fd/1", log, MOST_PATH - 1);
	log[length > 0 ? length : 0] = 0;
	if (length <= 0 || log[0] != '/' || strchr(log, '\n'))
		snprintf(log, MOST_PATH, "-");
	snprintf(line, sizeof(line), "start %u %ld %u %s %s %s\n", step, time(NULL), user, places, uuids, log);
	append(spank, environment, line);
	return 0;
}

/* In slurmstepd, which has waited for the task and what that has waited for. */
int slurm_spank_task_exit(void *spank, int count, char **arguments)
{
	char **environment, line[128];
	resources used;
	unsigned step;
	int status;

	if (spank_get_item(spank, S_JOB_ENV, &environment) || !environment ||
	    spank_get_item(spank, S_JOB_STEPID, &step) || spank_get_item(spank, S_TASK_EXIT_STATUS, &status) ||
	    getrusage(RUSAGE_CHILDREN, &used))
		return 0;
	snprintf(line, sizeof(line), "end %u %ld %d %ld %ld\n", step, time(NULL), status, used.largest_kib,
		 (used.user.seconds + used.system.seconds) * 1000 +
			 (used.user.microseconds + used.system.microseconds) / 1000);
	append(spank, environment, line);
	return 0;
}
