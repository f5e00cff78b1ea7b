/*
 * Preloaded into slurmctld: what it has answered is on the disk.
 *
 * slurmctld answers an sbatch at once and writes its state up to five seconds later (SAVE_MAX_WAIT in
 * src/slurmctld/state_save.c, fixed when it is compiled). A power cut in between loses the job, gives its
 * number to another one, and runs again what had ended. Here an answer that says that jobs have changed,
 * and an order to a node that begins or ends one, waits until slurmctld's own thread has written the
 * state. Those that wait at the same time wait for one and the same write.
 *
 * What is used of Slurm 24.11, all of it through the dynamic linker; docs/decisions/0029-durable-jobs.md:
 *   schedule_job_save()     asks that thread, "sstate", for a write
 *   dump_all_job_state()    writes it, where that thread has ended: before a reconfigure and at the end
 *   difftime()              by which that thread finds that the last write is five seconds ago
 *   link(FILE.new, FILE)    with which it puts a written file in place, and unlink(FILE.new) after it
 *   slurm_send_node_msg()   which sends each answer and each order
 *   slurm_get_return_code() which reads what a node has answered
 *   assoc_mgr_get_admin_level_locked(), assoc_mgr_is_user_acct_coord(), assoc_mgr_user_list: see there
 * Compiled by tcc without headers, so that no compiler's worth of packages is needed for the image.
 */

typedef unsigned long word;
typedef struct { word opaque[8]; } mutex; /* a pthread_mutex_t, initialised where it is all zeros */
typedef struct { word opaque[8]; } condition;
typedef struct { long seconds, nanoseconds; } timespec;

#define NULL ((void *) 0)
#define RTLD_DEFAULT ((void *) 0)
#define RTLD_NEXT ((void *) -1L)
#define O_RDONLY_CLOEXEC 02000000
#define O_WRITE_NEW_CLOEXEC (01 | 0100 | 01000 | 02000000) /* create, truncate */
#define F_DUPFD_CLOEXEC 1030
#define CLOCK_REALTIME 0

void *dlsym(void *, const char *);
int pthread_mutex_lock(mutex *), pthread_mutex_unlock(mutex *);
int pthread_once(int *, void (*)(void));
int pthread_key_create(unsigned *, void (*)(void *));
void *pthread_getspecific(unsigned);
int pthread_setspecific(unsigned, const void *);
word pthread_self(void);
int pthread_getname_np(word, char *, word);
void *calloc(word, word);
void free(void *);
int strcmp(const char *, const char *);
char *strstr(const char *, const char *);
char *strrchr(const char *, int);
word strlen(const char *);
void *memcpy(void *, const void *, word);
int open(const char *, int, ...), fcntl(int, int, ...), fsync(int), close(int);
int rename(const char *, const char *), snprintf(char *, word, const char *, ...);
int clock_gettime(int, timespec *);
long read(int, void *, word), write(int, const void *, word);

/* The beginning of slurm_msg_t, src/common/slurm_protocol_defs.h */
typedef struct {
	struct { word opaque[16]; } address;
	void *auth_cred;
	int auth_index;
	unsigned auth_uid, auth_gid;
	unsigned char auth_ids_set;
	unsigned restrict_uid;
	unsigned char restrict_uid_set;
	unsigned body_offset;
	void *buffer, *conn;
	int conn_fd;
	void *conmgr_fd, *data;
	unsigned short flags;
	unsigned char hash_index;
	unsigned short msg_type;
} message;

/* src/common/msg_type.h */
enum {
	REQUEST_BATCH_JOB_LAUNCH = 4005,
	REQUEST_KILL_TIMELIMIT = 6009,
	REQUEST_TERMINATE_JOB = 6011,
	RESPONSE_RESOURCE_ALLOCATION = 4002,
	RESPONSE_SUBMIT_BATCH_JOB = 4004,
	RESPONSE_HET_JOB_ALLOCATION = 4026,
	RESPONSE_JOB_ARRAY_ERRORS = 5034,
	RESPONSE_KILL_JOBS = 5042,
	RESPONSE_SLURM_RC = 8001,
	RESPONSE_SLURM_RC_MSG = 8002
};

#define API_24_11 42
#define ESLURM_DUPLICATE_JOB_ID 2011 /* slurm/slurm_errno.h */
#define WAIT_S 15
#define KEEP_S 60 /* between two copies of the state */
#define FILES 4
#define LOCK_SIZE 56 /* of a pthread_rwlock_t of glibc, where a pointer has 64 bits */

enum { NOT_KNOWN, SAVES, WAITS, STANDS_IN }; /* "sstate"; any other; one that writes in its place */

