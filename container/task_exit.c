/*
 * A plugin of Slurm's (SPANK): writes down that a task has ended, before slurmctld hears of it. It writes as
 * the job's user, into that user's own folder, which only that user can write:
 *
 *   ended/UID/N      "job restarts code" of a batch script that has run to its end: the next start of a
 *                    container that was killed does not run it again (dshpc_setup/container/ends.py).
 *                    The code is "?" where a signal has ended it. The launcher of `dshpc run` may have
 *                    written before; what it wrote stands.
 *   ended/UID/N.job  what Slurm does not keep of a job: its GPUs, and whether the kernel has ended one of
 *                    its processes for want of memory (dshpc_setup/jobs/end_notes.py). task-prolog has
 *                    begun the file.
 *
 * N is the number of the job modulo 1000. plugstack.conf names the table of GPUs. A TaskEpilog could do the
 * same for more: Slurm waits 10 ms behind it, a shell takes its time, and it is told no exit code. Nothing
 * here starts a program: that would run as the user and in no control group of the job's.
 *
 * What fails is not told: the task has ended, and nothing of it depends on this.
 */

#include "spank.h"

#define O_TRUNC 01000
#define O_APPEND 02000
#define S_JOB_ID 2
#define S_JOB_STEPID 3
#define S_TASK_EXIT_STATUS 13
#define BATCH_SCRIPT 0xfffffffb /* SLURM_BATCH_SCRIPT in slurm/slurm.h */

#define ENDED "/var/lib/dshpc/state/ended"
#define SLOTS 1000
#define DEADLINE_MS 5000
#define MOST_BYTES 65536
#define MOST_UUIDS 4096

extern int fork(void);
extern void _exit(int);
extern unsigned geteuid(void);
extern int setgroups(word, const unsigned *);
extern int setresgid(unsigned, unsigned, unsigned);
extern int setresuid(unsigned, unsigned, unsigned);
extern long strtol(const char *, char **, int);
extern word strspn(const char *, const char *);

const char plugin_name[] = "dshpc_task_exit";

typedef struct {
	unsigned user, group, job, step;
	int status;
	char run[32];	   /* "job restarts" */
	const char *gpus;  /* their places in slurmd's list, "0,2"; NULL where it has none */
	const char *table; /* says which GPU stands at which place */
} ended;

static void put(const char *path, int how, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC | how, 0600);

	if (fd < 0)
		return;
	write(fd, text, strlen(text));
	close(fd);
}

/* The line that begins with these words, and what follows them; NULL where there is none. */
static char *line_of(char *text, const char *words)
{
	word length = strlen(words);

	for (; text; text = (text = strchr(text, '\n')) ? text + 1 : NULL)
		if (!strncmp(text, words, length) && (text[length] == ' ' || text[length] == '\n'))
			return text + length;
	return NULL;
}

/* Once, behind what else stands there of this run; of another run nothing stays. */
static void note(const ended *of, const char *path, const char *what)
{
	static char text[MOST_BYTES], line[MOST_UUIDS + MOST_BYTES];
	word length = strlen(of->run);
	int begun;

	text_of(path, text, MOST_BYTES);
	begun = !strncmp(text, of->run, length) && text[length] == ' ';
	snprintf(line, sizeof(line), "%s %s", of->run, what);
	if (begun && line_of(text, line))
		return;
	snprintf(line, sizeof(line), "%s %s\n", of->run, what);
	put(path, begun ? O_APPEND : O_TRUNC, line);
}

static int has(const char *list, const char *place)
{
	word length = strlen(place);

	for (; list; list = (list = strchr(list, ',')) ? list + 1 : NULL)
		if (!strncmp(list, place, length) && (!list[length] || list[length] == ','))
			return 1;
	return 0;
}

/* A line of the table: "gpu PLACE VENDOR NUMBER UUID". The places are good until the next start
 * only, a UUID is for ever; where one is not known, none is written. */
static void note_gpus(const ended *of, const char *path)
{
	static char table[MOST_BYTES], uuids[MOST_UUIDS], what[MOST_UUIDS + MOST_BYTES];
	char *line, *end, *field[5];
	int known = 1, all = 0, i;

	text_of(of->table, table, MOST_BYTES);
	for (line = table; (end = strchr(line, '\n')); line = end + 1) {
		*end = 0;
		for (i = 0; i < 5 && line; i++) {
			field[i] = line;
			if ((line = strchr(line, ' ')))
				*line++ = 0;
		}
		if (i < 5 || strcmp(field[0], "gpu") || !has(of->gpus, field[1]))
			continue;
		known = known && strcmp(field[4], "-") && all + strlen(field[4]) + 2 < MOST_UUIDS;
		if (known)
			all += snprintf(uuids + all, MOST_UUIDS - all, "%s%s", all ? "," : "", field[4]);
	}
	snprintf(what, sizeof(what), "gpus %s %s", of->gpus, known && all ? uuids : "-");
	note(of, path, what);
}

