# Toolchain file: 64-bit Arm Linux, compiled elsewhere, run by an emulator (Debian:
# g++-aarch64-linux-gnu, qemu-user-static). It says whether results are right, nothing of speed.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)  # asked for by GoogleTest
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

set(HEED_ARM64_ROOT /usr/aarch64-linux-gnu)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L "${HEED_ARM64_ROOT}")
# Libraries of this machine are for another processor.
set(CMAKE_FIND_ROOT_PATH "${HEED_ARM64_ROOT}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
