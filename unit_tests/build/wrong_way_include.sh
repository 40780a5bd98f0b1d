#!/usr/bin/env bash
# Checks the order of the folders: a folder may include itself and the folders before it. Other includes do not compile.
# Tasks use core and views only. Of the other folders, model includes some of their headers (source_rules.sh).
# wrong_way_include.sh <compiler> <folder of include_dirs.*> core/<header> views/<header> …   in the order of folders
set -uo pipefail
compiler=$1 lists=$2
shift 2
headers=("$@")
((${#headers[@]} >= 2)) || { echo "expected the headers of at least two folders"; exit 1; }
failures=0
# may_include <position> <position>
may_include() {
  local from=${headers[$1]%%/*} to=${headers[$2]%%/*}
  (($2 <= $1)) && [[ $to != tasks || $from == tasks || $from == model ]]
}
for ((from = 0; from < ${#headers[@]}; ++from)); do
  folder=${headers[from]%%/*}
  mapfile -t directories < <(sed '/^$/d' "$lists/include_dirs.$folder")
  for ((to = 0; to < ${#headers[@]}; ++to)); do
    header=${headers[to]}
    said=$(echo "#include <aloni/$header>" |
      "$compiler" -std=c++20 -fsyntax-only -x c++ "${directories[@]/#/-I}" - 2>&1)
    status=$?
    if may_include "$from" "$to"; then
      ((status == 0)) && continue
      echo "$folder cannot include <aloni/$header>:"
      echo "$said"
      failures=$((failures + 1))
    elif ((status == 0)); then
      echo "$folder can include <aloni/$header>, a folder after or beside it"
      failures=$((failures + 1))
    elif ! grep -q "aloni/$header" <<<"$said"; then
      echo "$folder cannot include <aloni/$header>, but not because the header was not found:"
      echo "$said"
      failures=$((failures + 1))
    fi
  done
done
((failures == 0))