typedef struct {
	int locks;	/* read-write locks that this thread holds */
	void *first;	/* of them */
	int has_changed; /* it has held that of the jobs for writing since it last answered */
	word changed;	/* the change that it has made last, or can have */
	int saves;	/* one of the roles above */
	word begun;	/* the changes that its write is of */
	int count;
	int files[FILES]; /* scripts and environments of jobs, to be synced */
} self;

static int once, enabled;
static unsigned key;
static mutex lock;
static condition written;
/* Changes, numbered: each time that the lock of the jobs is taken for writing is one. The last of them; the
 * last that somebody waits for; all up to these are on the disk, or their write has failed. */
static word changes, wanted, done, failed;
static void *volatile jobs; /* the lock of the jobs; NULL until the state is written for the first time */
static int saver_has_ended;
static mutex standing_in;

/* Found by dlsym, which takes the newest version of each: the oldest pthread_cond_t was another one */
static int (*cond_timedwait)(condition *, mutex *, const timespec *), (*cond_broadcast)(condition *);
static void (*schedule_job_save)(void);
static int (*dump_all_job_state)(void);
static int (*real_send)(int, message *), (*real_send_only)(message *);
static unsigned (*real_return_code)(unsigned short, void *);
static int (*real_admin_level)(void *, unsigned);
static char (*real_is_coordinator)(void *, unsigned, char *, int);
static void **users; /* Slurm's list of those that its accounting knows; NULL there: it keeps none */
static double (*real_difftime)(long, long);
static int (*real_link)(const char *, const char *), (*real_unlink)(const char *);
static int (*real_creat)(const char *, unsigned);
static int (*real_rdlock)(void *), (*real_wrlock)(void *), (*real_tryrdlock)(void *);
static int (*real_trywrlock)(void *), (*real_unlock)(void *);

static void say(const char *text)
{
	write(2, text, strlen(text));
}

static void sync_files(self *me)
{
	while (me->count) {
		int fd = me->files[--me->count];
		fsync(fd);
		close(fd);
	}
}

static void forget(void *thread)
{
	self *me = thread;

	if (me->saves == SAVES) { /* those that wait for it write themselves */
		pthread_mutex_lock(&lock);
		saver_has_ended = 1;
		cond_broadcast(&written);
		pthread_mutex_unlock(&lock);
	}
	sync_files(me);
	free(me);
}

static void find(void)
{
	long (*version)(void) = dlsym(RTLD_DEFAULT, "slurm_api_version");

	cond_timedwait = dlsym(RTLD_DEFAULT, "pthread_cond_timedwait");
	cond_broadcast = dlsym(RTLD_DEFAULT, "pthread_cond_broadcast");
	real_send = dlsym(RTLD_NEXT, "slurm_send_node_msg");
	real_send_only = dlsym(RTLD_NEXT, "slurm_send_only_node_msg");
	real_return_code = dlsym(RTLD_NEXT, "slurm_get_return_code");
	real_admin_level = dlsym(RTLD_NEXT, "assoc_mgr_get_admin_level_locked");
	real_is_coordinator = dlsym(RTLD_NEXT, "assoc_mgr_is_user_acct_coord");
	users = dlsym(RTLD_DEFAULT, "assoc_mgr_user_list");
	real_difftime = dlsym(RTLD_NEXT, "difftime");
	real_link = dlsym(RTLD_NEXT, "link");
	real_unlink = dlsym(RTLD_NEXT, "unlink");
	real_creat = dlsym(RTLD_NEXT, "creat");
	real_rdlock = dlsym(RTLD_NEXT, "pthread_rwlock_rdlock");
	real_wrlock = dlsym(RTLD_NEXT, "pthread_rwlock_wrlock");
	real_tryrdlock = dlsym(RTLD_NEXT, "pthread_rwlock_tryrdlock");
	real_trywrlock = dlsym(RTLD_NEXT, "pthread_rwlock_trywrlock");
	real_unlock = dlsym(RTLD_NEXT, "pthread_rwlock_unlock");
	schedule_job_save = dlsym(RTLD_DEFAULT, "schedule_job_save");
	dump_all_job_state = dlsym(RTLD_DEFAULT, "dump_all_job_state");
	if (!schedule_job_save || !dump_all_job_state) /* a program that slurmctld has started */
		return;
	if (!version || (version() >> 16) != API_24_11) {
		say("dshpc: this Slurm is not 24.11: jobs of the last seconds may be lost when slurmctld is killed\n");
		return;
	}
	enabled = !pthread_key_create(&key, forget);
}

static self *me(void)
{
	self *found;

	pthread_once(&once, find);
	if (!enabled)
		return NULL;
	found = pthread_getspecific(key);
	if (!found) {
		found = calloc(1, sizeof(self));
		if (found)
			pthread_setspecific(key, found);
	}
	return found;
}

