/*
 * A stand-in for libnvidia-ml.so.1: the part of NVML that nvidia-ml-py on the host and Slurm's
 * gpu_nvml.so in the container ask, answered from a text file.
 *
 * The file is $DSHPC_STANDIN_NVML, else /etc/dshpc-standin/nvml.txt. Its lines:
 *
 *   driver 550.163.01              version of the driver
 *   cuda 12040                     what it can do, as NVML counts it
 *   gpu KEY=VALUE ... name=NAME    a card: minor, bus, memory (MiB), compute (9.0), cpus (0-3,8),
 *                                  uuid, mig (0 or 1; without it MIG is not supported);
 *                                  name is the last key and takes the rest of the line
 *   instance KEY=VALUE ...         a MIG instance of the card before: gi, ci, memory, slices (3/3),
 *                                  uuid, profile
 *   fail FUNCTION CODE [GPU]       the function answers with that code (of that card only)
 *   hang FUNCTION                  the function never returns
 *   crash FUNCTION                 the function ends the process by a segmentation fault
 *   say FUNCTION TEXT              the function prints TEXT to standard output first
 *
 * Without the file there is no driver: code 9.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <unistd.h>

enum { OK = 0, INVALID = 2, UNSUPPORTED = 3, NOT_FOUND = 6, SHORT = 7, NO_DRIVER = 9 };
enum { MOST = 32, TEXT = 96 };

struct card {
    int parent; /* -1, or the card that this is an instance of */
    unsigned minor, domain, bus, device, major_cc, minor_cc, gi, ci, slices, compute_slices;
    int mig; /* -1: not supported */
    unsigned long long memory_mib;
    unsigned long cpus[16];
    char uuid[TEXT], name[TEXT], profile[TEXT];
};

struct rule {
    char kind, function[TEXT], text[TEXT];
    int code, gpu; /* gpu -1: all */
};

static struct card cards[MOST * 8];
static struct rule rules[64];
static unsigned card_count, rule_count;
static char driver[TEXT] = "550.163.01";
static int cuda = 12040, is_read, is_there;

static const char *value_of(const char *line, const char *key, char *into)
{
    char pattern[32];
    snprintf(pattern, sizeof pattern, " %s=", key);
    const char *at = strstr(line, pattern);
    if (!at)
        return NULL;
    at += strlen(pattern);
    size_t length = strcmp(key, "name") ? strcspn(at, " \n") : strcspn(at, "\n");
    if (length >= TEXT)
        length = TEXT - 1;
    memcpy(into, at, length);
    into[length] = 0;
    return into;
}

static void parse_cpus(const char *text, unsigned long *mask)
{
    while (*text) {
        char *end;
        unsigned long first = strtoul(text, &end, 10), last = first;
        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        for (unsigned long n = first; n <= last && n < 1024; n++)
            mask[n / 64] |= 1UL << (n % 64);
        if (*end != ',')
            break;
        text = end + 1;
    }
}

static void parse_card(const char *line, int instance)
{
    if (card_count >= sizeof cards / sizeof *cards)
        return;
    struct card *card = &cards[card_count];
    char text[TEXT];
    card->parent = -1;
    card->mig = -1;
    if (instance)
        for (card->parent = (int)card_count - 1; card->parent > 0; card->parent--)
            if (cards[card->parent].parent < 0)
                break;
    if (value_of(line, "minor", text))
        card->minor = (unsigned)atoi(text);
    if (value_of(line, "bus", text))
        sscanf(text, "%x:%x:%x", &card->domain, &card->bus, &card->device);
    if (value_of(line, "memory", text))
        card->memory_mib = strtoull(text, NULL, 10);
    if (value_of(line, "compute", text))
        sscanf(text, "%u.%u", &card->major_cc, &card->minor_cc);
    if (value_of(line, "mig", text))
        card->mig = atoi(text);
    if (value_of(line, "gi", text))
        card->gi = (unsigned)atoi(text);
    if (value_of(line, "ci", text))
        card->ci = (unsigned)atoi(text);
    if (value_of(line, "slices", text))
        sscanf(text, "%u/%u", &card->slices, &card->compute_slices);
    if (value_of(line, "cpus", text))
        parse_cpus(text, card->cpus);
    value_of(line, "uuid", card->uuid);
    value_of(line, "name", card->name);
    value_of(line, "profile", card->profile);
    if (instance && card->parent >= 0) {
        char full[2 * TEXT + 8];
        snprintf(full, sizeof full, "%s MIG %s", cards[card->parent].name, card->profile);
        memcpy(card->name, full, TEXT - 1);
    }
    card_count++;
}

