/*
 * What the plugins of Slurm's (SPANK) in this folder share. They are compiled by tcc with no other header, for
 * the Slurm that is there (SLURM is its version, 0x180b05 is 24.11.5).
 */

typedef unsigned long word;
typedef struct { int fd; short events, revents; } poll_entry;

#define NULL ((void *) 0)
#define O_WRONLY 1
#define O_CREAT 0100
#define O_NONBLOCK 04000
#define O_NOFOLLOW 0400000
#define O_CLOEXEC 02000000
#define EINTR 4
#define SIGKILL 9
#define S_JOB_UID 0 /* slurm/spank.h */
#define S_JOB_GID 1
#define S_JOB_ENV 10

extern int *__errno_location(void);
extern int pipe2(int *, int);
extern int open(const char *, int, ...);
extern int close(int);
extern long read(int, void *, word);
extern long write(int, const void *, word);
extern int access(const char *, int);
extern int poll(poll_entry *, word, int);
extern int kill(int, int);
extern int waitpid(int, int *, int);
extern int strcmp(const char *, const char *);
extern int strncmp(const char *, const char *, word);
extern char *strchr(const char *, int);
extern word strlen(const char *);
extern int snprintf(char *, word, const char *, ...);
extern int spank_get_item(void *, int, ...);
extern void slurm_error(const char *, ...);

const char plugin_type[] = "spank";
const unsigned plugin_version = SLURM;
const unsigned spank_plugin_version = 1;

/* The file's first bytes, less than `most`, as a string; how many, or -1 where it cannot be opened. */
static inline int text_of(const char *path, char *text, int most)
{
	int fd = open(path, O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC), got, all = 0;

	text[0] = 0;
	if (fd < 0)
		return -1;
	while (all < most - 1 && (got = read(fd, text + all, most - 1 - all)) > 0)
		all += got;
	close(fd);
	text[all] = 0;
	return all;
}
