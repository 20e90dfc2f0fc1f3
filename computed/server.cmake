# ntx-computed itself: the main thread (server), the engine thread, sessions and loading, over the parts of this folder.
add_executable(ntx-computed
  main.c
  server.c server_listen.c server_seat.c server_client.c server_inlet.c server_request.c server_model.c server_open.c server_take.c take.c server_worker.c server_status.c server_sink.c
  engine.c engine_job.c engine_pass.c engine_riders.c engine_progress.c engine_skip.c
  reader.c session.c session_prompt.c session_text.c
  load.c load_arena.c load_gpu.c load_files.c load_request.c
  stats.c stats_memory.c monitor.c)
target_link_libraries(ntx-computed PRIVATE ntx_computed_core ntx_computed_io ntx_config ntx_model ntx_proto ntx_shm ntx_common
  PkgConfig::UV PkgConfig::JANSSON Threads::Threads m)
install(TARGETS ntx-computed RUNTIME DESTINATION bin)