static void parse_rule(const char *line)
{
    if (rule_count >= sizeof rules / sizeof *rules)
        return;
    struct rule *rule = &rules[rule_count++];
    rule->kind = line[0];
    rule->gpu = -1;
    if (line[0] == 's')
        sscanf(line, "say %95s %95[^\n]", rule->function, rule->text);
    else
        sscanf(line, "%*s %95s %d %d", rule->function, &rule->code, &rule->gpu);
}

static void read_file(void)
{
    if (is_read)
        return;
    is_read = 1;
    const char *path = getenv("DSHPC_STANDIN_NVML");
    FILE *file = fopen(path && *path ? path : "/etc/dshpc-standin/nvml.txt", "r");
    if (!file)
        return;
    is_there = 1;
    char line[512];
    while (fgets(line, sizeof line, file)) {
        if (!strncmp(line, "driver ", 7))
            sscanf(line, "driver %95s", driver);
        else if (!strncmp(line, "cuda ", 5))
            cuda = atoi(line + 5);
        else if (!strncmp(line, "gpu ", 4))
            parse_card(line, 0);
        else if (!strncmp(line, "instance ", 9))
            parse_card(line, 1);
        else if (!strncmp(line, "fail ", 5) || !strncmp(line, "hang ", 5) ||
                 !strncmp(line, "crash ", 6) || !strncmp(line, "say ", 4))
            parse_rule(line);
    }
    fclose(file);
}

static int index_of(const struct card *card)
{
    int index = 0;
    for (const struct card *each = cards; each < card; each++)
        index += each->parent < 0;
    return index;
}

/* What every function does first: its rules; code 0 where it may go on. */
static int enter(const char *function, const struct card *card)
{
    read_file();
    if (!is_there)
        return NO_DRIVER;
    for (unsigned n = 0; n < rule_count; n++) {
        const struct rule *rule = &rules[n];
        if (strcmp(rule->function, function))
            continue;
        if (rule->kind == 'h')
            for (;;)
                pause();
        if (rule->kind == 'c')
            raise(SIGSEGV);
        if (rule->kind == 's') {
            puts(rule->text);
            fflush(stdout);
        }
        if (rule->kind == 'f' && (rule->gpu < 0 || (card && index_of(card) == rule->gpu)))
            return rule->code;
    }
    return OK;
}

#define ENTER(card)                                                                                \
    do {                                                                                           \
        int code_ = enter(__func__, card);                                                         \
        if (code_)                                                                                 \
            return code_;                                                                          \
    } while (0)

static int copy(char *into, unsigned size, const char *text)
{
    if (strlen(text) + 1 > size)
        return SHORT;
    strcpy(into, text);
    return OK;
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; ENTER(NULL); return OK; }
int nvmlInit_v2(void) { ENTER(NULL); return OK; }
int nvmlShutdown(void) { ENTER(NULL); return OK; }

const char *nvmlErrorString(int code)
{
    switch (code) {
    case OK: return "Success";
    case INVALID: return "Invalid Argument";
    case UNSUPPORTED: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case NOT_FOUND: return "Not Found";
    case NO_DRIVER: return "Driver Not Loaded";
    case 15: return "GPU is lost";
    case 18: return "RM has detected an NVML/RM version mismatch.";
    default: return "Unknown Error";
    }
}

int nvmlSystemGetDriverVersion(char *text, unsigned size)
{
    ENTER(NULL);
    return copy(text, size, driver);
}

int nvmlSystemGetNVMLVersion(char *text, unsigned size)
{
    char version[TEXT + 32];
    ENTER(NULL);
    snprintf(version, sizeof version, "%d.%s", cuda / 1000, driver);
    return copy(text, size, version);
}

int nvmlSystemGetCudaDriverVersion(int *version)
{
    ENTER(NULL);
    *version = cuda;
    return OK;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    ENTER(NULL);
    *count = 0;
    for (unsigned n = 0; n < card_count; n++)
        *count += cards[n].parent < 0;
    return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct card **card)
{
    read_file();
    for (unsigned n = 0; n < card_count; n++)
        if (cards[n].parent < 0 && index_of(&cards[n]) == (int)index) {
            ENTER(&cards[n]);
            *card = &cards[n];
            return OK;
        }
    return INVALID;
}

int nvmlDeviceGetName(struct card *card, char *text, unsigned size)
{
    ENTER(card);
    return copy(text, size, card->name);
}

int nvmlDeviceGetUUID(struct card *card, char *text, unsigned size)
{
    ENTER(card);
    return copy(text, size, card->uuid);
}

