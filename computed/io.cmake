# The sides of computed that face its workers: the weights' stream out of the shared region, and the workers themselves.
add_library(ntx_computed_io STATIC stream.c stream_wait.c stream_rows.c stream_death.c stream_experts.c stream_guess.c stream_groups.c workers.c workers_peer.c workers_ring.c)
target_link_libraries(ntx_computed_io PUBLIC ntx_shm ntx_proto ntx_common ntx_computed_core Threads::Threads m)
