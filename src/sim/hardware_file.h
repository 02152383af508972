// Hardware profiles as files: what hardware/ holds and what users may write.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "spec/hardware.h"

namespace longspan::sim {

// Parses a profile. A JSON object with `name` and, for every figure of spec::HardwareSpec by its
// own name, an object {"value": number, "source": "where it is from"}; those of a link or of the
// kernels in an object of their name:
//   {"name": "h20", "bf16_flops": {"value": 148e12, "source": "..."}, ...,
//    "nvlink": {"bytes_per_s": {...}, "latency_s": {...}}, "kernels": {"attention": {...}, ...}}
// InvalidArgument, with `where` and the key, for figures that are missing, have no source, or make
// no sense; other keys are ignored.
base::Result<spec::HardwareSpec> ParseHardware(std::string_view json, const std::string& where);

// The profile that `given` names: NAME.json in the first of `folders` that has it, or a file where
// it has a slash or ends in .json. NotFound names the profiles there are.
base::Result<spec::HardwareSpec> LoadHardware(const std::string& given,
                                              const std::vector<std::filesystem::path>& folders);

}  // namespace longspan::sim
