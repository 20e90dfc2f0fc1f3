/* SPDX-License-Identifier: Apache-2.0 */
/* machines.h: whether `ntx up` was started on several machines at once, by mpirun or srun. */
#ifndef NTX_CLIENT_MACHINES_H
#define NTX_CLIENT_MACHINES_H

#include <stdbool.h>
#include <stdint.h>

/* True when there are several. *rank: which is this one; 0 has the socket that clients use. By the environment that
 * Open MPI, MPICH and PMIx (srun --mpi=pmix) give. */
bool ntx_among_machines(uint32_t *rank);
/* mpirun binds each of two processes to a core. Who is the only one on its machine takes all that mpirun may use there,
 * unless it was told how to bind (--bind-to); so do who it starts. */
void ntx_machine_unbind(void);

#endif
