/* A libnvidia-ml.so.1 without a GPU: NVML's binary interface, played from a script.
 *
 *   cc -shared -fPIC -O2 -Wl,-soname,libnvidia-ml.so.1 -o DIR/libnvidia-ml.so.1 fake_nvml.c -lm
 *   LD_LIBRARY_PATH=DIR PERFKIT_FAKE_NVML_SCRIPT=FILE program
 *
 * README.md beside this file describes the script. Power and utilisation are curves over time whose integrals are known
 * in closed form, so the energy counter is exact; readings are refreshed in periods, as a driver's are.
 */
#define _GNU_SOURCE
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SHOWN __attribute__((visibility("default")))
#define MOST_DEVICES 16
#define MOST_POINTS 64
#define MOST_FAILURES 32
#define MOST_PROCESSES 8
#define KEPT_SAMPLES 100
#define UNSET 0xffffffffu

/* nvmlReturn_t */
enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, GPU_IS_LOST = 15,
       UNKNOWN = 999 };
/* nvmlValueType_t */
enum { UNSIGNED_INT = 1, UNSIGNED_LONG_LONG = 3 };
/* nvmlSamplingType_t */
enum { TOTAL_POWER_SAMPLES = 0, GPU_UTILIZATION_SAMPLES = 1, MEMORY_UTILIZATION_SAMPLES = 2 };
/* NVML_FI_DEV_… */
enum { FIELD_ENERGY = 83, FIELD_POWER_AVERAGE = 185, FIELD_POWER_INSTANT = 186 };

typedef union { double d; unsigned int ui; unsigned long ul; unsigned long long ull; long long sll; int si; unsigned short us; } Value;
typedef struct { unsigned long long time_us; Value value; } Sample;
typedef struct { unsigned int field, scope; long long time_us, latency_us; unsigned int type, result; Value value; } FieldValue;
typedef struct { unsigned int gpu, memory; } Utilization;
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned int version; unsigned long long total, reserved, free, used; } MemoryV2;
typedef struct { unsigned int pid; unsigned long long used; unsigned int gpu_instance, compute_instance; } Process;

_Static_assert(sizeof(Sample) == 16, "nvmlSample_t");
_Static_assert(sizeof(FieldValue) == 40, "nvmlFieldValue_t");
_Static_assert(sizeof(Memory) == 24, "nvmlMemory_t");
_Static_assert(sizeof(MemoryV2) == 40, "nvmlMemory_v2_t");
_Static_assert(sizeof(Process) == 24, "nvmlProcessInfo_v2_t");

typedef struct { char kind; int count; double at[MOST_POINTS], value[MOST_POINTS]; } Curve; /* kind: 's'teps, 'l'ine, si'n'e */
typedef struct { char call[64]; unsigned int code; double from, until; } Failure;

typedef struct Device {
    char name[96], uuid[96];
    struct Device *parent; /* of a MIG instance */
    int is_divided, instances[8], instance_count, power_usage_is_average;
    unsigned int persistence, compute_mode, power_limit_mw, default_power_limit_mw, sm_clock_limit, default_sm_clock_limit;
    unsigned long long memory_total, reserved;
    double power_period, utilization_period, lost_at;
    Curve power, utilization, memory_utilization, memory_used, temperature, sm_clock, memory_clock, reasons, ecc_corrected, ecc_uncorrected,
        pcie_sent, pcie_received;
    Process processes[MOST_PROCESSES];
    int process_count, failure_count;
    Failure failures[MOST_FAILURES];
} Device;

static Device devices[MOST_DEVICES], nobody; /* `nobody` holds the failures of calls without a device */
static int device_count, physical[MOST_DEVICES], physical_count, is_initialized;
static char driver[80];
static int cuda_version;
static double pcie_blocks_s;
static unsigned long long epoch_us, clock_us;

/* ------------------------------------------------------------------ time */

SHOWN void fake_nvml_set_clock_us(unsigned long long now_us) { clock_us = now_us; } /* 0: the machine's clock */

static unsigned long long now_us(void) {
    struct timespec now;
    if (clock_us) return clock_us;
    clock_gettime(CLOCK_REALTIME, &now);
    return (unsigned long long)now.tv_sec * 1000000ULL + (unsigned long long)now.tv_nsec / 1000;
}

static double now_s(void) { return ((double)now_us() - (double)epoch_us) / 1e6; }

