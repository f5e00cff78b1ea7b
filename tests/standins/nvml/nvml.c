/*
 * A stand-in for libnvidia-ml.so.1: the part of NVML that nvidia-ml-py on the host and Slurm's
 * gpu_nvml.so in the container ask, answered from a text file.
 *
 * The file is $DSHPC_STANDIN_NVML, else /etc/dshpc-standin/nvml.txt. Its lines:
 *
 *   driver 550.163.01              version of the driver
 *   cuda 12040                     what it can do, as NVML counts it
 *   nodes                          only cards after this line whose /dev/nvidiaMINOR can be opened
 *                                  are there, and none without /dev/nvidiactl, as with a real one
 *   gpu KEY=VALUE ... name=NAME    a card: minor, bus, memory (MiB), compute (9.0), cpus (0-3,8),
 *                                  uuid, mig (0 or 1), persistence (0 or 1), compute_mode (0 to 3),
 *                                  ecc (0 or 1), virtualization (0 to 4), fabric (STATE or
 *                                  STATE/STATUS), health (the fabric's, MASK/SUMMARY),
 *                                  mig_pending (0 or 1), dram and sram (uncorrected errors,
 *                                  VOLATILE/AGGREGATE), threshold (0 or 1), rows (remapped,
 *                                  UNCORRECTABLE/PENDING/FAILED), retired (0 or 1), recovery
 *                                  (0 to 7), used (MiB), utilization (percent), temperature (C),
 *                                  power and power_limit (mW), sm_clock and memory_clock (MHz),
 *                                  energy (mJ); name is the last key and takes the
 *                                  rest of the line
 *   instance KEY=VALUE ...         a MIG instance of the card before: gi, ci, memory, used,
 *                                  slices (3/3), uuid, profile
 *   nvlink KEY=VALUE ...           NVLinks of the card before: links (0-5,8), up (1 without it),
 *                                  peer (00000000:3b:00), kind (gpu, switch or cpu)
 *   process KEY=VALUE ...          a process on the card or instance before: pid, memory (MiB),
 *                                  kind (compute without it, or graphics)
 *   fail FUNCTION CODE [GPU]       the function answers with that code (of that card only)
 *   hang FUNCTION [GPU]            the function never returns (of that card only)
 *   crash FUNCTION [GPU]           the function ends the process by a segmentation fault
 *   say FUNCTION TEXT              the function prints TEXT to standard output first
 *
 * It is read again when it has changed: that is how readings move under a process that keeps the library open.
 *
 * What has no key is not supported (code 3); what `used` does not say is 0. Without the file there is
 * no driver: code 9.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OK = 0, INVALID = 2, UNSUPPORTED = 3, DENIED = 4, NOT_FOUND = 6, SHORT = 7, NO_DRIVER = 9,
       VERSION = 25, UNKNOWN = 999 };
enum { MOST = 32, TEXT = 96, LINKS = 18 };
enum { NO_LINK = 0, LINK_DOWN = 1, LINK_UP = 2 };

struct link {
    int state; /* NO_LINK where the card has none of this number */
    unsigned domain, bus, device, kind;
};

struct card {
    int parent; /* -1, or the card that this is an instance of */
    unsigned minor, domain, bus, device, major_cc, minor_cc, gi, ci, slices, compute_slices;
    int mig, persistence, compute_mode, ecc, virtualization; /* -1: not supported */
    int mig_pending, dram[2], sram[2], threshold, rows[3], retired, recovery, health[2];
    int fabric, fabric_status, utilization, temperature, power, power_limit;
    int sm_clock, memory_clock, energy;
    unsigned long long memory_mib, used_mib;
    struct link links[LINKS];
    unsigned long cpus[16];
    char uuid[TEXT], name[TEXT], profile[TEXT];
};

struct process {
    int card, graphics;
    unsigned pid;
    unsigned long long memory_mib;
};

struct rule {
    char kind, function[TEXT], text[TEXT];
    int code, gpu; /* gpu -1: all */
};

static struct card cards[MOST * 8];
static struct rule rules[64];
static struct process processes[64];
static unsigned card_count, rule_count, process_count;
static char driver[TEXT] = "550.163.01";
static int cuda = 12040, is_read, is_there, by_nodes, is_hidden, control_code;

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

static int number_of(const char *line, const char *key, int otherwise)
{
    char text[TEXT];
    return value_of(line, key, text) ? atoi(text) : otherwise;
}

