/* SPDX-License-Identifier: Apache-2.0 */
/* plan_profile.c: the hardware profile that `ntx plan` uses: the stored one, a quick measurement, or an estimate;
 * and a note on which of them it is. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/commands/commands.h"
#include "client/commands/plan.h"
#include "client/doctor/doctor.h"
#include "client/out.h"
#include "common/util.h"
#include "computed/plan/machine.h"

#define BRIEF_SECONDS 2.0

static void show_progress(void *ctx, const char *what)
{
    (void)ctx;
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[Kmeasuring this machine for a moment: %s", what);
}

/* Stores the profile, so that `ntx run` uses the same figures. A failure does no harm. */
static bool store_profile(const struct ntx_hw *hw)
{
    struct ntx_err ignored = {0};
    char path[4096], *json = ntx_hw_dump(hw, NULL, 0);
    bool kept = json && !ntx_hw_user_path(path, sizeof path) && !ntx_hw_store(path, json, &ignored);
    free(json);
    return kept;
}

static int measure_profile(const char *dir, struct ntx_hw *hw, struct ntx_err *err)
{
    struct ntx_doctor_config c = {.dir = dir, .seconds = BRIEF_SECONDS, .progress = show_progress};
    struct ntx_doctor_report *r = calloc(1, sizeof *r);
    ntx_log_init("ntx", NTX_LOG_WARN); /* how reads are done is of no interest here */
    int rc = r ? ntx_doctor_run(&c, r, err) : ntx_err_set(err, -ENOMEM, "no memory");
    ntx_clear_progress();
    if (!rc) {
        *hw = r->hw;
        snprintf(hw->source, sizeof hw->source, NTX_HW_BRIEF);
    }
    free(r);
    return rc;
}

/* Estimates from a common desktop, with this machine's processors and memory. */
static int estimate_profile(struct ntx_hw *hw, struct ntx_err *err)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN), pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    char words[96];
    snprintf(words, sizeof words, "ram=%lldM,cores=%ld", NTX_MAX((long long)pages * page >> 20, 1ll),
             NTX_MAX(cores, 1l));
    return ntx_machine_parse(words, false, hw, err);
}

/* Figures of a moment under load are too low. They are measured again as soon as the machine is quiet. */
static bool is_outdated(const struct ntx_hw *hw)
{
    return !strcmp(hw->source, NTX_HW_BRIEF) && ntx_hw_busy(hw) && !ntx_hw_load_busy(ntx_doctor_load());
}

int ntx__plan_profile(const char *dir, struct ntx_plan_answer *a, struct ntx_err *err)
{
    struct ntx_err broken = {0}, why = {0};
    char *note = a->notes[NTX_PLAN_NOTE_PROFILE];
    int rc = ntx_hw_find(&a->hw, &broken);
    bool none = rc == -ENOENT, outdated = !rc && is_outdated(&a->hw);
    const char *lack = "The hardware profile cannot be used";
    if (none)
        lack = "No hardware profile was there";
    else if (outdated)
        lack = "The hardware profile was of a busy moment";
    else if (rc)
        ntx_say("%s", broken.text);
    bool measured = (rc || outdated) && !measure_profile(dir, &a->hw, &why);
    if (measured) {
        bool kept = (none || outdated) && store_profile(&a->hw); /* a broken file may have been edited, so it stays */
        snprintf(note, sizeof a->notes[0],
                 "%s, so this machine was measured for a moment%s: `ntx doctor` measures it well (under 30 s).", lack,
                 kept ? ", and that is kept" : "");
        return 0;
    }
    if (!rc) {
        if (!strcmp(a->hw.source, NTX_HW_BRIEF))
            snprintf(note, sizeof a->notes[0],
                     "This machine was measured for a moment only: `ntx doctor` measures it well (under 30 s).");
        return 0;
    }
    snprintf(note, sizeof a->notes[0],
             "%s, and nothing could be measured (%.100s): the figures are those of a common desktop. `ntx doctor --dir "
             "DIR` measures.",
             lack, why.text);
    return estimate_profile(&a->hw, err);
}

bool ntx_plan_busy(double load, char *text, size_t room)
{
    const bool busy = ntx_hw_load_busy(load);
    if (busy)
        snprintf(
            text, room,
            "The hardware profile is of a busy machine (a load of %.1f per processor), so all figures may be too low: "
            "run `ntx doctor` when it is quiet.",
            load);
    return busy;
}

void ntx__plan_note_busy(struct ntx_plan_answer *a)
{
    ntx_plan_busy(a->hw.load, a->notes[NTX_PLAN_NOTE_BUSY], sizeof a->notes[0]);
}
