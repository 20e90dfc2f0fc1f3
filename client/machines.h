/* SPDX-License-Identifier: Apache-2.0 */
/* machines.h: detects whether mpirun or srun started `ntx up` on several machines. */
#ifndef NTX_CLIENT_MACHINES_H
#define NTX_CLIENT_MACHINES_H

#include <stdbool.h>
#include <stdint.h>

/* True with several machines. *rank: number of this one; 0 has the socket for clients. Read from the environment
 * variables of Open MPI, MPICH and PMIx (srun --mpi=pmix). */
bool ntx_among_machines(uint32_t *rank);
/* mpirun binds each of two processes to a core. A process that is alone on its machine takes all of mpirun's cores
 * there, unless mpirun was told how to bind (--bind-to); its children inherit that. */
void ntx_machine_unbind(void);

#endif