struct pci {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char text[32];
};

int nvmlDeviceGetPciInfo_v3(struct card *card, struct pci *pci)
{
    ENTER(card);
    const struct card *whole = card->parent < 0 ? card : &cards[card->parent];
    memset(pci, 0, sizeof *pci);
    pci->domain = whole->domain;
    pci->bus = whole->bus;
    pci->device = whole->device;
    snprintf(pci->text, sizeof pci->text, "%08X:%02X:%02X.0", whole->domain, whole->bus & 0xff,
             whole->device & 0x1f);
    memcpy(pci->legacy, pci->text + 4, sizeof pci->legacy - 4); /* with a domain of four digits */
    return OK;
}

int nvmlDeviceGetMemoryInfo(struct card *card, unsigned long long *memory)
{
    ENTER(card);
    if (!card->memory_mib)
        return UNSUPPORTED;
    memory[0] = memory[1] = card->memory_mib << 20;
    memory[2] = 0;
    return OK;
}

int nvmlDeviceGetMinorNumber(struct card *card, unsigned *minor)
{
    ENTER(card);
    *minor = card->minor;
    return OK;
}

int nvmlDeviceGetCudaComputeCapability(struct card *card, int *major, int *minor)
{
    ENTER(card);
    *major = (int)card->major_cc;
    *minor = (int)card->minor_cc;
    return OK;
}

int nvmlDeviceGetNumaNodeId(struct card *card, unsigned *node)
{
    ENTER(card);
    *node = 0;
    return OK;
}

int nvmlDeviceGetCpuAffinity(struct card *card, unsigned size, unsigned long *mask)
{
    ENTER(card);
    for (unsigned n = 0; n < size; n++)
        mask[n] = n < 16 ? card->cpus[n] : 0;
    return OK;
}

int nvmlDeviceGetMigMode(struct card *card, unsigned *current, unsigned *pending)
{
    ENTER(card);
    if (card->mig < 0)
        return UNSUPPORTED;
    *current = *pending = (unsigned)card->mig;
    return OK;
}

int nvmlDeviceGetMaxMigDeviceCount(struct card *card, unsigned *count)
{
    ENTER(card);
    *count = card->mig == 1 ? 7 : 0;
    return OK;
}

int nvmlDeviceGetMigDeviceHandleByIndex(struct card *card, unsigned index, struct card **part)
{
    ENTER(card);
    for (unsigned n = 0, seen = 0; n < card_count; n++)
        if (cards[n].parent == (int)(card - cards) && seen++ == index) {
            *part = &cards[n];
            return OK;
        }
    return NOT_FOUND;
}

int nvmlDeviceGetGpuInstanceId(struct card *card, unsigned *id)
{
    ENTER(card);
    *id = card->gi;
    return OK;
}

int nvmlDeviceGetComputeInstanceId(struct card *card, unsigned *id)
{
    ENTER(card);
    *id = card->ci;
    return OK;
}

struct attributes {
    unsigned multiprocessors, copy, decoders, encoders, jpeg, ofa, slices, compute_slices;
    unsigned long long memory_mib;
};

int nvmlDeviceGetAttributes_v2(struct card *card, struct attributes *found)
{
    ENTER(card);
    memset(found, 0, sizeof *found);
    found->slices = card->slices;
    found->compute_slices = card->compute_slices;
    found->memory_mib = card->memory_mib;
    return OK;
}

/* Slurm asks these of every card; that they are not supported is an answer it knows. */
#define REFUSES(name)                                                                              \
    int name(struct card *card)                                                                    \
    {                                                                                              \
        ENTER(card);                                                                               \
        return UNSUPPORTED;                                                                        \
    }

REFUSES(nvmlDeviceGetNvLinkState)
REFUSES(nvmlDeviceGetNvLinkRemotePciInfo_v2)
REFUSES(nvmlDeviceGetSupportedMemoryClocks)
REFUSES(nvmlDeviceGetSupportedGraphicsClocks)
REFUSES(nvmlDeviceGetApplicationsClock)
REFUSES(nvmlDeviceSetApplicationsClocks)
REFUSES(nvmlDeviceResetApplicationsClocks)
REFUSES(nvmlDeviceGetProcessUtilization)

int nvmlDeviceGetComputeRunningProcesses_v3(struct card *card, unsigned *count)
{
    ENTER(card);
    *count = 0;
    return OK;
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(struct card *card, unsigned *count)
{
    ENTER(card);
    *count = 0;
    return OK;
}
