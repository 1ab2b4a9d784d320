// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <penstock/dataset/atomic_file.hpp>

namespace penstock::detail {

// Event files of TensorBoard, by the definitions of their format: TensorFlow's record framing (tensorflow/core/lib/io/
// record_writer.h) around protocol buffers of event.proto and summary.proto.

inline void append_little_endian(std::string& out, std::uint64_t value, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) out += static_cast<char>((value >> (8 * i)) & 0xff);
}

/// The checksum of a checksummed record is not the CRC itself, so that a CRC over data with CRCs stays meaningful.
inline std::uint32_t masked_crc32c(std::string_view bytes) {
  const std::uint32_t crc = crc32c(std::as_bytes(std::span(bytes)));
  return std::rotr(crc, 15) + 0xa282ead8U;
}

/// Length, its checksum, the bytes, their checksum.
inline void append_record(std::string& out, std::string_view bytes) {
  const std::size_t begin = out.size();
  append_little_endian(out, bytes.size(), 8);
  append_little_endian(out, masked_crc32c(std::string_view(out).substr(begin, 8)), 4);
  out += bytes;
  append_little_endian(out, masked_crc32c(bytes), 4);
}

/// A protocol buffer message under construction: the four kinds of field that events need.
class protobuf_message {
 public:
  protobuf_message& integer(std::uint32_t field, std::uint64_t value) {
    key(field, 0);
    varint(value);
    return *this;
  }
  protobuf_message& real(std::uint32_t field, double value) {
    key(field, 1);
    append_little_endian(bytes_, std::bit_cast<std::uint64_t>(value), 8);
    return *this;
  }
  protobuf_message& single(std::uint32_t field, float value) {
    key(field, 5);
    append_little_endian(bytes_, std::bit_cast<std::uint32_t>(value), 4);
    return *this;
  }
  protobuf_message& text(std::uint32_t field, std::string_view value) {
    key(field, 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  protobuf_message& message(std::uint32_t field, const protobuf_message& value) { return text(field, value.bytes_); }

  const std::string& bytes() const noexcept { return bytes_; }

 private:
  void key(std::uint32_t field, std::uint32_t kind) { varint(field << 3 | kind); }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>((value & 0x7f) | 0x80);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

/// An event: when, in seconds since 1970, at which step, and what.
inline protobuf_message tensorboard_event(double wall_time, std::uint64_t step) {
  protobuf_message event;
  event.real(1, wall_time);
  if (step > 0) event.integer(2, step);
  return event;
}

/// The first of a file.
inline protobuf_message tensorboard_version(double wall_time) {
  return tensorboard_event(wall_time, 0).text(3, "brain.Event:2");
}

/// Of a curve's point.
inline protobuf_message tensorboard_scalar(double wall_time, std::uint64_t step, std::string_view tag, double value) {
  protobuf_message point, summary;
  point.text(1, tag).single(2, static_cast<float>(value));
  summary.message(1, point);
  return tensorboard_event(wall_time, step).message(5, summary);
}

/// Of a text, which TensorBoard reads as Markdown.
inline protobuf_message tensorboard_text(double wall_time, std::uint64_t step, std::string_view tag,
                                         std::string_view value) {
  constexpr std::uint64_t strings = 7;  // DT_STRING
  protobuf_message plugin, metadata, dimension, shape, tensor, entry, summary;
  plugin.text(1, "text");
  metadata.message(1, plugin);
  dimension.integer(1, 1);
  shape.message(2, dimension);
  tensor.integer(1, strings).message(2, shape).text(8, value);
  entry.text(1, tag).message(8, tensor).message(9, metadata);
  summary.message(1, entry);
  return tensorboard_event(wall_time, step).message(5, summary);
}

/// Says that steps from this one on, of earlier files in the folder, are void.
inline protobuf_message tensorboard_restart(double wall_time, std::uint64_t step) {
  protobuf_message session;
  session.integer(1, 1);  // START
  return tensorboard_event(wall_time, step).message(7, session);
}

}  // namespace penstock::detail
