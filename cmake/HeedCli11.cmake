# Command lines of programs. An installed CLI11 is used (Debian: libcli11-dev), else downloaded.
include(HeedDownload)

find_package(CLI11 2.1 QUIET)
if(NOT CLI11_FOUND)
  heed_download(cli11 CLIUtils/CLI11/archive/refs/tags/v2.4.2.tar.gz
    f2d893a65c3b1324c50d4e682c0cdc021dd0477ae2c048544f39eed6654b699a)
endif()
