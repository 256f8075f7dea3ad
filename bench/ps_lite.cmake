# ps-lite as a peer, if its sources are in build/peers/ps-lite and protobuf is installed (tools/install bench).
set(sources ${PROJECT_SOURCE_DIR}/build/peers/ps-lite)
find_program(PROTOC protoc)
find_library(PROTOBUF_LITE protobuf-lite)
set(TARN_HAS_PS_LITE OFF)
# The build looks again when the sources or the packages are added later.
file(GLOB header CONFIGURE_DEPENDS ${sources}/include/ps/ps.h)
file(GLOB protobuf CONFIGURE_DEPENDS /usr/bin/protoc /usr/include/google/protobuf/message_lite.h)
if(header AND PROTOC AND PROTOBUF_LITE AND NOT TARN_SANITIZE AND NOT TARN_FUZZ)
  set(TARN_HAS_PS_LITE ON)
  set(generated ${PROJECT_BINARY_DIR}/ps-lite)
  file(MAKE_DIRECTORY ${generated})
  add_custom_command(OUTPUT ${generated}/meta.pb.cc ${generated}/meta.pb.h
    COMMAND ${PROTOC} --cpp_out=${generated} --proto_path=${sources}/src ${sources}/src/meta.proto
    DEPENDS ${sources}/src/meta.proto)
  add_library(ps_lite STATIC EXCLUDE_FROM_ALL ${sources}/src/customer.cc ${sources}/src/postoffice.cc ${sources}/src/van.cc
    ${generated}/meta.pb.cc)
  target_include_directories(ps_lite SYSTEM PUBLIC ${sources}/include PRIVATE ${sources}/src ${generated})
  target_compile_options(ps_lite PRIVATE -w)
  set_target_properties(ps_lite PROPERTIES CXX_STANDARD 17)
  target_link_libraries(ps_lite PUBLIC PkgConfig::zmq ${PROTOBUF_LITE})
endif()
