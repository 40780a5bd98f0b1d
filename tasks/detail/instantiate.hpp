#pragma once
// The types of matrix elements for which .cpp files instantiate templates. The including file defines the macro
// INSTANTIATE(T), and undefines it afterwards.

#define ALONI_INSTANTIATE_ELEMENTS(INSTANTIATE) \
  INSTANTIATE(float)                            \
  INSTANTIATE(double)