/* How many processes the kernel had ended when the job began: "job restarts kills COUNT". */
static void note_memory(const ended *of, const char *path)
{
	static char text[MOST_BYTES];
	const char *counts[2] = {"/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"};
	char words[64], *found;
	long before;
	int i;

	text_of(path, text, MOST_BYTES);
	snprintf(words, sizeof(words), "%s kills", of->run);
	if (!(found = line_of(text, words)))
		return;
	before = strtol(found, NULL, 10);
	for (i = 0; i < 2; i++) {
		text_of(counts[i], text, MOST_BYTES);
		if ((found = line_of(text, "oom_kill")) && strtol(found, NULL, 10) > before)
			note(of, path, "memory");
	}
}

/* A script that ends because the container does has not ended: it begins anew. Nothing is written of it, as
 * its slurmstepd is stopped before it is told (dshpc_setup/container/end_jobs.py). One that ends by itself
 * before that has ended, though slurmctld is not there any more to hear of it. */
static void write_end(const ended *of, const char *path)
{
	char text[MOST_BYTES], code[8] = "?";

	if (of->step != BATCH_SCRIPT)
		return;
	text_of(path, text, MOST_BYTES);
	if (line_of(text, of->run) == text + strlen(of->run))
		return;
	if (!(of->status & 0x7f)) /* WIFEXITED, WEXITSTATUS */
		snprintf(code, sizeof(code), "%d", (of->status >> 8) & 0xff);
	snprintf(text, sizeof(text), "%s %s\n", of->run, code);
	put(path, O_TRUNC, text);
}

static void write_all(const ended *of)
{
	char path[128], notes[128];

	snprintf(path, sizeof(path), ENDED "/%u/%u", of->user, of->job % SLOTS);
	snprintf(notes, sizeof(notes), "%s.job", path);
	if (of->gpus)
		note_gpus(of, notes);
	note_memory(of, notes);
	write_end(of, path);
}

static const char *value_of(char **environment, const char *name)
{
	word length = strlen(name);

	for (; *environment; environment++)
		if (!strncmp(*environment, name, length) && (*environment)[length] == '=')
			return *environment + length + 1;
	return NULL;
}

static const char *number_of(char **environment, const char *name)
{
	const char *found = value_of(environment, name);

	return found && *found && strspn(found, "0123456789") == strlen(found) && strlen(found) < 10 ? found : "0";
}

/* In a process of its own, whose user that is for good: no other process of that user can look into it, as it
 * starts no program. Slurm waits until it has ended, or for so long. */
int slurm_spank_task_exit(void *spank, int count, char **arguments)
{
	ended of;
	char **environment;
	poll_entry entry;
	int ends[2], pid, status;

	if (count != 1 || spank_get_item(spank, S_JOB_UID, &of.user) ||
	    spank_get_item(spank, S_JOB_GID, &of.group) || spank_get_item(spank, S_JOB_ID, &of.job) ||
	    spank_get_item(spank, S_JOB_STEPID, &of.step) ||
	    spank_get_item(spank, S_TASK_EXIT_STATUS, &of.status) ||
	    spank_get_item(spank, S_JOB_ENV, &environment) || !environment || pipe2(ends, O_CLOEXEC))
		return 0;
	of.table = arguments[0];
	snprintf(of.run, sizeof(of.run), "%u %s", of.job, number_of(environment, "SLURM_RESTART_COUNT"));
	of.gpus = value_of(environment, "SLURM_JOB_GPUS");
	if (!of.gpus || !*of.gpus)
		of.gpus = value_of(environment, "SLURM_STEP_GPUS");
	if (of.gpus && (!*of.gpus || strspn(of.gpus, "0123456789,") != strlen(of.gpus) ||
			strlen(of.gpus) > MOST_UUIDS))
		of.gpus = NULL;
	if (!(pid = fork())) {
		if (geteuid() == of.user || (!setgroups(0, NULL) && !setresgid(of.group, of.group, of.group) &&
					     !setresuid(of.user, of.user, of.user)))
			write_all(&of);
		_exit(0);
	}
	close(ends[1]);
	entry.fd = ends[0];
	entry.events = 0; /* its end alone */
	if (pid > 0) {
		if (poll(&entry, 1, DEADLINE_MS) <= 0)
			kill(pid, SIGKILL);
		while (waitpid(pid, &status, 0) < 0 && *__errno_location() == EINTR)
			;
	}
	close(ends[0]);
	return 0;
}
