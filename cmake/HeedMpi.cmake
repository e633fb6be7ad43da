# MPI, where it is found: what tests of heed/mpi.h and the example of it need. heed itself needs none.
set(MPI_CXX_SKIP_MPICXX ON)
find_package(MPI 3.0 QUIET COMPONENTS CXX)

# A test by as many ranks, on any machine: as root, with more ranks than cores, and without ssh.
function(heed_add_mpi_test name ranks program)
  add_test(NAME ${name} COMMAND
    ${MPIEXEC_EXECUTABLE} ${MPIEXEC_NUMPROC_FLAG} ${ranks} $<TARGET_FILE:${program}> ${ARGN})
  set_tests_properties(${name} PROPERTIES TIMEOUT 300 PROCESSORS ${ranks} ENVIRONMENT
    "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;OMPI_MCA_plm_rsh_agent=false;OMPI_MCA_rmaps_base_oversubscribe=1;OMPI_MCA_mpi_yield_when_idle=1;PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe")
endfunction()