/* the end of the last full period since the script's epoch; an epsilon is added because timestamps are whole microseconds */
static double refreshed_s(double time_s, double period_s) { return period_s > 0 ? floor(time_s / period_s + 1e-6) * period_s : time_s; }

static unsigned long long stamp_us(double time_s) { return epoch_us + (unsigned long long)llround(time_s * 1e6); }

/* ---------------------------------------------------------------- curves */

static double value_at(const Curve *curve, double t) {
    int i = 0;
    if (curve->kind == 'n') return curve->value[0] + curve->value[1] * sin(2 * M_PI * t / curve->value[2]);
    if (!curve->count) return 0;
    if (t < curve->at[0]) return curve->value[0];
    while (i + 1 < curve->count && curve->at[i + 1] <= t) i++;
    if (curve->kind == 's' || i + 1 == curve->count) return curve->value[i];
    return curve->value[i] + (curve->value[i + 1] - curve->value[i]) * (t - curve->at[i]) / (curve->at[i + 1] - curve->at[i]);
}

/* from the script's epoch to t */
static double integral_to(const Curve *curve, double t) {
    double sum = 0, from = 0;
    if (curve->kind == 'n') return curve->value[0] * t + curve->value[1] * curve->value[2] / (2 * M_PI) * (1 - cos(2 * M_PI * t / curve->value[2]));
    for (int i = 0; i <= curve->count && from < t; i++) {
        double to = i < curve->count && curve->at[i] < t ? curve->at[i] : t;
        if (to <= from) continue;
        /* the curve is linear between two points: its mean is its value in the middle */
        sum += value_at(curve, (from + to) / 2) * (to - from);
        from = to;
    }
    return sum;
}

static double mean_before(const Curve *curve, double t, double span_s) { return (integral_to(curve, t) - integral_to(curve, t - span_s)) / span_s; }

/* ---------------------------------------------------------------- script */

static void read_curve(Curve *curve, char *words) {
    char *rest, *word = strtok_r(words, " \t\n", &rest);
    memset(curve, 0, sizeof *curve);
    if (!word) return;
    curve->kind = !strcmp(word, "line") ? 'l' : !strcmp(word, "sine") ? 'n' : 's';
    if (curve->kind == 's' && strcmp(word, "steps")) { /* a single number: constant */
        curve->count = 1;
        curve->value[0] = strtod(word, NULL);
        return;
    }
    while ((word = strtok_r(NULL, " \t\n", &rest)) && curve->count < MOST_POINTS) {
        char *colon = strchr(word, ':');
        curve->at[curve->count] = colon ? strtod(word, NULL) : 0;
        curve->value[curve->count++] = strtod(colon ? colon + 1 : word, NULL);
    }
}

static Device *new_device(Device *parent) {
    Device *device = &devices[device_count];
    memset(device, 0, sizeof *device);
    snprintf(device->name, sizeof device->name, "Fake GPU");
    snprintf(device->uuid, sizeof device->uuid, "%s-%08x-0000-0000-0000-000000000000", parent ? "MIG" : "GPU", (unsigned)device_count);
    device->parent = parent;
    device->memory_total = 16ULL << 30;
    device->power_period = 0.1;
    device->utilization_period = 1.0 / 6;
    device->lost_at = INFINITY;
    device->persistence = 1;
    device->power_limit_mw = device->default_power_limit_mw = device->sm_clock_limit = device->default_sm_clock_limit = UNSET;
    if (parent) {
        parent->is_divided = 1;
        parent->instances[parent->instance_count++] = device_count;
    } else {
        physical[physical_count++] = device_count;
    }
    device_count++;
    return device;
}