/* "0-3,8" as bits; 1024 of them at most. */
static void parse_ranges(const char *text, unsigned long *mask)
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
    if (instance)
        for (card->parent = (int)card_count - 1; card->parent > 0; card->parent--)
            if (cards[card->parent].parent < 0)
                break;
    card->minor = (unsigned)number_of(line, "minor", 0);
    if (value_of(line, "bus", text))
        sscanf(text, "%x:%x:%x", &card->domain, &card->bus, &card->device);
    if (value_of(line, "memory", text))
        card->memory_mib = strtoull(text, NULL, 10);
    if (value_of(line, "used", text))
        card->used_mib = strtoull(text, NULL, 10);
    if (value_of(line, "compute", text))
        sscanf(text, "%u.%u", &card->major_cc, &card->minor_cc);
    card->mig = number_of(line, "mig", -1);
    card->persistence = number_of(line, "persistence", -1);
    card->compute_mode = number_of(line, "compute_mode", -1);
    card->ecc = number_of(line, "ecc", -1);
    card->virtualization = number_of(line, "virtualization", -1);
    card->mig_pending = number_of(line, "mig_pending", card->mig);
    card->threshold = number_of(line, "threshold", -1);
    card->retired = number_of(line, "retired", -1);
    card->recovery = number_of(line, "recovery", -1);
    card->dram[0] = card->dram[1] = card->sram[0] = card->sram[1] = card->rows[0] = -1;
    card->health[0] = card->health[1] = 0;
    if (value_of(line, "dram", text))
        sscanf(text, "%d/%d", &card->dram[0], &card->dram[1]);
    if (value_of(line, "sram", text))
        sscanf(text, "%d/%d", &card->sram[0], &card->sram[1]);
    if (value_of(line, "rows", text))
        sscanf(text, "%d/%d/%d", &card->rows[0], &card->rows[1], &card->rows[2]);
    if (value_of(line, "health", text))
        sscanf(text, "%d/%d", &card->health[0], &card->health[1]);
    card->utilization = number_of(line, "utilization", -1);
    card->temperature = number_of(line, "temperature", -1);
    card->power = number_of(line, "power", -1);
    card->power_limit = number_of(line, "power_limit", -1);
    card->sm_clock = number_of(line, "sm_clock", -1);
    card->memory_clock = number_of(line, "memory_clock", -1);
    card->energy = number_of(line, "energy", -1);
    card->fabric = -1;
    if (value_of(line, "fabric", text))
        sscanf(text, "%d/%d", &card->fabric, &card->fabric_status);
    card->gi = (unsigned)number_of(line, "gi", 0);
    card->ci = (unsigned)number_of(line, "ci", 0);
    if (value_of(line, "slices", text))
        sscanf(text, "%u/%u", &card->slices, &card->compute_slices);
    if (value_of(line, "cpus", text))
        parse_ranges(text, card->cpus);
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

static void parse_links(const char *line)
{
    if (!card_count)
        return;
    struct card *card = &cards[card_count - 1];
    unsigned long mask[16] = {0};
    struct link link = {.state = number_of(line, "up", 1) ? LINK_UP : LINK_DOWN};
    char text[TEXT];
    if (value_of(line, "links", text))
        parse_ranges(text, mask);
    if (value_of(line, "peer", text))
        sscanf(text, "%x:%x:%x", &link.domain, &link.bus, &link.device);
    link.kind = 0xff; /* NVML's "unknown" */
    if (value_of(line, "kind", text))
        link.kind = text[0] == 'g' ? 0 : text[0] == 'c' ? 1 : 2;
    for (unsigned n = 0; n < LINKS; n++)
        if (mask[0] >> n & 1)
            card->links[n] = link;
}

static void parse_process(const char *line)
{
    char text[TEXT];
    if (!card_count || process_count >= sizeof processes / sizeof *processes)
        return;
    struct process *process = &processes[process_count++];
    process->card = (int)card_count - 1;
    process->pid = (unsigned)number_of(line, "pid", 1);
    process->memory_mib = (unsigned long long)number_of(line, "memory", 0);
    process->graphics = value_of(line, "kind", text) && text[0] == 'g';
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
    else if (line[0] != 'f')
        sscanf(line, "%*s %95s %d", rule->function, &rule->gpu);
    else
        sscanf(line, "%*s %95s %d %d", rule->function, &rule->code, &rule->gpu);
}

/* 0 where the node can be opened, else what NVML says of its refusal. */
static int node_code(const char *path)
{
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file >= 0) {
        close(file);
        return OK;
    }
    return errno == EACCES ? DENIED : errno == EPERM ? UNKNOWN : NO_DRIVER;
}