static int is_saving(self *mine)
{
	char name[16];

	if (!mine->saves)
		mine->saves = (!pthread_getname_np(pthread_self(), name, sizeof(name)) &&
			       !strcmp(name, "sstate")) ? SAVES : WAITS;
	return mine->saves == SAVES;
}

static int writes(self *mine)
{
	return is_saving(mine) || mine->saves == STANDS_IN;
}

/* slurmctld goes on answering after its thread has ended: what it took up to the exec of a reconfigure was
 * in no file. One after the other, and one write for all that wait. */
static void stand_in(self *mine, word mine_is)
{
	int is_done;

	pthread_mutex_lock(&standing_in);
	pthread_mutex_lock(&lock);
	is_done = done >= mine_is;
	pthread_mutex_unlock(&lock);
	if (!is_done) {
		mine->saves = STANDS_IN;
		dump_all_job_state();
		mine->saves = WAITS;
	}
	pthread_mutex_unlock(&standing_in);
}

/* Until what this thread has changed is on the disk, or all that any has. A write takes slurmctld's locks
 * itself: who holds one cannot wait, and only asks for it. */
static void save(self *mine, int alone)
{
	word mine_is;
	timespec until;
	int is_done;

	pthread_mutex_lock(&lock);
	mine_is = alone ? mine->changed : changes;
	is_done = done >= mine_is;
	if (wanted < mine_is)
		wanted = mine_is;
	pthread_mutex_unlock(&lock);
	if (!is_done)
		schedule_job_save();
	if (mine->locks)
		return;
	mine->has_changed = 0;
	sync_files(mine);
	if (is_done)
		return;
	clock_gettime(CLOCK_REALTIME, &until);
	until.seconds += WAIT_S;
	pthread_mutex_lock(&lock);
	while (done < mine_is && failed < mine_is && !saver_has_ended &&
	       !cond_timedwait(&written, &lock, &until))
		;
	if (done < mine_is && saver_has_ended) {
		pthread_mutex_unlock(&lock);
		stand_in(mine, mine_is);
		pthread_mutex_lock(&lock);
	}
	if (done < mine_is)
		say("dshpc: slurmctld's state was not written; jobs that it has answered for may be lost\n");
	pthread_mutex_unlock(&lock);
}

static void before(message *what)
{
	self *mine = me();

	if (!mine)
		return;
	switch (what->msg_type) {
	case REQUEST_BATCH_JOB_LAUNCH:
	case REQUEST_TERMINATE_JOB:
	case REQUEST_KILL_TIMELIMIT:
		save(mine, 0); /* another thread has changed the job */
		break;
	case RESPONSE_SUBMIT_BATCH_JOB:
	case RESPONSE_RESOURCE_ALLOCATION:
	case RESPONSE_HET_JOB_ALLOCATION:
	case RESPONSE_JOB_ARRAY_ERRORS:
	case RESPONSE_KILL_JOBS:
	case RESPONSE_SLURM_RC:
	case RESPONSE_SLURM_RC_MSG:
		if (mine->has_changed)
			save(mine, 1);
		break;
	}
}

int slurm_send_node_msg(int fd, message *what)
{
	before(what);
	return real_send(fd, what);
}

int slurm_send_only_node_msg(message *what)
{
	before(what);
	return real_send_only(what);
}

/* A node that was away has not heard that its job was queued again. Where the job begins there as the node
 * comes back, slurmd still has the former run and refuses. It asks by itself for the job to be queued again,
 * which ends the former run. slurmctld would also drain the node, until somebody resumes it (24.11.5), for
 * nothing that is wrong with it: docs/decisions/0091-a-job-that-comes-back-to-its-node.md */
unsigned slurm_get_return_code(unsigned short type, void *answer)
{
	unsigned found;

	pthread_once(&once, find);
	found = real_return_code(type, answer);
	return enabled && found == ESLURM_DUPLICATE_JOB_ID ? 0 : found;
}

/* Whether a user is an operator of Slurm's, or one of an account's coordinators, asked by a thread that holds
 * the lock of the users for reading. Without accounting there is no list of them, and Slurm takes that lock for
 * writing to ask for one: it waits for itself, with the lock of the jobs, for good (24.11.5). So any user could
 * stop a cluster, by scancel --ctld or slurmrestd with another one's job. Nobody is either there. */
int assoc_mgr_get_admin_level_locked(void *connection, unsigned uid)
{
	pthread_once(&once, find);
	return users && !*users ? 0 : real_admin_level(connection, uid);
}

char assoc_mgr_is_user_acct_coord(void *connection, unsigned uid, char *account, int is_locked)
{
	pthread_once(&once, find);
	return users && !*users ? 0 : real_is_coordinator(connection, uid, account, is_locked);
}