static int read_script(const char *path) {
    char line[4096];
    Device *device = &nobody, *gpu = NULL;
    FILE *file = path ? fopen(path, "r") : NULL;
    device_count = physical_count = 0;
    pcie_blocks_s = 0;
    memset(&nobody, 0, sizeof nobody);
    nobody.lost_at = INFINITY;
    snprintf(driver, sizeof driver, "550.54.15");
    cuda_version = 12040;
    epoch_us = now_us();
    if (!file) return UNKNOWN;
    while (fgets(line, sizeof line, file)) {
        char *rest, *key = strtok_r(line, " \t\n", &rest);
        if (!key || *key == '#') continue;
        struct { const char *key; Curve *curve; } curves[] = {
            {"power_mw", &device->power}, {"utilization", &device->utilization}, {"memory_utilization", &device->memory_utilization},
            {"memory_used", &device->memory_used}, {"temperature", &device->temperature}, {"sm_clock", &device->sm_clock},
            {"memory_clock", &device->memory_clock}, {"throttle_reasons", &device->reasons}, {"ecc_corrected", &device->ecc_corrected},
            {"ecc_uncorrected", &device->ecc_uncorrected}, {"pcie_sent_kb_per_s", &device->pcie_sent},
            {"pcie_received_kb_per_s", &device->pcie_received}};
        int is_curve = 0;
        for (size_t i = 0; i < sizeof curves / sizeof *curves; i++)
            if (!strcmp(key, curves[i].key)) { read_curve(curves[i].curve, rest); is_curve = 1; }
        if (is_curve) continue;
        rest[strcspn(rest, "\n")] = 0;
        if (!strcmp(key, "gpu") && device_count < MOST_DEVICES) device = gpu = new_device(NULL);
        else if (!strcmp(key, "mig") && gpu && gpu->instance_count < 8 && device_count < MOST_DEVICES) device = new_device(gpu);
        else if (!strcmp(key, "divided")) device->is_divided = 1;
        else if (!strcmp(key, "driver")) snprintf(driver, sizeof driver, "%.79s", rest);
        else if (!strcmp(key, "cuda")) cuda_version = atoi(rest);
        else if (!strcmp(key, "persistence")) device->persistence = (unsigned)atoi(rest);
        else if (!strcmp(key, "compute_mode")) device->compute_mode = (unsigned)atoi(rest);
        else if (!strcmp(key, "power_limits_mw")) sscanf(rest, "%u %u", &device->power_limit_mw, &device->default_power_limit_mw);
        else if (!strcmp(key, "sm_clock_limits")) sscanf(rest, "%u %u", &device->sm_clock_limit, &device->default_sm_clock_limit);
        else if (!strcmp(key, "epoch_us")) epoch_us = strtoull(rest, NULL, 10);
        else if (!strcmp(key, "name")) snprintf(device->name, sizeof device->name, "%.95s", rest);
        else if (!strcmp(key, "uuid")) snprintf(device->uuid, sizeof device->uuid, "%.95s", rest);
        else if (!strcmp(key, "memory_total")) device->memory_total = strtoull(rest, NULL, 10);
        else if (!strcmp(key, "memory_reserved")) device->reserved = strtoull(rest, NULL, 10);
        else if (!strcmp(key, "power_period_s")) device->power_period = strtod(rest, NULL);
        else if (!strcmp(key, "utilization_period_s")) device->utilization_period = strtod(rest, NULL);
        else if (!strcmp(key, "power_usage")) device->power_usage_is_average = !strcmp(rest, "average");
        else if (!strcmp(key, "lost_at")) device->lost_at = strtod(rest, NULL);
        else if (!strcmp(key, "pcie_blocks_s")) pcie_blocks_s = strtod(rest, NULL);
        else if (!strcmp(key, "process") && device->process_count < MOST_PROCESSES) {
            Process *process = &device->processes[device->process_count++];
            memset(process, 0xff, sizeof *process);
            sscanf(rest, "%u %llu", &process->pid, &process->used); /* without a size: unknown */
        } else if (!strcmp(key, "fail") && device->failure_count < MOST_FAILURES) { /* fail CALL[:NUMBER] CODE [FROM_S [UNTIL_S]] */
            Failure *failure = &device->failures[device->failure_count++];
            failure->from = -INFINITY;
            failure->until = INFINITY;
            sscanf(rest, "%63s %u %lf %lf", failure->call, &failure->code, &failure->from, &failure->until);
        } else {
            fprintf(stderr, "fake_nvml: unknown line in %s: %s\n", path, key);
            abort();
        }
    }
    fclose(file);
    return SUCCESS;
}

/* ------------------------------------------------------------- refusals */

static unsigned int failure_of(const Device *device, const char *call, int number) {
    char numbered[80];
    snprintf(numbered, sizeof numbered, "%s:%d", call, number);
    for (int i = 0; i < device->failure_count; i++) {
        const Failure *one = &device->failures[i];
        if ((!strcmp(one->call, call) || !strcmp(one->call, numbered)) && one->from <= now_s() && now_s() < one->until) return one->code;
    }
    return SUCCESS;
}

static struct { char name[64]; unsigned long long calls; } asked[64];

static void count_call(const char *call) {
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
        if (!*asked[i].name) snprintf(asked[i].name, sizeof asked[i].name, "%s", call);
        if (!strcmp(asked[i].name, call)) { asked[i].calls++; return; }
    }
}

