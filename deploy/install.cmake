# SPDX-License-Identifier: Apache-2.0
# Installs units, user and configuration. Runs at installation, below DESTDIR.
if(CMAKE_INSTALL_PREFIX MATCHES "^/usr(/local)?/?$")
  set(sysconfdir /etc)
else()
  set(sysconfdir ${CMAKE_INSTALL_PREFIX}/etc)
endif()
set(bindir ${CMAKE_INSTALL_PREFIX}/${NTX_BINDIR})
set(docdir ${CMAKE_INSTALL_PREFIX}/share/doc/ntx)

set(units ${NTX_DEPLOY}/units/ntx.target ${NTX_DEPLOY}/units/ntx.slice)
foreach(daemon computed iod predictor metrics gateway)
  configure_file(${NTX_DEPLOY}/units/ntx-${daemon}.service.in ${NTX_STAGE}/ntx-${daemon}.service @ONLY)
  list(APPEND units ${NTX_STAGE}/ntx-${daemon}.service)
endforeach()
file(INSTALL ${units} DESTINATION ${CMAKE_INSTALL_PREFIX}/lib/systemd/system)
file(INSTALL ${NTX_DEPLOY}/units/ntx.sysusers DESTINATION ${CMAKE_INSTALL_PREFIX}/lib/sysusers.d RENAME ntx.conf)
file(INSTALL ${NTX_DEPLOY}/units/ntx.tmpfiles DESTINATION ${CMAKE_INSTALL_PREFIX}/lib/tmpfiles.d RENAME ntx.conf)

if(EXISTS $ENV{DESTDIR}${sysconfdir}/ntx/ntx.conf)
  message(STATUS "Kept as it is: ${sysconfdir}/ntx/ntx.conf")
else()
  file(INSTALL ${NTX_DEPLOY}/ntx.conf DESTINATION ${sysconfdir}/ntx)
endif()
if(NOT "$ENV{DESTDIR}" AND EXISTS /run/systemd/system)
  string(JOIN " && " next systemd-sysusers "systemd-tmpfiles --create ntx.conf" "systemctl daemon-reload"
         "systemctl enable --now ntx.target")
  message(STATUS "Now: ${next}")
endif()
