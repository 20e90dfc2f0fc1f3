/* SPDX-License-Identifier: Apache-2.0 */
#include "client/machines.h"

#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

static long env_number(const char *name)
{
    const char *s = getenv(name);
    return s && *s ? strtol(s, NULL, 10) : -1;
}

bool ntx_among_machines(uint32_t *rank)
{
    static const struct {
        const char *size, *rank;
    } of[] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
              {"PMI_SIZE", "PMI_RANK"},
              {"SLURM_STEP_NUM_TASKS", "PMIX_RANK"}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (env_number(of[i].size) > 1 && env_number(of[i].rank) >= 0) {
            *rank = (uint32_t)env_number(of[i].rank);
            return true;
        }
    return false;
}

void ntx_machine_unbind(void)
{
    cpu_set_t all; /* our parent is mpirun, or mpirun's daemon on this machine */
    if (env_number("OMPI_COMM_WORLD_LOCAL_SIZE") == 1 && !getenv("OMPI_MCA_hwloc_base_binding_policy") &&
        !sched_getaffinity(getppid(), sizeof all, &all))
        sched_setaffinity(0, sizeof all, &all);
}