SHOWN unsigned long long fake_nvml_calls(const char *call) { /* of that function, so far */
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++)
        if (!strcmp(asked[i].name, call)) return asked[i].calls;
    return 0;
}

/* the error that a call to a device returns before it does anything */
static unsigned int refusal(const Device *device, const char *call, int number) {
    count_call(call);
    if (!is_initialized) return UNINITIALIZED;
    if (!device) return INVALID_ARGUMENT;
    if (now_s() >= (device->parent ? device->parent : device)->lost_at) return GPU_IS_LOST;
    return failure_of(device, call, number);
}

#define BEGIN(device, number)                                                                                                               \
    do {                                                                                                                                    \
        unsigned int refused_ = refusal(device, __func__, number);                                                                          \
        if (refused_) return refused_;                                                                                                      \
    } while (0)
/* a MIG instance reports memory only, and a divided GPU no utilisation */
#define WHOLE_GPU_ONLY(device) do { if ((device)->parent) return NOT_SUPPORTED; } while (0)

/* --------------------------------------------------------- the interface */

SHOWN unsigned int nvmlInitWithFlags(unsigned int flags) {
    (void)flags;
    if (is_initialized++) return SUCCESS;
    unsigned int result = read_script(getenv("PERFKIT_FAKE_NVML_SCRIPT"));
    if (!result) result = failure_of(&nobody, "nvmlInitWithFlags", 0);
    if (result) is_initialized = 0;
    return result;
}

SHOWN unsigned int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

SHOWN unsigned int nvmlShutdown(void) {
    if (!is_initialized) return UNINITIALIZED;
    is_initialized--;
    return SUCCESS;
}

SHOWN const char *nvmlErrorString(unsigned int result) {
    (void)result;
    return "an error of the fake library";
}

SHOWN unsigned int nvmlSystemGetDriverVersion(char *text, unsigned int length) {
    BEGIN(&nobody, 0);
    snprintf(text, length, "%s", driver);
    return SUCCESS;
}

SHOWN unsigned int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    BEGIN(&nobody, 0);
    *version = cuda_version;
    return SUCCESS;
}

SHOWN unsigned int nvmlDeviceGetCount_v2(unsigned int *count) {
    BEGIN(&nobody, 0);
    *count = (unsigned)physical_count;
    return SUCCESS;
}

SHOWN unsigned int nvmlDeviceGetHandleByIndex_v2(unsigned int index, Device **device) {
    BEGIN(&nobody, (int)index);
    if (index >= (unsigned)physical_count) return INVALID_ARGUMENT;
    *device = &devices[physical[index]];
    return SUCCESS;
}

SHOWN unsigned int nvmlDeviceGetName(Device *device, char *text, unsigned int length) {
    BEGIN(device, 0);
    snprintf(text, length, "%s", device->name);
    return SUCCESS;
}

SHOWN unsigned int nvmlDeviceGetUUID(Device *device, char *text, unsigned int length) {
    BEGIN(device, 0);
    snprintf(text, length, "%s", device->uuid);
    return SUCCESS;
}

/* a setting of the device; unsupported if the script does not name it */
#define SETTING(call, field)                                                                                                                \
    SHOWN unsigned int call(Device *device, unsigned int *value) {                                                                          \
        BEGIN(device, 0);                                                                                                                   \
        *value = device->field;                                                                                                             \
        return device->field == UNSET ? NOT_SUPPORTED : SUCCESS;                                                                            \
    }
#define SM_CLOCK_SETTING(call, field)                                                                                                       \
    SHOWN unsigned int call(Device *device, unsigned int clock, unsigned int *value) {                                                      \
        BEGIN(device, (int)clock);                                                                                                          \
        *value = device->field;                                                                                                             \
        return clock != 1 || device->field == UNSET ? NOT_SUPPORTED : SUCCESS;                                                              \
    }
SETTING(nvmlDeviceGetPersistenceMode, persistence)
SETTING(nvmlDeviceGetComputeMode, compute_mode)
SETTING(nvmlDeviceGetEnforcedPowerLimit, power_limit_mw)
SETTING(nvmlDeviceGetPowerManagementDefaultLimit, default_power_limit_mw)
SM_CLOCK_SETTING(nvmlDeviceGetApplicationsClock, sm_clock_limit)
SM_CLOCK_SETTING(nvmlDeviceGetDefaultApplicationsClock, default_sm_clock_limit)

