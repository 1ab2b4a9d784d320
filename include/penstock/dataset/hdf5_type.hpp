// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <hdf5.h>

#include <cstddef>
#include <string>
#include <type_traits>

#include <penstock/dataset/hdf5_file.hpp>
#include <penstock/dataset/npy_type.hpp>
#include <penstock/sample/error.hpp>

namespace penstock {

/// What an HDF5 dataset can be read into: integers, float and double.
template <class T>
concept hdf5_element =
    npy_kind<T> == 'i' || npy_kind<T> == 'u' || std::is_same_v<T, float> || std::is_same_v<T, double>;

namespace detail {

/// The library's type for `T` in this machine's memory.
template <hdf5_element T>
hid_t hdf5_memory_type() {
  constexpr char kind = npy_kind<T>;
  if constexpr (kind == 'f') {
    return sizeof(T) == 4 ? H5T_NATIVE_FLOAT : H5T_NATIVE_DOUBLE;
  } else if constexpr (sizeof(T) == 1) {
    return kind == 'i' ? H5T_NATIVE_INT8 : H5T_NATIVE_UINT8;
  } else if constexpr (sizeof(T) == 2) {
    return kind == 'i' ? H5T_NATIVE_INT16 : H5T_NATIVE_UINT16;
  } else if constexpr (sizeof(T) == 4) {
    return kind == 'i' ? H5T_NATIVE_INT32 : H5T_NATIVE_UINT32;
  } else {
    return kind == 'i' ? H5T_NATIVE_INT64 : H5T_NATIVE_UINT64;
  }
}

/// The same type but for the order of its bytes, which is no conversion of numbers.
template <hdf5_element T>
bool is_hdf5_type(hid_t type) {
  if (H5Tget_size(type) != sizeof(T)) return false;
  if (npy_kind<T> == 'f') return H5Tget_class(type) == H5T_FLOAT;
  return H5Tget_class(type) == H5T_INTEGER && (H5Tget_sign(type) == H5T_SGN_NONE) == (npy_kind<T> == 'u');
}

inline bool is_hdf5_number(hid_t type) {
  const H5T_class_t kind = H5Tget_class(type);
  return kind == H5T_INTEGER || kind == H5T_FLOAT || kind == H5T_ENUM;
}

/// A type of a file's in words: "int32", "text".
inline std::string describe_hdf5_type(hid_t type) {
  switch (H5Tget_class(type)) {
    case H5T_INTEGER: return npy_type_name(H5Tget_sign(type) == H5T_SGN_NONE ? 'u' : 'i', H5Tget_size(type));
    case H5T_FLOAT: return npy_type_name('f', H5Tget_size(type));
    case H5T_ENUM: return "named values (an enumeration, as h5py's bool is)";
    case H5T_STRING: return "text";
    case H5T_COMPOUND: return "a compound type, such as a table's rows or complex numbers";
    case H5T_REFERENCE: return "references, as of a cell array of MATLAB's";
    case H5T_OPAQUE: return "raw bytes";
    case H5T_VLEN: return "lists of varying length";
    case H5T_ARRAY: return "arrays as elements";
    default: return "an unknown type";
  }
}

/// A number's type in the file in this machine's byte order; half precision as float, names as their values.
inline hdf5_handle native_hdf5_type(hid_t type) {
  const hdf5_handle values(H5Tget_class(type) == H5T_ENUM ? H5Tget_super(type) : H5Tcopy(type), H5Tclose);
  return {H5Tget_native_type(values.get(), H5T_DIR_ASCEND), H5Tclose};
}
/// The same for a converter.
inline npy_type npy_type_of_hdf5(hid_t native) {
  const bool real = H5Tget_class(native) == H5T_FLOAT, whole = H5Tget_sign(native) == H5T_SGN_NONE;
  return {real ? 'f' : whole ? 'u' : 'i', H5Tget_size(native), false};
}

}  // namespace detail
}  // namespace penstock
