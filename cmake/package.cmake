# What `cmake --install` installs, by component. `programs`: the programs. `library`: libtarn.so, with the C functions
# of worker/tarn_c.h and the C++ classes of worker/tarn.h and serving/model.h. `development`: the headers of these, a
# CMake package (find_package(tarn), target tarn::tarn) and a pkg-config file (tarn). `tools`: only for the Python
# package (python/pyproject.toml). The target tarn_package builds everything that is installed.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(programs tarn-scheduler tarn-server tarn-worker tarn-keys tarn-checkpoint tarn-inspect tarn-generate
  tarn-simulate)
add_custom_target(tarn_package DEPENDS ${programs})
foreach(program ${programs})
  set_target_properties(${program} PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
endforeach()
install(TARGETS ${programs} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT programs)

# Laid out like a bundle (tools/bundle), so that the tools find the programs in ../bin. Without the developers' tools.
install(DIRECTORY tools/tarn_tools DESTINATION tools COMPONENT tools EXCLUDE_FROM_ALL
  PATTERN __pycache__ EXCLUDE PATTERN bench*.py EXCLUDE PATTERN gpu_*.py EXCLUDE PATTERN bundle.py EXCLUDE
  PATTERN includes.py EXCLUDE PATTERN programs.py EXCLUDE)
install(PROGRAMS tools/accuracy tools/checkpoint tools/inspect tools/lab tools/launch tools/predict tools/replay tools/report
  DESTINATION tools COMPONENT tools EXCLUDE_FROM_ALL)
install(DIRECTORY examples DESTINATION . COMPONENT tools EXCLUDE_FROM_ALL FILES_MATCHING PATTERN *.toml PATTERN *.py)

if(NOT TARGET tarn_c)  # with sanitizers
  return()
endif()

add_dependencies(tarn_package tarn_c)
target_include_directories(tarn_c INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/tarn>)
set_target_properties(tarn_c PROPERTIES EXPORT_NAME tarn)
install(TARGETS tarn_c EXPORT tarn LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)

# libtarn.so exports the symbols of the sources that implement public headers; all other symbols are hidden.
target_link_libraries(tarn_c PRIVATE $<LINK_LIBRARY:WHOLE_ARCHIVE,tarn_serving>)
set_target_properties(tarn_serving PROPERTIES
  POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
function(tarn_public target)
  list(TRANSFORM ARGN PREPEND ${PROJECT_SOURCE_DIR}/)
  set_property(SOURCE ${ARGN} TARGET_DIRECTORY ${target} APPEND PROPERTY
    COMPILE_OPTIONS -fvisibility=default -fno-semantic-interposition)
endfunction()
tarn_public(tarn_core core/error.cc core/quality.cc core/table/table_spec.cc)
tarn_public(tarn_worker_lib worker/tarn.cc)
tarn_public(tarn_serving serving/export_file.cc serving/model.cc)

# install_headers.cmake finds the headers at installation.
install(CODE "set(source \"${PROJECT_SOURCE_DIR}\")
set(generated \"${PROJECT_BINARY_DIR}/schemas/include\")
set(destination \"${CMAKE_INSTALL_INCLUDEDIR}/tarn\")"
  COMPONENT development)
install(SCRIPT ${PROJECT_SOURCE_DIR}/cmake/install_headers.cmake COMPONENT development)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/tarn)
install(EXPORT tarn NAMESPACE tarn:: DESTINATION ${package} FILE tarn-targets.cmake COMPONENT development)
configure_package_config_file(cmake/tarn-config.cmake.in ${PROJECT_BINARY_DIR}/tarn-config.cmake
  INSTALL_DESTINATION ${package} NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tarn-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tarn-config.cmake ${PROJECT_BINARY_DIR}/tarn-config-version.cmake
  DESTINATION ${package} COMPONENT development)
# The paths in tarn.pc are relative to its own directory, because the prefix is known only at installation.
string(REGEX REPLACE "[^/]+" ".." up ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
configure_file(cmake/tarn.pc.in ${PROJECT_BINARY_DIR}/tarn.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tarn.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
