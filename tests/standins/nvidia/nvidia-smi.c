/*
 * A stand-in for nvidia-smi: `nvidia-smi -L`, asked of whatever libnvidia-ml.so.1 the loader finds,
 * with the real tool's lines, error texts and exit codes (NVML's own).
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { OK = 0, LIBRARY_NOT_FOUND = 12, NO_DRIVER = 9, MISMATCH = 18, NO_DEVICES = 6, TEXT = 96 };

typedef int (*plain_fn)(void);
typedef int (*count_fn)(unsigned *);
typedef int (*handle_fn)(unsigned, void **);
typedef int (*text_fn)(void *, char *, unsigned);
typedef int (*version_fn)(char *, unsigned);
typedef int (*instances_fn)(void *, unsigned *);
typedef int (*instance_fn)(void *, unsigned, void **);
typedef const char *(*words_fn)(int);

static void *library;

static int no_library(void)
{
    puts("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the "
         "NVIDIA Display Driver is properly installed and present in your system.\n"
         "Please also try adding directory that contains libnvidia-ml.so to your system PATH.");
    return LIBRARY_NOT_FOUND;
}

static int no_start(int code)
{
    char version[TEXT] = "";
    version_fn ask = (version_fn)dlsym(library, "nvmlSystemGetNVMLVersion");
    words_fn words = (words_fn)dlsym(library, "nvmlErrorString");
    if (code == NO_DRIVER) {
        puts("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure "
             "that the latest NVIDIA driver is installed and running.\n");
        return code;
    }
    if (code != MISMATCH) {
        printf("Failed to initialize NVML: %s\n", words ? words(code) : "Unknown Error");
        return code & 0xff;
    }
    puts("Failed to initialize NVML: Driver/library version mismatch");
    if (ask && ask(version, sizeof version) == OK && strchr(version, '.'))
        printf("NVML library version: %s\n", strchr(version, '.') + 1);
    return code;
}

static void list_instances(void *card)
{
    instances_fn most = (instances_fn)dlsym(library, "nvmlDeviceGetMaxMigDeviceCount");
    instance_fn get = (instance_fn)dlsym(library, "nvmlDeviceGetMigDeviceHandleByIndex");
    text_fn uuid = (text_fn)dlsym(library, "nvmlDeviceGetUUID");
    text_fn name = (text_fn)dlsym(library, "nvmlDeviceGetName");
    unsigned count = 0;
    if (!most || !get || most(card, &count) != OK)
        return;
    for (unsigned n = 0; n < count; n++) {
        char id[TEXT] = "", text[TEXT] = "";
        void *part;
        if (get(card, n, &part) != OK || uuid(part, id, TEXT) != OK)
            continue;
        name(part, text, TEXT);
        const char *profile = strstr(text, " MIG ");
        printf("  MIG %-10s  Device %2u: (UUID: %s)\n", profile ? profile + 5 : "", n, id);
    }
}

static int list(void)
{
    count_fn counter = (count_fn)dlsym(library, "nvmlDeviceGetCount_v2");
    handle_fn get = (handle_fn)dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    text_fn name = (text_fn)dlsym(library, "nvmlDeviceGetName");
    text_fn uuid = (text_fn)dlsym(library, "nvmlDeviceGetUUID");
    unsigned count = 0;
    if (!counter || !get || !name || !uuid || counter(&count) != OK || !count) {
        puts("No devices found.");
        return NO_DEVICES;
    }
    for (unsigned n = 0; n < count; n++) {
        char text[TEXT] = "", id[TEXT] = "";
        void *card;
        int code = get(n, &card);
        if (code == OK && name(card, text, TEXT) == OK && uuid(card, id, TEXT) == OK) {
            printf("GPU %u: %s (UUID: %s)\n", n, text, id);
            list_instances(card);
        } else {
            words_fn words = (words_fn)dlsym(library, "nvmlErrorString");
            printf("Unable to determine the device handle for gpu %u: %s\n", n,
                   words ? words(code) : "Unknown Error");
        }
    }
    return OK;
}

int main(int count, char **arguments)
{
    if (count != 2 || strcmp(arguments[1], "-L")) {
        puts("This stand-in knows nvidia-smi -L alone.");
        return 2;
    }
    library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (!library)
        return no_library();
    plain_fn start = (plain_fn)dlsym(library, "nvmlInit_v2");
    int code = start ? start() : LIBRARY_NOT_FOUND;
    return code == OK ? list() : no_start(code);
}
