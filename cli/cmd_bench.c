/* SPDX-License-Identifier: Apache-2.0 — hdo bench: this build on this machine, as a table, JSON or CSV. */
#include "cmd_bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

typedef struct bench_args {
    cli_common common;
    hdo_bench_options o;
    const char *csv;
    bool list;
} bench_args;

#define AT(member) offsetof(bench_args, member)
static const cli_option options[] = {
    {"list", 0, CLI_FLAG, NULL, "names of the cases, * for the quick ones", .target = AT(list)},
    {"cpu", 0, CLI_FLAG, NULL, "statistics of processor time, not of wall time: for one thread on a busy machine",
     .target = AT(o.cpu)},
    {"seconds", 0, CLI_DURATION, "S", "for each case, about (default 0.3)", .target = AT(o.seconds), .lo = CLI_POSITIVE,
     .hi = 3600},
    {"csv", 0, CLI_TEXT, "FILE", "append rows to FILE, with a header if it is new", .target = AT(csv)},
    {.name = NULL},
};

/* ---- rows ---- */

static const char *seconds_text(double s, char buf[32]) {
    static const char *const unit[] = {"s", "ms", "us", "ns"};
    int k = 0;
    while (k < 3 && s < 1.0) s *= 1000.0, k++;
    if (!isfinite(s)) return "-";
    snprintf(buf, 32, "%.*f %s", s < 10.0 ? 2 : s < 100.0 ? 1 : 0, s, unit[k]);
    return buf;
}

static void print_header(void) {
    cli_style s = cli_style_for(stdout);
    printf("%s%-27s %-38s %3s %5s %9s %9s %9s %9s %14s %13s %6s %8s %5s%s\n", s.bold, "case", "shape", "thr", "n",
           "median", "p10", "p90", "cpu", "rate", "of limit", "allocs", "peak MB", "busy", s.off);
}

static void print_row(const hdo_bench_row *r) {
    char t[4][32], rate[32] = "", part[32] = "", peak[32] = "-", busy[32] = "-";
    if (r->rate > 0.0 && r->unit[0] != '\0') snprintf(rate, sizeof rate, "%.4g %s", r->rate, r->unit);
    if (isfinite(r->fraction)) snprintf(part, sizeof part, "%.0f%% %s", 100.0 * r->fraction, r->limit);
    if (r->peak_bytes > 0) snprintf(peak, sizeof peak, "%.0f", (double)r->peak_bytes / 1e6);
    if (isfinite(r->busy)) snprintf(busy, sizeof busy, "%.1f", r->busy);
    printf("%-27s %-38s %3d %5d %9s %9s %9s %9s %14s %13s %6.3g %8s %5s\n", r->name, r->shape,
           r->ranks > 1 ? r->ranks : r->threads, r->s.n, seconds_text(r->s.median, t[0]), seconds_text(r->s.p10, t[1]),
           seconds_text(r->s.p90, t[2]), seconds_text(r->cpu_s, t[3]), rate, part, r->allocations, peak, busy);
    fflush(stdout);
}

static void print_number(FILE *f, const char *before, double v, const char *none) {
    if (isfinite(v)) {
        fprintf(f, "%s%.6g", before, v);
    } else {
        fprintf(f, "%s%s", before, none);
    }
}

static void put_json(hdo_json *j, const hdo_bench_row *r) {
    hdo__json_object(j, NULL);
    hdo__json_text(j, "name", r->name);
    hdo__json_text(j, "shape", r->shape);
    HDO_JSON_INTS(j, {"threads", r->threads}, {"ranks", r->ranks}, {"n", r->s.n}, {"calls", r->calls});
    HDO_JSON_REALS(j, {"median_s", r->s.median}, {"p10_s", r->s.p10}, {"p90_s", r->s.p90}, {"min_s", r->s.min},
                   {"cpu_s", r->cpu_s}, {"rate", r->rate}, {"fraction", r->fraction}, {"allocations", r->allocations},
                   {"busy", r->busy});
    hdo__json_text(j, "unit", r->unit);
    hdo__json_text(j, "limit", r->limit);
    hdo__json_int(j, "peak_bytes", (int64_t)r->peak_bytes);
    hdo__json_end(j, '}');
}

static void print_csv(FILE *f, const hdo_bench_row *r, const char *date) {
    fprintf(f, "%s,%s,", date, hdo_version());
    hdo__quote_csv(f, r->name);
    fputc(',', f);
    hdo__quote_csv(f, r->shape);
    fprintf(f, ",%d,%d,%d", r->threads, r->ranks, r->s.n);
    const double v[] = {r->s.median, r->s.p10, r->s.p90, r->cpu_s, r->rate};
    for (size_t k = 0; k < sizeof v / sizeof v[0]; k++) print_number(f, ",", v[k], "");
    fprintf(f, ",%s,%s", r->unit, r->limit);
    print_number(f, ",", r->fraction, "");
    print_number(f, ",", r->allocations, "");
    fprintf(f, ",%zu", r->peak_bytes);
    print_number(f, ",", r->busy, "");
    fputc('\n', f);
}

void bench_put(const bench_out *out, const hdo_bench_row *row) {
    if (out->json != NULL) {
        put_json(out->json, row);
    } else {
        if (*out->rows == 0) print_header();
        print_row(row);
    }
    if (out->csv != NULL) print_csv(out->csv, row, out->date);
    ++*out->rows;
}