SHOWN unsigned int nvmlDeviceGetMigMode(Device *device, unsigned int *current, unsigned int *pending) {
    BEGIN(device, 0);
    WHOLE_GPU_ONLY(device);
    *current = *pending = (unsigned)device->is_divided;
    return SUCCESS;
}

SHOWN unsigned int nvmlDeviceGetMaxMigDeviceCount(Device *device, unsigned int *count) {
    BEGIN(device, 0);
    *count = device->is_divided ? 7 : 0;
    return SUCCESS;
}

SHOWN unsigned int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, unsigned int index, Device **instance) {
    BEGIN(device, (int)index);
    if (index >= (unsigned)device->instance_count) return NOT_FOUND;
    *instance = &devices[device->instances[index]];
    return SUCCESS;
}

SHOWN unsigned int nvmlDeviceGetUtilizationRates(Device *device, Utilization *rates) {
    BEGIN(device, 0);
    WHOLE_GPU_ONLY(device);
    if (device->is_divided) return NOT_SUPPORTED;
    double end = refreshed_s(now_s(), device->utilization_period);
    rates->gpu = (unsigned)lround(mean_before(&device->utilization, end, device->utilization_period));
    rates->memory = (unsigned)lround(mean_before(&device->memory_utilization, end, device->utilization_period));
    return SUCCESS;
}

