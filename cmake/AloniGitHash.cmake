# Runs at each build. Writes the file that names the commit, and leaves it alone if nothing changes.
# cmake -D input=… -D output=… -D aloni_VERSION=… -D source=… -P AloniGitHash.cmake
execute_process(
  COMMAND git describe --always --dirty --abbrev=12 --exclude=*
  WORKING_DIRECTORY "${source}"
  OUTPUT_VARIABLE git_hash
  OUTPUT_STRIP_TRAILING_WHITESPACE
  ERROR_QUIET
  RESULT_VARIABLE result)
if(NOT result EQUAL 0 OR NOT EXISTS "${source}/.git")
  set(git_hash unknown) # a source package, perhaps unpacked inside another repository
endif()
configure_file("${input}" "${output}" @ONLY)
