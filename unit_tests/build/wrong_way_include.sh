#!/usr/bin/env bash
# A folder may include itself and the folders before it in the line; including one behind it does not compile.
# wrong_way_include.sh <compiler> <folder of include_dirs.*> core/<header> views/<header> …   in the order of the line
set -uo pipefail
compiler=$1 lists=$2
shift 2
headers=("$@")
((${#headers[@]} >= 2)) || { echo "needs the headers of two folders"; exit 1; }
failures=0
for ((from = 0; from < ${#headers[@]}; ++from)); do
  folder=${headers[from]%%/*}
  mapfile -t directories < <(sed '/^$/d' "$lists/include_dirs.$folder")
  for ((to = 0; to < ${#headers[@]}; ++to)); do
    header=${headers[to]}
    said=$(echo "#include <aloni/$header>" |
      "$compiler" -std=c++20 -fsyntax-only -x c++ "${directories[@]/#/-I}" - 2>&1)
    status=$?
    if ((to <= from && status != 0)); then
      echo "$folder cannot include <aloni/$header>:"
      echo "$said"
      failures=$((failures + 1))
    elif ((to > from && status == 0)); then
      echo "$folder can include <aloni/$header>, which lies behind it"
      failures=$((failures + 1))
    elif ((to > from)) && ! grep -q "aloni/$header" <<<"$said"; then
      echo "$folder including <aloni/$header> fails for another reason than the missing header:"
      echo "$said"
      failures=$((failures + 1))
    fi
  done
done
((failures == 0))