SHOWN unsigned int nvmlDeviceGetMemoryInfo(Device *device, Memory *memory) {
    BEGIN(device, 0);
    memory->total = device->memory_total;
    memory->used = (unsigned long long)value_at(&device->memory_used, now_s()) + device->reserved; /* as old drivers count */
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

SHOWN unsigned int nvmlDeviceGetMemoryInfo_v2(Device *device, MemoryV2 *memory) {
    BEGIN(device, 0);
    if (memory->version != (sizeof(MemoryV2) | 2u << 24)) return 25; /* NVML_ERROR_ARGUMENT_VERSION_MISMATCH */
    memory->total = device->memory_total;
    memory->reserved = device->reserved;
    memory->used = (unsigned long long)value_at(&device->memory_used, now_s());
    memory->free = memory->total - memory->used - memory->reserved;
    return SUCCESS;
}

SHOWN unsigned int nvmlDeviceGetPowerUsage(Device *device, unsigned int *milliwatts) {
    BEGIN(device, 0);
    WHOLE_GPU_ONLY(device);
    double end = refreshed_s(now_s(), device->power_period);
    *milliwatts = (unsigned)lround(device->power_usage_is_average ? mean_before(&device->power, end, 1) : value_at(&device->power, end));
    return SUCCESS;
}

static unsigned long long energy_mj(const Device *device) {
    return (unsigned long long)integral_to(&device->power, refreshed_s(now_s(), device->power_period)) + 1000000;
}

SHOWN unsigned int nvmlDeviceGetTotalEnergyConsumption(Device *device, unsigned long long *millijoules) {
    BEGIN(device, 0);
    WHOLE_GPU_ONLY(device);
    *millijoules = energy_mj(device);
    return SUCCESS;
}

SHOWN unsigned int nvmlDeviceGetFieldValues(Device *device, int count, FieldValue *values) {
    BEGIN(device, 0);
    for (int i = 0; i < count; i++) {
        FieldValue *one = &values[i];
        double end = refreshed_s(now_s(), device->power_period);
        one->time_us = (long long)stamp_us(end);
        one->latency_us = 0;
        one->result = failure_of(device, __func__, (int)one->field);
        one->type = one->field == FIELD_ENERGY ? UNSIGNED_LONG_LONG : UNSIGNED_INT;
        if (device->parent || one->scope) one->result = NOT_SUPPORTED;
        else if (one->field == FIELD_ENERGY) one->value.ull = energy_mj(device);
        else if (one->field == FIELD_POWER_INSTANT) one->value.ui = (unsigned)lround(value_at(&device->power, end));
        else if (one->field == FIELD_POWER_AVERAGE) one->value.ui = (unsigned)lround(mean_before(&device->power, end, 1));
        else one->result = NOT_SUPPORTED;
    }
    return SUCCESS;
}

SHOWN unsigned int nvmlDeviceGetSamples(Device *device, unsigned int type, unsigned long long last_seen_us, unsigned int *value_type,
                                        unsigned int *count, Sample *samples) {
    BEGIN(device, (int)type);
    WHOLE_GPU_ONLY(device);
    if (type > MEMORY_UTILIZATION_SAMPLES || (device->is_divided && type != TOTAL_POWER_SAMPLES)) return NOT_SUPPORTED;
    double period = type == TOTAL_POWER_SAMPLES ? device->power_period : device->utilization_period;
    long long newest = (long long)floor(now_s() / period + 1e-6), oldest = newest - KEPT_SAMPLES + 1;
    unsigned int found = 0;
    *value_type = UNSIGNED_INT;
    if (!samples) { /* the caller asks for the number of samples */
        *count = KEPT_SAMPLES;
        return SUCCESS;
    }
    for (long long k = oldest > 1 ? oldest : 1; k <= newest && found < *count; k++) {
        double end = (double)k * period;
        if (stamp_us(end) <= last_seen_us) continue;
        const Curve *curve = type == GPU_UTILIZATION_SAMPLES ? &device->utilization : &device->memory_utilization;
        samples[found].time_us = stamp_us(end);
        samples[found++].value.ui =
            (unsigned)lround(type == TOTAL_POWER_SAMPLES ? value_at(&device->power, end) : mean_before(curve, end, period));
    }
    *count = found;
    return found ? SUCCESS : NOT_FOUND;
}

SHOWN unsigned int nvmlDeviceGetTemperature(Device *device, unsigned int sensor, unsigned int *celsius) {
    BEGIN(device, (int)sensor);
    WHOLE_GPU_ONLY(device);
    *celsius = (unsigned)lround(value_at(&device->temperature, now_s()));
    return SUCCESS;
}

SHOWN unsigned int nvmlDeviceGetClockInfo(Device *device, unsigned int type, unsigned int *mhz) {
    BEGIN(device, (int)type);
    WHOLE_GPU_ONLY(device);
    if (type > 2) return INVALID_ARGUMENT; /* graphics, SM, memory */
    *mhz = (unsigned)lround(value_at(type == 2 ? &device->memory_clock : &device->sm_clock, now_s()));
    return SUCCESS;
}

SHOWN unsigned int nvmlDeviceGetCurrentClocksEventReasons(Device *device, unsigned long long *reasons) {
    BEGIN(device, 0);
    WHOLE_GPU_ONLY(device);
    *reasons = (unsigned long long)value_at(&device->reasons, now_s());
    return SUCCESS;
}

SHOWN unsigned int nvmlDeviceGetCurrentClocksThrottleReasons(Device *device, unsigned long long *reasons) {
    BEGIN(device, 0);
    WHOLE_GPU_ONLY(device);
    *reasons = (unsigned long long)value_at(&device->reasons, now_s());
    return SUCCESS;
}

SHOWN unsigned int nvmlDeviceGetTotalEccErrors(Device *device, unsigned int type, unsigned int counter, unsigned long long *count) {
    BEGIN(device, (int)type);
    WHOLE_GPU_ONLY(device);
    if (type > 1 || counter > 1) return INVALID_ARGUMENT;
    *count = (unsigned long long)value_at(type ? &device->ecc_uncorrected : &device->ecc_corrected, now_s());
    return SUCCESS;
}

SHOWN unsigned int nvmlDeviceGetPcieThroughput(Device *device, unsigned int counter, unsigned int *kb_per_s) {
    BEGIN(device, (int)counter);
    WHOLE_GPU_ONLY(device);
    if (counter > 1) return INVALID_ARGUMENT;
    struct timespec blocked = {(time_t)pcie_blocks_s, (long)(fmod(pcie_blocks_s, 1) * 1e9)};
    if (pcie_blocks_s > 0) nanosleep(&blocked, NULL);
    *kb_per_s = (unsigned)lround(value_at(counter ? &device->pcie_received : &device->pcie_sent, now_s()));
    return SUCCESS;
}

static unsigned int give_processes(const Device *device, unsigned int *count, Process *processes) {
    unsigned int room = *count;
    *count = (unsigned)device->process_count;
    if (room < *count || (!processes && *count)) return INSUFFICIENT_SIZE;
    if (processes) memcpy(processes, device->processes, *count * sizeof *processes);
    return SUCCESS;
}

SHOWN unsigned int nvmlDeviceGetComputeRunningProcesses_v3(Device *device, unsigned int *count, Process *processes) {
    BEGIN(device, 0);
    return give_processes(device, count, processes);
}

SHOWN unsigned int nvmlDeviceGetComputeRunningProcesses_v2(Device *device, unsigned int *count, Process *processes) {
    BEGIN(device, 0);
    return give_processes(device, count, processes);
}