static void on_row(void *ctx, const hdo_bench_row *row) {
    bench_put(ctx, row);
}
static void on_note(void *ctx, const char *message) {
    (void)ctx;
    cli_note("%s", message);
}
static bool on_stop(void *ctx) {
    (void)ctx;
    return cli_signal() != 0;
}

/* ---- command ---- */

static void cpu_name(char *buf, size_t cap) {
    FILE *f = fopen("/proc/cpuinfo", "r");
    char line[256];
    snprintf(buf, cap, "unknown");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || colon == NULL) continue;
        line[strcspn(line, "\n\"\\")] = '\0';
        snprintf(buf, cap, "%s", colon + 2);
        break;
    }
    if (f != NULL) fclose(f);
}

static void list(void) {
    bool quick;
    for (int i = 0; bench_process_name(i, &quick) != NULL; i++)
        printf("%c %s\n", quick ? '*' : ' ', bench_process_name(i, &quick));
    for (int i = 0; hdo_bench_case_name(i, &quick) != NULL; i++)
        printf("%c %s\n", quick ? '*' : ' ', hdo_bench_case_name(i, NULL));
}

static bool library_has(const char *name) {
    bool any = name == NULL || strcmp(name, "limit") == 0;
    for (int i = 0; hdo_bench_case_name(i, NULL) != NULL && !any; i++)
        any = hdo_bench_selects(name, hdo_bench_case_name(i, NULL));
    return any;
}

static FILE *open_csv(const char *path) {
    struct stat info;
    bool fresh = stat(path, &info) != 0 || info.st_size == 0;
    FILE *f = fopen(path, "a");
    if (f != NULL && fresh) {
        fputs("date,version,case,shape,threads,ranks,n,median_s,p10_s,p90_s,cpu_s,rate,unit,limit,fraction,allocations,"
              "peak_bytes,busy\n",
              f);
    }
    return f;
}

static void begin_json(hdo_json *j, const char *date) {
    char cpu[128];
    cpu_name(cpu, sizeof cpu);
    hdo__json_init(j, true);
    hdo__json_object(j, NULL);
    hdo__json_text(j, "version", hdo_version());
    hdo__json_text(j, "date", date);
    hdo__json_text(j, "cpu", cpu);
    hdo__json_array(j, "rows");
}

static int failed(hdo_status code, const char *what, const char *path) {
    hdo_error e = {.code = code};
    snprintf(e.msg, sizeof e.msg, "%s '%.400s'", what, path);
    return cli_fail(&e);
}

static int measure(bench_args *a) {
    char date[32];
    time_t now = time(NULL);
    struct tm utc;
    int rows = 0;
    hdo_json j = {.text = NULL};
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    bench_out out = {.json = a->common.json ? &j : NULL, .cpu = a->o.cpu, .rows = &rows, .date = date};
    if (a->csv != NULL && (out.csv = open_csv(a->csv)) == NULL) return failed(HDO_E_IO, "cannot write", a->csv);
    begin_json(&j, date);
    a->o.ctx = &out;
    a->o.row = on_row;
    a->o.note = on_note;
    a->o.stop = on_stop;
    hdo_error e = {0};
    bench_process_run(&out, a->o.name);
    hdo_status st = library_has(a->o.name) ? hdo_bench_run(&a->o, &e) : HDO_OK;
    hdo__json_end(&j, ']');
    hdo__json_end(&j, '}');
    int code = a->common.json ? cli_json(&j) : 0;
    hdo__json_clear(&j);
    if (out.csv != NULL && fclose(out.csv) != 0 && st == HDO_OK) code = failed(HDO_E_IO, "cannot write", a->csv);
    return st != HDO_OK ? cli_fail(&e) : code;
}

static int run_bench(int argc, char **argv) {
    bench_args a = {.csv = NULL};
    int code = cli_parse(&cmd_bench, argc, argv, &a);
    if (code >= 0) return code;
    if (a.list) {
        list();
        return 0;
    }
    a.o.name = a.common.n_words > 0 ? a.common.word[0] : NULL;
    a.o.threads = (int)a.common.threads;
    if (!library_has(a.o.name) && !bench_process_has(a.o.name))
        return cli_usage_error("bench", "there is no benchmark '%s'; 'hdo bench --list' shows them", a.o.name);
    cli_catch_signals();
    code = measure(&a);
    return code == 0 && cli_signal() != 0 ? 128 + cli_signal() : code;
}

const cli_command cmd_bench = {
    .name = "bench",
    .summary = "how fast this build is on this machine, beside the machine's limits",
    .run = run_bench,
    .usage = "[NAME] [OPTIONS]",
    .about =
        "Times kernels, one node-step and one evaluation of the experiments, whole runs, and cost against nodes, "
        "coordinates, threads and ranks. Every row: median, 10th and 90th percentile, processor time, rate, fraction "
        "of "
        "a limit measured in the same process (fma: multiply-adds in registers; triad: memory; normals: our generator "
        "in cache), allocations, most resident memory, and how many processors other programs kept busy meanwhile.\n"
        "NAME is a case or the beginning of one up to a slash (step, step/e2, gemm, eval/e1); without it the quick "
        "cases run, in less than a minute; 'all' runs everything, which takes some minutes. Cases whose data is not "
        "here are skipped. --threads is for steps, evaluations and runs (default: as a run chooses); kernels use one.",
    .options = options,
    .common = CLI_THREADS | CLI_JSON | CLI_TALK,
    .notes = "docs/performance.md explains the rows and has results beside PyTorch's.",
    .examples = "hdo bench step/e2 --threads 1",
    .most = 1,
    .single = "one name at a time",
    .size = sizeof(bench_args),
};