static int has_no_node(const char *line)
{
    char path[TEXT];
    snprintf(path, sizeof path, "/dev/nvidia%d", number_of(line, "minor", 0));
    return by_nodes && node_code(path) != OK;
}

static void read_file(void)
{
    static struct stat seen;
    struct stat now = {0};
    const char *path = getenv("DSHPC_STANDIN_NVML");
    path = path && *path ? path : "/etc/dshpc-standin/nvml.txt";
    stat(path, &now);
    if (is_read && now.st_ino == seen.st_ino && now.st_size == seen.st_size &&
        !memcmp(&now.st_mtim, &seen.st_mtim, sizeof now.st_mtim))
        return;
    is_read = 1;
    seen = now;
    is_there = by_nodes = is_hidden = control_code = 0;
    card_count = rule_count = process_count = 0;
    memset(cards, 0, sizeof cards);
    FILE *file = fopen(path, "r");
    if (!file)
        return;
    is_there = 1;
    char line[1024];
    while (fgets(line, sizeof line, file)) {
        if (!strncmp(line, "driver ", 7))
            sscanf(line, "driver %95s", driver);
        else if (!strncmp(line, "cuda ", 5))
            cuda = atoi(line + 5);
        else if (!strncmp(line, "nodes", 5)) {
            by_nodes = 1;
            control_code = node_code("/dev/nvidiactl");
        } else if (!strncmp(line, "gpu ", 4)) {
            is_hidden = has_no_node(line);
            if (!is_hidden)
                parse_card(line, 0);
        } else if (is_hidden && (!strncmp(line, "instance ", 9) || !strncmp(line, "nvlink ", 7) ||
                                 !strncmp(line, "process ", 8)))
            continue; /* of a card that is not there */
        else if (!strncmp(line, "instance ", 9))
            parse_card(line, 1);
        else if (!strncmp(line, "nvlink ", 7))
            parse_links(line);
        else if (!strncmp(line, "process ", 8))
            parse_process(line);
        else if (!strncmp(line, "fail ", 5) || !strncmp(line, "hang ", 5) ||
                 !strncmp(line, "crash ", 6) || !strncmp(line, "say ", 4))
            parse_rule(line);
    }
    fclose(file);
}

