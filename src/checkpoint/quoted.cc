#include "checkpoint/quoted.h"

namespace longspan::checkpoint {
namespace {

constexpr size_t kLongest = 160;

bool ContinuesCharacter(char byte) { return (static_cast<unsigned char>(byte) & 0xc0u) == 0x80u; }

}  // namespace

std::string Quoted(std::string_view name) {
  const bool cut = name.size() > kLongest;
  if (cut) {
    size_t end = kLongest;
    while (end > 0 && ContinuesCharacter(name[end])) --end;
    name = name.substr(0, end);
  }
  std::string text = "'";
  for (const char byte : name) {
    const auto value = static_cast<unsigned char>(byte);
    text += value < 0x20 || value == 0x7f ? '?' : byte;
  }
  return text + (cut ? "...'" : "'");
}

}  // namespace longspan::checkpoint
