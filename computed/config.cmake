# ntx.conf: apart from the rest, so that its test needs nothing else.
add_library(ntx_config STATIC config.c)
target_link_libraries(ntx_config PUBLIC ntx_common PRIVATE PkgConfig::INIH)