/* The number of the card, or of the card that an instance is part of. */
static int index_of(const struct card *card)
{
    int index = 0;
    card = card->parent < 0 ? card : &cards[card->parent];
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
    if (control_code)
        return control_code;
    for (unsigned n = 0; n < rule_count; n++) {
        const struct rule *rule = &rules[n];
        if (strcmp(rule->function, function))
            continue;
        if (rule->gpu >= 0 && !(card && index_of(card) == rule->gpu))
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
        if (rule->kind == 'f')
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
    case 13: return "Function Not Found";
    case 15: return "GPU is lost";
    case 16: return "GPU requires restart";
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

static int fill_pci(struct pci *pci, unsigned domain, unsigned bus, unsigned device)
{
    memset(pci, 0, sizeof *pci);
    pci->domain = domain;
    pci->bus = bus;
    pci->device = device;
    snprintf(pci->text, sizeof pci->text, "%08X:%02X:%02X.0", domain, bus & 0xff, device & 0x1f);
    memcpy(pci->legacy, pci->text + 4, sizeof pci->legacy - 4); /* with a domain of four digits */
    return OK;
}

int nvmlDeviceGetPciInfo_v3(struct card *card, struct pci *pci)
{
    ENTER(card);
    const struct card *whole = card->parent < 0 ? card : &cards[card->parent];
    return fill_pci(pci, whole->domain, whole->bus, whole->device);
}

int nvmlDeviceGetMemoryInfo(struct card *card, unsigned long long *memory)
{
    ENTER(card);
    if (!card->memory_mib)
        return UNSUPPORTED;
    memory[0] = card->memory_mib << 20;
    memory[1] = (card->memory_mib - card->used_mib) << 20;
    memory[2] = card->used_mib << 20;
    return OK;
}

struct memory {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

int nvmlDeviceGetMemoryInfo_v2(struct card *card, struct memory *memory)
{
    ENTER(card);
    if (!card->memory_mib)
        return UNSUPPORTED;
    memory->total = card->memory_mib << 20;
    memory->reserved = 0;
    memory->free = (card->memory_mib - card->used_mib) << 20;
    memory->used = card->used_mib << 20;
    return OK;
}

/* One whole number of a card, not supported where its description has none. */
#define ANSWERS(name, type, field)                                                                 \
    int name(struct card *card, type *value)                                                       \
    {                                                                                              \
        ENTER(card);                                                                               \
        if (card->field < 0)                                                                       \
            return UNSUPPORTED;                                                                    \
        *value = (type)card->field;                                                                \
        return OK;                                                                                 \
    }

ANSWERS(nvmlDeviceGetPersistenceMode, unsigned, persistence)
ANSWERS(nvmlDeviceGetComputeMode, unsigned, compute_mode)
ANSWERS(nvmlDeviceGetVirtualizationMode, unsigned, virtualization) /* an enumeration: 4 bytes */
ANSWERS(nvmlDeviceGetPowerUsage, unsigned, power)
ANSWERS(nvmlDeviceGetEnforcedPowerLimit, unsigned, power_limit)
ANSWERS(nvmlDeviceGetTotalEnergyConsumption, unsigned long long, energy)

int nvmlDeviceGetClockInfo(struct card *card, unsigned kind, unsigned *mhz)
{
    int clock = kind == 1 ? card->sm_clock : kind == 2 ? card->memory_clock : -1;

    ENTER(card);
    if (clock < 0)
        return UNSUPPORTED;
    *mhz = (unsigned)clock;
    return OK;
}

int nvmlDeviceGetEccMode(struct card *card, unsigned *current, unsigned *pending)
{
    ENTER(card);
    if (card->ecc < 0)
        return UNSUPPORTED;
    *current = *pending = (unsigned)card->ecc;
    return OK;
}

enum { UNCORRECTED = 1, DRAM = 2, SRAM = 7 };

int nvmlDeviceGetMemoryErrorCounter(struct card *card, unsigned kind, unsigned when, unsigned where,
                                    unsigned long long *count)
{
    ENTER(card);
    if (kind != UNCORRECTED || when > 1)
        return INVALID;
    const int *counts = where == DRAM ? card->dram : where == SRAM ? card->sram : NULL;
    if (!counts || counts[when] < 0)
        return UNSUPPORTED;
    *count = (unsigned long long)counts[when];
    return OK;
}

int nvmlDeviceGetTotalEccErrors(struct card *card, unsigned kind, unsigned when,
                                unsigned long long *count)
{
    ENTER(card);
    if (kind != UNCORRECTED || when || card->dram[0] < 0)
        return UNSUPPORTED;
    *count = (unsigned long long)card->dram[0];
    return OK;
}

struct sram_status {
    unsigned version;
    unsigned long long counts[11];
    unsigned over_threshold;
};

int nvmlDeviceGetSramEccErrorStatus(struct card *card, struct sram_status *found)
{
    ENTER(card);
    if ((found->version & 0xffffff) != sizeof *found)
        return VERSION;
    if (card->threshold < 0)
        return UNSUPPORTED;
    found->over_threshold = (unsigned)card->threshold;
    return OK;
}

int nvmlDeviceGetRemappedRows(struct card *card, unsigned *correctable, unsigned *uncorrectable,
                              unsigned *pending, unsigned *failed)
{
    ENTER(card);
    if (card->rows[0] < 0)
        return UNSUPPORTED;
    *correctable = 0;
    *uncorrectable = (unsigned)card->rows[0];
    *pending = (unsigned)card->rows[1];
    *failed = (unsigned)card->rows[2];
    return OK;
}

int nvmlDeviceGetRetiredPagesPendingStatus(struct card *card, unsigned *pending)
{
    ENTER(card);
    if (card->retired < 0)
        return UNSUPPORTED;
    *pending = (unsigned)card->retired;
    return OK;
}

struct field_value {
    unsigned field, scope;
    long long timestamp, latency_us;
    unsigned type;
    int code;
    union {
        double real;
        unsigned whole;
        unsigned long long large;
    } value;
};

#define RECOVERY_ACTION 230 /* NVML_FI_DEV_GET_GPU_RECOVERY_ACTION */

int nvmlDeviceGetFieldValues(struct card *card, int count, struct field_value *found)
{
    ENTER(card);
    for (int at = 0; at < count; at++) {
        int known = found[at].field == RECOVERY_ACTION && card->recovery >= 0;
        found[at].code = known ? OK : UNSUPPORTED;
        if (known)
            found[at].value.whole = (unsigned)card->recovery;
    }
    return OK;
}

int nvmlDeviceGetUtilizationRates(struct card *card, unsigned *rates)
{
    ENTER(card);
    if (card->utilization < 0)
        return UNSUPPORTED;
    rates[0] = (unsigned)card->utilization;
    rates[1] = 0;
    return OK;
}

int nvmlDeviceGetTemperature(struct card *card, unsigned sensor, unsigned *celsius)
{
    ENTER(card);
    if (sensor)
        return INVALID;
    if (card->temperature < 0)
        return UNSUPPORTED;
    *celsius = (unsigned)card->temperature;
    return OK;
}

struct temperature {
    unsigned version, sensor;
    int celsius;
};

int nvmlDeviceGetTemperatureV(struct card *card, struct temperature *found)
{
    ENTER(card);
    if (found->sensor)
        return INVALID;
    if (card->temperature < 0)
        return UNSUPPORTED;
    found->celsius = card->temperature;
    return OK;
}

struct fabric {
    unsigned char cluster[16];
    unsigned status, clique;
    unsigned char state;
};

struct fabric_v2 {
    unsigned version;
    struct fabric fabric;
    unsigned health;
};

struct fabric_v3 {
    struct fabric_v2 v2;
    unsigned char summary;
};

static int fill_fabric(const struct card *card, struct fabric *found)
{
    if (card->fabric < 0)
        return UNSUPPORTED;
    memset(found, 0, sizeof *found);
    found->state = (unsigned char)card->fabric;
    found->status = (unsigned)card->fabric_status;
    return OK;
}

int nvmlDeviceGetGpuFabricInfo(struct card *card, struct fabric *found)
{
    ENTER(card);
    return fill_fabric(card, found);
}

int nvmlDeviceGetGpuFabricInfoV(struct card *card, struct fabric_v2 *found)
{
    ENTER(card);
    int newer = found->version == (sizeof(struct fabric_v3) | 3u << 24);
    if (!newer && (found->version & 0xffffff) != sizeof *found)
        return VERSION;
    int code = fill_fabric(card, &found->fabric);
    found->health = (unsigned)card->health[0];
    if (newer)
        ((struct fabric_v3 *)found)->summary = (unsigned char)card->health[1];
    return code;
}

/* A card without links, or one in MIG mode, supports none; one with links knows how many. */
static int find_link(const struct card *card, unsigned number, const struct link **link)
{
    int has_links = 0;
    for (unsigned n = 0; n < LINKS; n++)
        has_links |= card->links[n].state != NO_LINK;
    if (!has_links || card->mig == 1)
        return UNSUPPORTED;
    if (number >= LINKS || card->links[number].state == NO_LINK)
        return INVALID;
    *link = &card->links[number];
    return OK;
}

int nvmlDeviceGetNvLinkState(struct card *card, unsigned number, unsigned *is_up)
{
    const struct link *link;
    ENTER(card);
    int code = find_link(card, number, &link);
    if (!code)
        *is_up = link->state == LINK_UP;
    return code;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(struct card *card, unsigned number, struct pci *pci)
{
    const struct link *link;
    ENTER(card);
    int code = find_link(card, number, &link);
    return code ? code : fill_pci(pci, link->domain, link->bus, link->device);
}

int nvmlDeviceGetNvLinkRemoteDeviceType(struct card *card, unsigned number, unsigned *kind)
{
    const struct link *link;
    ENTER(card);
    int code = find_link(card, number, &link);
    if (!code)
        *kind = link->kind;
    return code;
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
    *current = (unsigned)card->mig;
    *pending = (unsigned)card->mig_pending;
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

REFUSES(nvmlDeviceGetSupportedMemoryClocks)
REFUSES(nvmlDeviceGetSupportedGraphicsClocks)
REFUSES(nvmlDeviceGetApplicationsClock)
REFUSES(nvmlDeviceSetApplicationsClocks)
REFUSES(nvmlDeviceResetApplicationsClocks)
REFUSES(nvmlDeviceGetProcessUtilization)

struct running {
    unsigned pid;
    unsigned long long bytes;
    unsigned gi, ci;
};

static int list(const struct card *card, int graphics, unsigned *room, struct running *found)
{
    unsigned count = 0;
    for (unsigned n = 0; n < process_count; n++) {
        const struct card *holder = &cards[processes[n].card];
        int is_part = holder->parent == (int)(card - cards);
        if (processes[n].graphics != graphics || (holder != card && !is_part))
            continue;
        if (found && count < *room)
            found[count] = (struct running){
                processes[n].pid,
                processes[n].memory_mib << 20,
                holder->parent < 0 ? ~0U : holder->gi,
                holder->parent < 0 ? ~0U : holder->ci,
            };
        count++;
    }
    int code = count > *room ? SHORT : OK;
    *room = count;
    return code;
}

int nvmlDeviceGetComputeRunningProcesses_v3(struct card *card, unsigned *count, struct running *found)
{
    ENTER(card);
    return list(card, 0, count, found);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(struct card *card, unsigned *count, struct running *found)
{
    ENTER(card);
    return list(card, 1, count, found);
}