/* "sstate" calls it to learn how long ago its last write was, and for other things as it writes */
double difftime(long now, long then)
{
	self *mine = me();
	double found = real_difftime(now, then);

	if (mine && is_saving(mine)) {
		pthread_mutex_lock(&lock);
		saver_has_ended = 0; /* a reconfigure that has failed begins another one */
		if (wanted > done && found < 5)
			found = 5;
		pthread_mutex_unlock(&lock);
	}
	return found;
}

/* Now and then a copy is kept, of other blocks: for the day when the state and its .old cannot be read */
static void keep(const char *state)
{
	static long last;
	char names[3][4096], block[65536];
	const char *ends[3] = {".kept.new", ".kept", ".kept.old"};
	timespec now;
	long got = 0;
	int i, from, to;

	clock_gettime(CLOCK_REALTIME, &now);
	if (now.seconds - last < KEEP_S && now.seconds >= last)
		return;
	last = now.seconds;
	for (i = 0; i < 3; i++)
		snprintf(names[i], sizeof(names[i]), "%s%s", state, ends[i]);
	from = open(state, O_RDONLY_CLOEXEC);
	to = open(names[0], O_WRITE_NEW_CLOEXEC, 0600);
	while (from >= 0 && to >= 0 && (got = read(from, block, sizeof(block))) > 0)
		if (write(to, block, got) != got)
			break;
	if (!got && to >= 0 && !fsync(to)) {
		rename(names[1], names[2]);
		rename(names[0], names[1]);
	}
	close(from);
	close(to);
}

/* The state is whole and synced as it gets its name; the name is synced here */
int link(const char *from, const char *to)
{
	self *mine = me();
	int rc = real_link(from, to);
	char *end = strrchr(to, '/');
	char folder[4096];
	int fd;

	if (rc || !mine || !writes(mine) || !end || strcmp(end, "/job_state") || end - to >= 4096)
		return rc;
	memcpy(folder, to, end - to);
	folder[end - to] = 0;
	fd = open(folder, O_RDONLY_CLOEXEC);
	fsync(fd);
	close(fd);
	pthread_mutex_lock(&lock);
	if (done < mine->begun)
		done = mine->begun;
	cond_broadcast(&written);
	pthread_mutex_unlock(&lock);
	keep(to);
	return rc;
}

/* Its last step, whether the state has got its name or, on a full disk, has not */
int unlink(const char *path)
{
	self *mine = me();
	char *end = strrchr(path, '/');
	int rc = real_unlink(path);

	if (mine && end && !strcmp(end, "/job_state.new") && writes(mine)) {
		pthread_mutex_lock(&lock);
		if (done < mine->begun) {
			failed = mine->begun;
			cond_broadcast(&written);
		}
		pthread_mutex_unlock(&lock);
	}
	return rc;
}

/* A job's script and environment, which slurmctld writes as it takes the job */
int creat(const char *path, unsigned mode)
{
	self *mine = me();
	int fd = real_creat(path, mode);

	if (mine && fd >= 0 && strstr(path, "/hash.") && mine->count < FILES) {
		mine->files[mine->count] = fcntl(fd, F_DUPFD_CLOEXEC, 0);
		if (mine->files[mine->count] >= 0)
			mine->count++;
	}
	return fd;
}

/* Slurm has an array of locks: of its configuration, of the jobs, of the nodes, ... (src/slurmctld/locks.c),
 * and many others. Who writes the state takes the first two of the array: so the second is found, and until
 * then each lock may be it. */
static int taken(int rc, void *what, int for_writing)
{
	self *mine = me();

	if (rc || !mine)
		return rc;
	if (!mine->locks++)
		mine->first = what;
	else if (!jobs && !for_writing && mine->locks == 2 && what == mine->first + LOCK_SIZE && writes(mine))
		jobs = what;
	if (jobs && what != jobs)
		return rc;
	/* Whoever has changed a job before has given the lock back as it is taken for a write of the state,
	 * and none is changed until that has passed them all */
	pthread_mutex_lock(&lock);
	if (for_writing) {
		mine->has_changed = 1;
		mine->changed = ++changes;
	} else if (jobs)
		mine->begun = changes;
	pthread_mutex_unlock(&lock);
	return rc;
}

int pthread_rwlock_rdlock(void *what)
{
	pthread_once(&once, find);
	return taken(real_rdlock(what), what, 0);
}

int pthread_rwlock_wrlock(void *what)
{
	pthread_once(&once, find);
	return taken(real_wrlock(what), what, 1);
}

int pthread_rwlock_tryrdlock(void *what)
{
	pthread_once(&once, find);
	return taken(real_tryrdlock(what), what, 0);
}

int pthread_rwlock_trywrlock(void *what)
{
	pthread_once(&once, find);
	return taken(real_trywrlock(what), what, 1);
}

int pthread_rwlock_unlock(void *what)
{
	self *mine = me();

	if (mine && mine->locks)
		mine->locks--;
	return real_unlock(what);
}
